"""Runs a step that calibrates or searches: what of the graph room and of the measure room meets in one worker.

A search asks of hundreds of candidates whether they would pass. Starting a worker for each, and writing its answers to
disk, would take longer than running it; so the whole search is one task, and judges its candidates itself, by the same
figures and limits as the release will be judged by later, on other samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from bot.graph.steps import Judgement
from bot.measure.accuracy import Context, Pair, compare, pair_outputs
from bot.measure.arrays import Array, open_array
from bot.measure.checks import check_finite
from bot.measure.conformity import check_pictures
from bot.measure.dead_outputs import check_dead_outputs
from bot.measure.decode import DecisionPlan, parse_decision
from bot.measure.detection.labels import read_truths
from bot.measure.noise import noise
from bot.measure.preprocess import parse_image_spec
from bot.measure.sessions import open_session, run_rows
from bot.recipe_plan import GatePlan
from bot.records import Json, Record

Progress = Callable[[int, int, str], None]

BATCH = 8
"""Samples per run of a candidate whose batch is not fixed."""

THREADS = 0
"""The runtime decides: nothing of what is judged here depends on it."""


class JudgeArguments(Record):
    """What candidates are judged by.

    Attributes:
        reference: The source's model file.
        plans: The decisions, as in the recipe under `measure.accuracy`.
        gates: The artifact's limits on them, by figure.
        samples: Digests of the calibration samples.
        size: Height and width of the picture that goes in, if that is what goes in.
        objects: Per sample, what the data set says there is in it, if it does.
    """

    reference: str
    plans: dict[str, Json] = Field(default_factory=dict)
    gates: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    samples: tuple[str, ...]
    size: tuple[int, int] | None = None
    objects: tuple[tuple[dict[str, Json], ...], ...] | None = None


def step(arguments: dict[str, Any], progress: Progress) -> Json:
    """Runs one step that calibrates, and may search; see `bot.graph.tasks.step`.

    Args:
        arguments: As for `graph.step`, with `calibration`; and `inputs`, per graph input of pictures how the recipe
            prepares them; and `judge`, what `JudgeArguments` says, or None where the recipe has no gates.
        progress: Told how far it is.

    Raises:
        StepError: The calibration samples are not what the recipe's preprocessing makes, or the step fails.
    """
    from bot.graph import tasks
    from bot.measure.arguments import read_arguments

    calibration = {name: Path(path) for name, path in (arguments.get("calibration") or {}).items()}
    for name, spec in (arguments.get("inputs") or {}).items():
        check_pictures(name, parse_image_spec(name, spec), calibration[name])
    judge = None
    if arguments.get("judge") is not None:
        judge = Judge(read_arguments(JudgeArguments, arguments["judge"]), calibration)
    return tasks.step(arguments, progress, judge.evaluate if judge else None)


@dataclass
class Judge:
    """Judges candidates on calibration samples.

    Args:
        given: What they are judged by.
        feeds: The samples: .npy file by graph input.
    """

    given: JudgeArguments
    feeds: Mapping[str, Path]
    _references: dict[int, dict[str, Array]] = field(default_factory=dict)

    def evaluate(self, model: Path, margin: float, limit: int) -> Judgement:
        """Judges one candidate; see `bot.graph.steps.Evaluate`."""
        rows = self._rows(limit)
        if len(rows) not in self._references:
            self._references[len(rows)] = self._answers(Path(self.given.reference), rows)
        pairs = pair_outputs(self._references[len(rows)], self._answers(model, rows))
        reasons = [
            check.reason for check in (check_finite(pairs), check_dead_outputs(pairs)) if check.status == "failed"
        ]
        figures = self._figures(pairs, rows)
        for rule, limits in self.given.gates.items():
            if reason := _breaks(rule, GatePlan.model_validate(limits), figures.get(rule), margin):
                reasons.append(reason)
        return Judgement(not reasons, noise(pairs), "; ".join(reasons), figures)

    def _rows(self, limit: int) -> list[int]:
        count = len(self.given.samples)
        wanted = min(limit, count) if limit else count
        return [int(row) for row in np.linspace(0, count - 1, wanted).round()]

    def _answers(self, model: Path, rows: list[int]) -> dict[str, Array]:
        session = open_session(model, "cpu", THREADS)
        arrays = {name: open_array(path)[rows] for name, path in self.feeds.items()}
        parts: dict[str, list[Array]] = {}
        for _, answers in run_rows(session, arrays, BATCH, model.name):
            for name, values in answers.items():
                parts.setdefault(name, []).append(values)
        return {name: np.concatenate(values) for name, values in parts.items()}

    def _figures(self, pairs: dict[str, Pair], rows: list[int]) -> dict[str, float]:
        plans: dict[str, DecisionPlan] = {
            subject: parse_decision(subject, plan) for subject, plan in self.given.plans.items()
        }
        truths = read_truths([self.given.objects[row] for row in rows]) if self.given.objects is not None else None
        samples = tuple(self.given.samples[row] for row in rows)
        found = compare(pairs, plans, Context(samples, {"artifact": "candidate"}, self.given.size, truths))
        return {figure.key: figure.value for figure in found if figure.key in self.given.gates}


def _breaks(rule: str, gate: GatePlan, value: float | None, margin: float) -> str:
    """Why a figure does not keep its limit with room to spare; empty if it does.

    The room of a lower limit is up to 1, the best that a share can be; of an upper one, down to 0.
    """
    if value is None:
        return f"{rule} cannot be measured"
    if gate.max is not None:
        limit = gate.max * (1 - margin) if gate.max > 0 else gate.max
        return f"{rule} is {value:.4g}, above {limit:.4g}" if value > limit else ""
    least = gate.min or 0.0
    limit = least + margin * (1 - least) if 0 <= least <= 1 else least
    return f"{rule} is {value:.4g}, below {limit:.4g}" if value < limit else ""
