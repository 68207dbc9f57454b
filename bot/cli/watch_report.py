"""What a watcher found: a table for people, a matrix for GitHub Actions."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from bot.card.markdown import plain_text
from bot.cli import actions
from bot.errors import BotError, HubError, RecipeError, UpstreamError
from bot.watch.findings import Row, State
from bot.watch.matrix import LARGEST, matrix

_STYLES: dict[State, str] = {
    "current": "green",
    "due": "bold cyan",
    "cooling down": "cyan",
    "waiting for review": "yellow",
    "withheld": "red",
    "closed": "dim",
    "replaced": "dim",
    "unavailable": "bold red",
    "broken": "bold red",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str, where: str) -> int:
    """`90s`, `15m`, `6h` or `1d`, as seconds.

    Raises:
        RecipeError: It is no such duration.
    """
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and int(number) and unit in _UNITS):
        raise RecipeError(f"{where} takes a duration such as 90s, 15m, 6h or 1d, found {text!r}")
    return int(number) * _UNITS[unit]


def worst(rows: Sequence[Row]) -> int:
    """The exit code: of the worst error among the rows, 0 if there is none."""
    errors = [row.error for row in rows if row.error is not None]
    for kind in (RecipeError, UpstreamError, HubError, BotError):
        if any(isinstance(error, kind) for error in errors):
            return next(error.exit_code for error in errors if isinstance(error, kind))
    return 0


def print_rows(rows: Sequence[Row], now: datetime, *, as_json: bool) -> None:
    """Prints what a poll found.

    Args:
        rows: A row for each recipe.
        now: When it was found.
        as_json: Print the matrix on standard output; the errors go to standard error.
    """
    due = [record for row in rows if (record := row.due()) is not None]
    if as_json:
        sys.stdout.write(json.dumps(matrix(due)) + "\n")
        sys.stdout.flush()
        broken = [f"{visible(row.recipe)}: {visible(str(row.error))}" for row in rows if row.error is not None]
        actions.report_due(matrix(due)["include"], Counter(row.state for row in rows), broken)
        for row in rows:
            if row.error is not None:
                sys.stderr.write(f"{visible(row.recipe)}: {row.state}: {visible(str(row.error))}\n")
        if len(due) > LARGEST:
            sys.stderr.write(f"{len(due)} recipes are due; the oldest {LARGEST} are in the matrix\n")
        return
    _print_table(rows, now)


def _print_table(rows: Sequence[Row], now: datetime) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("recipe", "upstream", "published from", "upstream now", "age", "state", "next"):
        table.add_column(title, overflow="fold")
    for row in rows:
        state = Text(row.state, style=_STYLES[row.state])
        if row.finding.reasons:
            state.append(f" ({', '.join(row.finding.reasons)})", style="default")
        cells = [row.recipe, row.upstream, row.published[:12] or "–", row.upstream_commit[:12] or "–"]
        cells += [age(row.since, now) or "–"]
        table.add_row(*(Text(visible(cell)) for cell in cells), state, Text(visible(row.next_step)))
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(table if rows else "no recipes here")
    counts = Counter(row.state for row in rows)
    console.print(", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state]))


def visible(text: str) -> str:
    """Text from anywhere on one line of a terminal or a log, where it is read and does nothing.

    Nothing in it hides, reorders or controls; and a runner of GitHub Actions does not take it for a command.
    """
    return plain_text(text).replace("##[", "## [").replace("::", ": :")


def age(since: datetime | None, now: datetime) -> str:
    """How long ago something was: 3 days, 5 hours; empty if nobody knows."""
    if since is None:
        return ""
    passed = max(0, int((now - since).total_seconds()))
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if passed >= size:
            count = passed // size
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "now"
