"""The whole path in this process: for tests of what is decided between the stages, which need no isolated worker.

A worker's process takes longer to start than a tiny network takes to measure. Tasks that need another runtime or
another Python run in a real worker all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bot.hub.client import Hub
from bot.pipeline import publish
from bot.pipeline.context import Context
from bot.pipeline.releasing import Outcome
from bot.recipe import load_recipe
from bot.work import WorkFolder
from bot.worker import TASKS, Worker
from tests.world import World


class WorkerHere(Worker):
    """Does the tasks that it is given in its own process."""

    def call(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
        on_progress: Callable[[int, int, str], None] | None = None,
        extra_path: Sequence[Path] = (),
        interpreter: Any = None,
    ) -> Any:
        """Runs one task and returns its answer."""
        if extra_path or interpreter is not None:
            more = {"reads": reads, "writes": writes, "extra_path": extra_path, "interpreter": interpreter}
            return super().call(task, arguments, **more)
        module, _, name = TASKS[task].partition(":")
        for folder in writes:
            folder.mkdir(parents=True, exist_ok=True)
        return getattr(import_module(module), name)(dict(arguments), on_progress or (lambda *_: None))


def hub_of(world: World) -> Hub:
    """The bot's view of a world's Hub. It comes before any use of the client there: a token belongs to one endpoint."""
    return Hub(world.hub.endpoint, world.hub.token)


def publish_here(world: World, hub: Hub) -> Outcome:
    """`bot publish network`, with short timings."""
    context = Context(hub, WorkFolder(world.work), WorkerHere(), timing_seconds=0.2)
    outcome = publish(context, load_recipe(world.recipes / "network"))
    outcome.require_complete()
    return outcome
