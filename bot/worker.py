"""The isolated child process that parses untrusted bytes: JSON in, JSON out.

Models, images and cards from upstream are read here and nowhere else. A worker has no network, no token, no file but
those it was given, and a limit on memory and time; when it crashes, the bot reports a failed step and goes on.
`docs/security.md` says what is kept out and how.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bot.errors import StepError
from bot.isolation import leftovers, room
from bot.isolation.exchange import StartError
from bot.isolation.failures import WorkerError, details, explain
from bot.isolation.probe import Isolation, Kind, isolation, start, why_not
from bot.isolation.room import Interpreter

__all__ = ["GPU_TASKS", "TASKS", "Isolation", "Json", "Kind", "Limits", "Worker", "WorkerError", "isolation", "why_not"]

Json = Any
"""What `json` reads and writes: None, bool, int, float, str, lists, and dictionaries with str keys."""

TASKS: Mapping[str, str] = MappingProxyType(
    {
        "graph.step": "bot.graph.tasks:step",
        "graph.search_step": "bot.judging:step",
        "graph.inspect": "bot.graph.tasks:inspect",
        "graph.external_files": "bot.graph.tasks:external_files",
        "graph.check": "bot.graph.tasks:check",
        "graph.ranges": "bot.graph.tasks:ranges",
        "licenses.declared": "bot.licenses.tasks:declared",
        "recipe.parse": "bot.recipe_text:parse",
        "measure.samples": "bot.measure.tasks:samples",
        "measure.run": "bot.measure.tasks:run",
        "measure.compare": "bot.measure.tasks:compare",
        "measure.spread": "bot.measure.spread:spread",
        "measure.checks": "bot.measure.tasks:checks",
        "measure.latency": "bot.measure.tasks:latency",
        "measure.open": "bot.measure.tasks:open_model",
        "measure.emulated_run": "bot.measure.fp16_tasks:emulated_run",
        "reference.describe": "bot.reference:describe",
        "reference.run": "bot.reference:run",
        "reference.checks": "bot.reference:checks",
        "reference.latency": "bot.reference:latency",
    }
)
"""All that a worker can be asked to do: name to "module:function"."""

GPU_TASKS = frozenset(
    {"measure.run", "measure.checks", "measure.latency", "measure.open", "measure.spread", "reference.checks"}
)
"""Tasks that get the NVIDIA devices, where there are any."""

_FILE_BYTES = 64 << 30
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one call may use.

    Attributes:
        memory_bytes: Memory of each process, which the kernel holds it to, and of all together, which is looked at
            twice a second. Mapped files do not count.
        seconds: Wall-clock time.
    """

    memory_bytes: int | None = 16 << 30
    seconds: float | None = 3600.0


class Worker:
    """Runs tasks, each in a new child process.

    Args:
        limits: What one call may use.
        require_isolation: Fail where the system allows no isolation, rather than run in a plain child.
        tasks: More tasks than `TASKS`: name to "module:function".
        refuses: Kinds of tasks that this worker does not do, by the part before the dot: `graph`, `measure`.
        isolation: How to shut workers in; by default, as well as the system allows.
    """

    def __init__(
        self,
        *,
        limits: Limits = Limits(),
        require_isolation: bool = False,
        tasks: Mapping[str, str] | None = None,
        refuses: Collection[str] = (),
        isolation: Isolation | None = None,
    ) -> None:
        self._limits = limits
        self._required = require_isolation
        self._tasks = {**TASKS, **(tasks or {})}
        self._refused = frozenset(refuses)
        self._isolation = isolation

    @property
    def isolation(self) -> Isolation:
        """How this worker's calls are shut in."""
        return self._isolation or isolation()

    def call(
        self,
        task: str,
        arguments: Mapping[str, Json],
        *,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
        on_progress: Callable[[int, int, str], None] | None = None,
        extra_path: Sequence[Path] = (),
        interpreter: Interpreter | None = None,
    ) -> Json:
        """Run one task and return its answer.

        Args:
            task: A key of `TASKS`.
            arguments: The task's arguments, as JSON.
            reads: Files and folders that the task may read, at the same absolute path.
            writes: Folders that it may also write; made if missing.
            on_progress: Called with (done, total, text) as the task reports progress.
            extra_path: Folders that come first in the task's `sys.path`.
            interpreter: The Python that the task runs in, with its packages; None for the bot's own.

        Returns:
            What the task returned.

        Raises:
            BotError: Of the class that the task raised.
            WorkerError: The task raised anything else, crashed, or reached a limit; `details` has the traceback.
            StepError: Isolation is required and not to be had, a file is missing, or the worker left a trap behind.
        """
        how = self._checked_isolation(task)
        for folder in writes:
            folder.mkdir(parents=True, exist_ok=True)
        view = room.plan(
            reads=reads,
            writes=writes,
            extra_path=extra_path,
            fresh_proc=how.fresh_proc,
            gpu=task in GPU_TASKS,
            interpreter=interpreter,
        )
        before = leftovers.links(writes)
        try:
            outcome = start(
                how,
                view,
                self._tasks[task],
                dict(arguments),
                limits=_resource_limits(self._limits),
                seconds=self._limits.seconds,
                extra_path=tuple(extra_path),
                on_progress=on_progress,
                interpreter=interpreter,
            )
        except StartError as error:
            raise StepError(f"The worker could not be started: {error}.", where=task) from error
        if (failure := explain(outcome, task, seconds=self._limits.seconds)) is not None:
            _log.debug("%s: %s", task, details(outcome))
            raise failure
        leftovers.check(writes, before, task)
        return outcome.answers[0]

    def _checked_isolation(self, task: str) -> Isolation:
        if task not in self._tasks:
            raise StepError("A worker knows no such task.", where=task, remedy=f"It knows {', '.join(self._tasks)}.")
        if task.partition(".")[0] in self._refused:
            raise StepError("This run opens no such files, and was about to.", where=task)
        how = self.isolation
        if self._required and how.kind == "none":
            raise StepError(
                f"Isolation is required, and this system allows none ({how.reason}).",
                where=task,
                remedy="Install bubblewrap, or allow user namespaces, as docs/security.md says; or do not require it.",
            )
        return how


def _resource_limits(limits: Limits) -> dict[str, int]:
    """Return the limits that the kernel holds a worker to, each process for itself."""
    result = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": _FILE_BYTES}
    if limits.memory_bytes is not None:
        result["RLIMIT_DATA"] = limits.memory_bytes
    if limits.seconds is not None:  # in case that the bot itself is stopped and cannot watch the clock
        result["RLIMIT_CPU"] = math.ceil(limits.seconds * len(os.sched_getaffinity(0))) + 1
    return result
