"""What every stage is given: the Hub, the work folder, the worker, and somebody who listens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.progress import Reporter, Silent
from bot.records import Json
from bot.work import WorkFolder

if TYPE_CHECKING:
    from bot.environments import Environment
    from bot.hub.client import Hub
    from bot.worker import Worker

RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "numpy", "pillow")
"""Packages whose version can change what is measured."""


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Context:
    """The surroundings of a run.

    Attributes:
        hub: Where upstream is read from and the target lies.
        work: Finished pieces of work.
        worker: Runs all that touches untrusted bytes.
        reporter: Is told what happens.
        threads: For the runtime.
        require: Providers that must be measured, though a recipe calls them optional.
        timing_seconds: The time that the timings of one artifact may take.
    """

    hub: Hub
    work: WorkFolder
    worker: Worker
    reporter: Reporter = field(default_factory=Silent)
    threads: int = field(default_factory=usable_cores)
    require: frozenset[str] = frozenset()
    timing_seconds: float = 20.0

    def call(
        self,
        task: str,
        arguments: Mapping[str, Json],
        *,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
        extra_path: Sequence[Path] = (),
        environment: Environment | None = None,
    ) -> dict[str, Json]:
        """Runs one task in the worker, its progress going to the reporter.

        Raises:
            BotError: The task failed, or its process did.
        """
        answer = self.worker.call(
            task,
            dict(arguments),
            reads=reads,
            writes=writes,
            on_progress=self.reporter.update,
            extra_path=extra_path,
            interpreter=environment.interpreter if environment else None,
        )
        if not isinstance(answer, dict):
            raise TypeError(f"{task} answered with {type(answer).__name__}")
        return answer
