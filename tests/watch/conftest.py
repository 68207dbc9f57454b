"""A fleet on an embedded Hub of its own, made once for all tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.hub.client import Hub
from bot.hub.memory import Memory
from bot.hub.retry import Policy
from bot.pipeline.fleet import Fleet
from bot.pipeline.watching import Watcher
from tests.hub_server import HubServer, start_hub
from tests.watch.fleet_world import Member, members, release_of, seed_fleet, target_files

QUICK = Policy(attempts=3, first_wait=0.01, longest_wait=0.02, answer=20, connect=5)


@dataclass
class FleetWorld:
    """A running Hub with a fleet.

    Attributes:
        folder: All of it.
        hub: The Hub.
        members: The recipes.
        samples_commit: Of the data set that all are measured on.
        samples: Its digests.
    """

    folder: Path
    hub: HubServer
    members: list[Member]
    samples_commit: str
    samples: dict[str, str]

    @property
    def recipes(self) -> Path:
        """The folder of recipes."""
        return self.folder / "recipes"

    def watcher(self, *, memory: Path | None = None, policy: Policy = QUICK, **more: Any) -> Watcher:
        """A watcher as the local user."""
        hub = Hub(self.hub.endpoint, self.hub.token, policy=policy)
        return Watcher(hub, Fleet(self.recipes), account="local-user", memory=Memory(memory), **more)

    def change(self, member: Member, text: str) -> str:
        """Commits another model to a member's upstream."""
        return self.upload(member.upstream, {"model.onnx": text.encode()})

    def upload(self, repo: str, files: dict[str, bytes], message: str = "Change") -> str:
        """Commits files to a repository."""
        from huggingface_hub import CommitOperationAdd

        operations = [CommitOperationAdd(name, data) for name, data in files.items()]
        return str(self.hub.api().create_commit(repo, operations, commit_message=message).oid)

    def release(self, member: Member, model: str) -> None:
        """Puts the release of a model into a member's target, as if a person had merged it."""
        from bot.recipe import load_recipe

        commit = self.hub.api().model_info(member.upstream).sha
        recipe = load_recipe(self.recipes / member.name)
        made = release_of(recipe, commit, model.encode(), b'{"a": 1}\n', self.samples_commit, self.samples)
        self.upload(member.target, target_files(made))


def start_fleet(folder: Path, fleet: list[Member], *options: str) -> FleetWorld:
    """Seeds a fleet and starts its Hub."""
    seeder = seed_fleet(folder / "hub", folder / "recipes", fleet)
    hub = start_hub(folder / "hub", *options)
    return FleetWorld(folder, hub, fleet, seeder.samples_commit, seeder.samples)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    """Eight recipes over two owners, and two more with an owner each."""
    fleet = [
        *members(8, 2),
        Member("lone-1", "alone-1/model", "fleet-0/lone-1"),
        Member("lone-2", "alone-2/m", "solo/x"),
    ]
    world = start_fleet(tmp_path_factory.mktemp("small"), fleet, "--fast-clock")
    yield world
    world.hub.stop()
