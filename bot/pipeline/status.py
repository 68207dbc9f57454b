"""The state of a fleet: what a watcher finds of each recipe, and the releases that its target has had."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from bot.card.fleet import Entry, Figure, Kind, ReleasePoint
from bot.errors import BotError, VerificationError
from bot.hub.client import Commit, NotFound
from bot.hub.lookup import small_file
from bot.hub.retry import HubUnavailable
from bot.hub.target import HISTORY, MAIN
from bot.hub.trailers import IDENTITY, trailers_of
from bot.pipeline.watching import Watcher
from bot.records import Measurement, Release, Verdict
from bot.watch.findings import Row, State

_WAITS_FOR: dict[State, str] = {
    "due": "the bot",
    "cooling down": "the upstream to settle",
    "waiting for review": "a reviewer",
    "withheld": "whoever answers for the recipe",
    "broken": "whoever answers for the recipe",
    "unavailable": "upstream, or the Hub",
}
MEGABYTE = 1_000_000


def status(watcher: Watcher, names: Iterable[str] = (), *, history: int = 20) -> tuple[list[Entry], list[Row]]:
    """Looks at these recipes, or at all.

    Args:
        watcher: Polls; its memory keeps what was read of releases, which cannot change.
        names: Recipes; none for all.
        history: How many releases of each are read, newest first.

    Returns:
        An entry for each recipe, and what the watcher found.

    Raises:
        BotError: As `Watcher.poll`.
    """
    from bot.hub import session

    rows = watcher.poll(names)
    session.observe(watcher.hub.endpoint, watcher.budget)
    try:
        entries = []
        for count, row in enumerate(rows, 1):
            watcher.reporter.update(count, len(rows), "histories")
            entries.append(_entry(watcher, row, history))
    finally:
        session.observe(watcher.hub.endpoint, None)
        watcher.memory.save()
    return entries, rows


def _entry(watcher: Watcher, row: Row, history: int) -> Entry:
    releases: tuple[ReleasePoint, ...] = ()
    problem = str(row.error) if row.error is not None else ""
    if row.target and history:
        try:
            releases = _releases(watcher, row.target, history)
        except NotFound:
            pass  # Nothing was published yet.
        except HubUnavailable:
            raise
        except BotError as error:
            problem = problem or str(error)
    return Entry(
        recipe=row.recipe,
        upstream=row.upstream,
        target=row.target,
        state=row.state,
        reasons=row.finding.reasons,
        waits_for=_WAITS_FOR.get(row.state, ""),
        next_step=row.next_step,
        url=row.url,
        since=row.since,
        releases=releases,
        problem=problem,
    )


def _releases(watcher: Watcher, repo: str, history: int) -> tuple[ReleasePoint, ...]:
    """The releases in a target's history, oldest first: each at the bot's own commit that brought it."""
    found: dict[str, ReleasePoint] = {}
    for commit in watcher.hub.commits(repo, MAIN, limit=HISTORY):
        named = trailers_of(commit.message).get(IDENTITY, "")
        if not named or named in found or watcher.account not in commit.authors:
            continue
        point = _point(watcher, repo, commit)
        if point is not None:
            found[named] = point
        if len(found) >= history:
            break
    return tuple(reversed(found.values()))


def _point(watcher: Watcher, repo: str, commit: Commit) -> ReleasePoint | None:
    key = f"{repo.lower()}@{commit.sha}"
    plain = watcher.memory.get("point", key)
    if plain is None:
        plain = _read_point(watcher, repo, commit.sha)
        watcher.memory.put("point", key, plain)
    if not plain:
        return None
    figures = tuple(Figure(**figure) for figure in plain["figures"])
    return ReleasePoint(
        plain["identity"], commit.date, commit.sha, plain["upstream"], figures, tuple(plain["withheld"])
    )


def _read_point(watcher: Watcher, repo: str, commit: str) -> dict[str, Any]:
    there = watcher.hub.files_at(repo, commit, [Release.PATH])
    if Release.PATH not in there:
        return {}
    data = small_file(watcher.hub, repo, commit, there[Release.PATH])
    try:
        release = Release.from_json(data, where=f"{repo}@{commit[:12]}: {Release.PATH}")
    except VerificationError:
        return {}  # Written by another version of the bot.
    return {
        "identity": release.identity,
        "upstream": release.source.commit,
        "figures": [vars(figure) for figure in figures_of(release)],
        "withheld": list(release.withheld),
    }


def figures_of(release: Release) -> list[Figure]:
    """What a release is told by: the size of each file, each figure that a gate was about, each time."""
    found = [Figure("size", artifact.name, round(artifact.bytes / MEGABYTE, 3), "MB") for artifact in release.published]
    found += [
        _of_verdict(verdict) for verdict in release.verdicts if verdict.value is not None and verdict.limit is not None
    ]
    judged = {figure.name for figure in found}
    for measurement in release.measurements:
        if measurement.subject == "latency" and measurement.metric == "median":
            figure = _of_time(measurement)
            if figure.name not in judged:
                found.append(figure)
                judged.add(figure.name)
    return found


def _of_verdict(verdict: Verdict) -> Figure:
    assert verdict.value is not None  # noqa: S101 -- the caller looked
    kind: Kind = "speed" if verdict.rule.startswith(("latency.", "speedup.")) else "accuracy"
    provider = f" ({verdict.provider})" if verdict.provider and kind == "accuracy" else ""
    name = f"{verdict.artifact}: {verdict.rule}{provider}"
    return Figure(kind, name, verdict.value, verdict.unit, verdict.limit, verdict.status == "passed")


def _of_time(measurement: Measurement) -> Figure:
    return Figure("speed", f"{measurement.artifact}: {measurement.key}", measurement.value, measurement.unit)


def newest(entry: Entry) -> datetime | None:
    """When a recipe was last released."""
    return entry.releases[-1].date if entry.releases else None
