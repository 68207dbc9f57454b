"""Three hundred recipes under the Hub's real quotas: what a poll costs, and that it finds what changed and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.hub.budget import Budget
from bot.watch.findings import Row
from tests.watch.conftest import FleetWorld, start_fleet
from tests.watch.fleet_world import Member, members

OWNERS = 20


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    """Three hundred recipes over twenty owners, and three with an owner each; a quota of 100 API calls a window."""
    scattered = [Member(f"lone-{n}", f"alone-{n}/model", f"fleet-0/lone-{n}") for n in range(3)]
    limits = ("--rate-limit", "api=200/86400", "--rate-limit", "resolvers=1000/86400")
    world = start_fleet(tmp_path_factory.mktemp("fleet"), [*members(300, OWNERS), *scattered], *limits)
    yield world
    world.hub.stop()


def _due(rows: list[Row]) -> dict[str, tuple[str, ...]]:
    return {row.recipe: row.finding.reasons for row in rows if row.state == "due"}


def _no_waiting(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def test_a_poll_costs_a_call_for_each_owner_and_finds_what_changed(fleet: FleetWorld, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    budget = Budget(0.25, sleep=_no_waiting)
    watcher = fleet.watcher(memory=memory, budget=budget)
    rows = watcher.poll()
    assert Counter(row.state for row in rows) == {"current": 303}
    assert budget.buckets["resolvers"].calls == 3  # The scattered ones, a HEAD each.
    assert budget.buckets["api"].calls <= 50  # Twenty-one listings; the rest of the budget goes into the patrol.

    changed = [fleet.members[index] for index in (0, 7, 133, 299, 301)]
    for member in changed:
        fleet.change(member, f"other weights of {member.name}")
    budget = Budget(1.0, sleep=_no_waiting)
    rows = fleet.watcher(memory=memory, budget=replace_patrol(budget)).poll()
    assert _due(rows) == {member.name: ("upstream files",) for member in changed}
    # A listing for each owner, and for each that changed: the digests there, the record that is published and its
    # sha256, and the bot's pull requests.
    assert budget.buckets["api"].calls <= OWNERS + 1 + 4 * len(changed)
    assert sum(bucket.refused for bucket in budget.buckets.values()) == 0

    for state in ("deleted", "damaged"):
        if state == "deleted":
            memory.unlink()
        else:
            data = bytearray(memory.read_bytes())
            data[len(data) // 2] ^= 1
            memory.write_bytes(bytes(data))
        again = fleet.watcher(memory=memory, budget=replace_patrol(Budget(1.0, sleep=_no_waiting))).poll()
        for now, before in zip(again, rows, strict=True):
            assert replace(now, since=None) == replace(before, since=None)


def replace_patrol(budget: Budget) -> Budget:
    """The budget with nothing to spare for what is not needed."""
    budget.spare = lambda name: 0.0  # type: ignore[method-assign]
    return budget
