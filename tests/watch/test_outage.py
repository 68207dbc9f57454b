"""The Hub is gone for an hour while the watcher runs: nothing is missed, and nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.errors import HubError, RecipeError
from bot.hub.budget import Budget
from bot.hub.client import Hub
from bot.hub.memory import Memory
from bot.hub.retry import Policy
from bot.pipeline.fleet import Fleet
from bot.pipeline.watch_loop import watch
from bot.pipeline.watching import Watcher
from bot.watch.findings import Row
from tests.watch.conftest import FleetWorld, start_fleet
from tests.watch.fleet_world import Member, members

EVERY = 900.0
HOUR = 3600.0
ONE_OF_EACH = ("status", "reset", "truncate")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    """Twelve recipes over two owners, and two scattered ones."""
    scattered = [Member(f"lone-{n}", f"alone-{n}/model", f"fleet-0/lone-{n}") for n in range(2)]
    made = start_fleet(tmp_path, [*members(12, 2), *scattered], "--fast-clock")
    yield made
    made.hub.stop()


class Time:
    """A clock that moves only when somebody waits; things happen when their time has come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, object]] = []

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and what falls into it happen in its order."""
        until = self.now + max(seconds, 0.001)
        while self.events and self.events[0][0] <= until:
            self.now, event = self.events.pop(0)
            event()  # type: ignore[operator]
        self.now = until

    def date(self) -> datetime:
        """The time of day."""
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.now)


def _go_down(world: FleetWorld, kind: str) -> None:
    """Nothing is read from the Hub any more; what people commit to it meanwhile still arrives."""
    for method in ("GET", "HEAD"):
        world.hub.fault(kind, method=method, times=0, status=503, bytes=3)
    world.hub.fault(kind if kind == "status" else "reset", path="*/paths-info/*", method="POST", times=0)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_an_hour_without_the_hub(world: FleetWorld, kind: str, tmp_path: Path) -> None:
    time = Time()
    policy = Policy(first_wait=1, longest_wait=30, answer=5, connect=5, sleep=time.sleep, clock=lambda: time.now)
    hub = Hub(world.hub.endpoint, world.hub.token, policy=policy)
    watcher = Watcher(
        hub,
        Fleet(world.recipes),
        account="local-user",
        memory=Memory(tmp_path / "memory.json"),
        budget=Budget(clock=lambda: time.now, sleep=time.sleep),
        now=time.date,
    )
    by_name = {member.name: member for member in world.members}
    changes = ["model-00000", "lone-0", "model-00005", "model-00006", "model-00011", "lone-1"]
    polled: list[float] = []
    acted: Counter[str] = Counter()

    def change(name: str) -> None:
        world.change(by_name[name], f"other weights of {name}")

    def come_back() -> None:
        world.hub.clear_faults()

    time.events = [
        (0.5 * HOUR, lambda: change(changes[0])),
        (0.5 * HOUR + 1, lambda: change(changes[1])),
        (1.0 * HOUR, lambda: change(changes[2])),
        (1.0 * HOUR + 1, lambda: _go_down(world, kind)),
        (1.5 * HOUR, come_back),  # For the moment of somebody's push.
        (1.5 * HOUR, lambda: change(changes[3])),
        (1.5 * HOUR, lambda: _go_down(world, kind)),
        (2.0 * HOUR + 1, come_back),
        (2.2 * HOUR, lambda: change(changes[4])),
        (2.5 * HOUR, lambda: change(changes[5])),
    ]

    def publish_what_is_due(rows: list[Row]) -> None:
        polled.append(time.now)
        assert {row.state for row in rows} <= {"current", "due"}
        for row in rows:
            if row.state == "due":
                acted[row.recipe] += 1
                world.release(by_name[row.recipe], f"other weights of {row.recipe}")

    watch(watcher, (), EVERY, publish_what_is_due, clock=lambda: time.now, sleep=time.sleep, polls=13)
    assert acted == Counter(changes)
    assert not [moment for moment in polled if HOUR + 1 < moment < 2 * HOUR]
    after = min(moment for moment in polled if moment > 2 * HOUR)
    assert after < 2 * HOUR + EVERY + 60
    assert not time.events


def test_what_a_person_must_correct_ends_the_loop_at_once(world: FleetWorld) -> None:
    watcher = world.watcher()
    with pytest.raises(RecipeError, match="there is no recipe"):
        watch(watcher, ("nosuch",), EVERY, lambda rows: None, polls=1)
    stranger = replace(watcher, hub=Hub(world.hub.endpoint, "hf_wrong", policy=Policy(attempts=1)), account=None)
    with pytest.raises(HubError, match="token"):
        watch(stranger, (), EVERY, lambda rows: None, polls=1)


def test_a_recipe_that_breaks_while_the_loop_runs_is_a_row(world: FleetWorld) -> None:
    broken = world.recipes / "model-00003" / "recipe.yaml"
    seen: list[dict[str, str]] = []

    def look(rows: list[Row]) -> None:
        seen.append({row.recipe: row.state for row in rows})
        broken.write_text("upstream: [")

    watch(world.watcher(), (), 0.0, look, polls=2)
    assert set(seen[0].values()) == {"current"}
    assert seen[1].pop("model-00003") == "broken" and set(seen[1].values()) == {"current"}
