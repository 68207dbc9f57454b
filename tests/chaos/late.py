"""A commit that the Hub makes, or answers to, after the bot gave up waiting for it.

The Hub has no lock for opening a pull request, so a request that was on its way for long may still open one when the
bot has looked, found none, and opened another. Whoever comes next has to leave one.
"""

from __future__ import annotations

import time
from typing import Any

from tests.chaos.faulty import Scene, begin
from tests.chaos.oracle import what_is_wrong
from tests.chaos.place import Place, Ran, unclear
from tests.chaos.table import Result

GIVES_UP = 0.8
"""Seconds after which the bot gives up on a commit."""

HELD = {"a little": 1.0, "as the next lands": 1.2, "after the run": 2.5}
"""How late, and how many seconds the request is held on its way."""


def carry_out(place: Place, held: str, mode: str, often: str) -> Result:
    """One publish whose first commit, or every commit, arrives late, and a run after it."""
    name = f"late/{held}/{mode}/{often}"
    group = f"a commit that arrives after the bot gave up on it, then a second run | {mode}"
    seconds = HELD[held]
    for _ in range(4):
        repo, case, before = begin(place, Scene(mode, "lfs", "fresh"))
        first, commits = _held_up(place, case, mode, seconds, every=often == "persistent")
        if commits > 1:
            break
        seconds *= 1.3  # the machine is so busy that the answer came before the time-out was noticed
    else:
        return Result(name, group, "the bot did not give up", "not struck")
    if problem := unclear(first.error):
        return Result(name, group, f"the first run {problem}")
    now = place.oracle.snapshot(repo)
    note = f"left {len(now.pulls)} open" if mode == "pull-request" else f"made {len(now.history) - 1} commits"
    second = place.run(case, mode)
    if second.error is not None:
        return Result(name, group, f"the second run ended in {second.error!r}", note)
    problem = what_is_wrong(place.oracle, place.wanted(case, mode), before, place.oracle.snapshot(repo), rivals=True)
    return Result(name, group, problem, note, str(first.error or ""))


def _held_up(place: Place, case: Any, mode: str, seconds: float, *, every: bool) -> tuple[Ran, int]:
    """Runs the bot while its first commit, or every one, is held on its way; returns also how many it sent."""
    from tests.hub.hub_cases import watched

    seen = [0]

    def hold(_: str, path: str) -> None:
        if "/commit/" in path:
            seen[0] += 1
            if every or seen[0] == 1:
                time.sleep(seconds)

    with watched(place.server.endpoint) as proxy:
        proxy.before = hold
        ran = place.run(case, mode, endpoint=proxy.endpoint, commit_answer=GIVES_UP, attempts=3)
        time.sleep(seconds + 0.3)  # whatever is on its way arrives
    return ran, seen[0]
