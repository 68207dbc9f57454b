"""The state of a fleet of recipes as one self-contained HTML page: releases over time, and what waits for whom.

Everything on it is data: it is escaped where it is printed, in a sandboxed template, and pictures are drawn here from
numbers. The page runs no script and asks nobody for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup, escape

from bot.card.environment import templates_folder
from bot.card.markdown import plain_text

TEMPLATE = "status.html.j2"

Kind = Literal["size", "accuracy", "speed"]

TROUBLED = frozenset(["broken", "unavailable", "withheld"])
"""States that somebody has to mend something for."""

MOST_PLOTS = 12
"""Of one recipe."""


@dataclass(frozen=True)
class Figure:
    """One figure of one release.

    Attributes:
        kind: What it is about.
        name: `fp16: age.mean_absolute`.
        value: The figure.
        unit: `MB`, `year`, `ms`; empty for a pure number.
        limit: The recipe's limit, if it has one.
        passed: Whether it keeps the limit; None without one.
    """

    kind: Kind
    name: str
    value: float
    unit: str = ""
    limit: float | None = None
    passed: bool | None = None


@dataclass(frozen=True)
class ReleasePoint:
    """One release in a target's history.

    Attributes:
        identity: Of the release.
        date: Of the commit that holds it.
        commit: That commit.
        upstream_commit: What it was made from.
        figures: Sizes, differences from the source, times.
        withheld: Artifacts that it does not publish.
    """

    identity: str
    date: datetime
    commit: str
    upstream_commit: str
    figures: tuple[Figure, ...] = ()
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One recipe.

    Attributes:
        recipe: Its name.
        upstream: `owner/name`, or an address.
        target: `owner/name`.
        state: In words.
        reasons: Why it is due.
        waits_for: Whom it waits for; empty if for nobody.
        next_step: What comes next.
        url: Where a person reads on.
        since: When what it is about began.
        releases: Oldest first.
        problem: Why its history cannot be told.
    """

    recipe: str
    upstream: str
    target: str
    state: str
    reasons: tuple[str, ...] = ()
    waits_for: str = ""
    next_step: str = ""
    url: str = ""
    since: datetime | None = None
    releases: tuple[ReleasePoint, ...] = ()
    problem: str = ""


def render_status(entries: Sequence[Entry], *, endpoint: str, now: datetime) -> str:
    """The page.

    Args:
        entries: A recipe each.
        endpoint: Of the Hub that the targets are on.
        now: When this was found out.
    """
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    entries = [_visible(entry) for entry in entries]
    environment.filters |= {"day": day, "short": short, "number": number}
    waiting: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.waits_for:
            waiting.setdefault(entry.waits_for, []).append(entry)
    states: dict[str, int] = {}
    for entry in entries:
        states[entry.state] = states.get(entry.state, 0) + 1
    return environment.get_template(TEMPLATE).render(
        entries=entries,
        states=sorted(states.items(), key=lambda pair: (-pair[1], pair[0])),
        waiting=sorted(waiting.items()),
        troubled=any(entry.state in TROUBLED for entry in entries),
        style=_style(),
        now=now,
        plots=plots_of,
        link=lambda path: _link(endpoint, path),
        safe_link=safe_link,
    )


def _visible(value: Any) -> Any:
    """The same, with every text in it rid of what hides, reorders or controls."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, tuple):
        return tuple(_visible(each) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _visible(getattr(value, each.name)) for each in fields(value)})
    return value


def _style() -> Markup:
    """The review page's style sheet, so that the bot's pages look alike."""
    text = (templates_folder() / "review.html.j2").read_text("utf-8")
    match = re.search(r"<style>\n(.*?)</style>", text, re.DOTALL)
    return Markup(match[1] if match else "")  # noqa: S704 - the bot's own file


def _link(endpoint: str, path: str) -> str:
    return f"{endpoint}/{quote(path, safe='/')}"


def safe_link(url: str) -> str:
    """The address, if a reader may be sent there; empty otherwise."""
    return url if urlsplit(url).scheme in ("https", "http") and not re.search(r"[\s<>\"']", url) else ""


def day(moment: datetime | None) -> str:
    """A date for people."""
    return f"{moment:%Y-%m-%d}" if moment is not None else "–"


def short(digest: str) -> str:
    """Enough of a digest to tell it from others."""
    return digest[:12]


def number(value: float, unit: str = "") -> str:
    """A figure with four significant digits, and its unit."""
    text = f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{text}\N{NO-BREAK SPACE}{unit}" if unit else text


# -- pictures ----------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _MARGIN = 240, 72, 8


def plots_of(entry: Entry) -> list[Markup]:
    """A small picture for each figure that a recipe's releases have, in the order of sizes, differences, times."""
    names: dict[tuple[str, str], list[tuple[ReleasePoint, Figure]]] = {}
    for release in entry.releases:
        for figure in release.figures:
            names.setdefault((figure.kind, figure.name), []).append((release, figure))
    order = {"size": 0, "accuracy": 1, "speed": 2}
    chosen = sorted(names.items(), key=lambda item: order[item[0][0]])[:MOST_PLOTS]
    return [_plot(name, points) for (_, name), points in chosen]


def _plot(name: str, points: list[tuple[ReleasePoint, Figure]]) -> Markup:
    """One figure over the releases, evenly spaced: dots joined by a line, and the limit where there is one."""
    values = [figure.value for _, figure in points]
    limit = points[-1][1].limit
    known = [*values, *([limit] if limit is not None else [])]
    low, high = min([0.0, *known]), max([0.0, *known])
    span = (high - low) or 1.0

    def x(index: int) -> float:
        room = _WIDTH - 2 * _MARGIN
        return round(_MARGIN + room * (index / (len(values) - 1) if len(values) > 1 else 0.5), 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (value - low) / span, 1)

    line = Markup(" ").join(f"{x(index)},{y(value)}" for index, value in enumerate(values))
    parts = [Markup('<polyline class="line" points="{}"/>').format(line)]
    if limit is not None:
        parts.insert(
            0, Markup('<line class="limit" x1="0" x2="{}" y1="{}" y2="{}"/>').format(_WIDTH, y(limit), y(limit))
        )
    for index, (release, figure) in enumerate(points):
        parts.append(
            Markup('<circle class="{}" cx="{}" cy="{}" r="3"><title>{}: {}</title></circle>').format(
                "dot miss" if figure.passed is False else "dot",
                x(index),
                y(figure.value),
                day(release.date),
                number(figure.value, figure.unit),
            )
        )
    last = points[-1][1]
    said = ", then ".join(number(figure.value, figure.unit) for _, figure in points[-12:])
    caption = Markup("{} <strong>{}</strong>").format(name, number(last.value, last.unit))
    if limit is not None:
        caption += Markup(' <span class="soft">limit {}</span>').format(number(limit, last.unit))
    return Markup(
        '<figure class="small"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(_WIDTH, _HEIGHT, f"{name}: {said}", _joined(parts), caption)


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(escape(part) for part in parts)
