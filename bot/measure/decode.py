"""From a network's outputs to what a consumer reads in them: years, labels, probabilities, directions."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from bot.errors import RecipeError, StepError
from bot.measure.arrays import Array
from bot.measure.detection.plan import DETECTION_METRICS, YUNET_OUTPUTS, DetectionMetric, DetectionPlan
from bot.records import Json, Record

Values = NDArray[np.float64]

Metric = (
    Literal["mean_absolute", "max_absolute", "relative", "agreement", "flips"]
    | Literal["mean_cosine", "min_cosine", "ranking", "nearest"]
    | DetectionMetric
)

DECODERS = ("coral", "expectation", "argmax", "sigmoid", "none", "cosine", "yolo", "yunet")

_DIFFERENCES: tuple[Metric, ...] = ("mean_absolute", "max_absolute")
DEFAULT_METRICS: dict[str, tuple[Metric, ...]] = {
    "coral": _DIFFERENCES,
    "expectation": _DIFFERENCES,
    "argmax": ("agreement",),
    "sigmoid": (*_DIFFERENCES, "agreement"),
    "none": _DIFFERENCES,
    "cosine": ("mean_cosine", "min_cosine"),
    "yolo": ("kept", "lost", "new"),
    "yunet": ("kept", "lost", "new"),
}
"""What is measured where a recipe names no metrics."""

ALLOWED_METRICS: dict[str, frozenset[Metric]] = {
    "coral": frozenset({*_DIFFERENCES, "relative"}),
    "expectation": frozenset({*_DIFFERENCES, "relative"}),
    "argmax": frozenset({"agreement", "flips"}),
    "sigmoid": frozenset({*_DIFFERENCES, "relative", "agreement", "flips"}),
    "none": frozenset({*_DIFFERENCES, "relative"}),
    "cosine": frozenset({"mean_cosine", "min_cosine", "ranking", "nearest"}),
    "yolo": frozenset(DETECTION_METRICS),
    "yunet": frozenset(DETECTION_METRICS),
}
"""What can be measured of each decoding."""


class DecisionPlan(Record):
    """One decision that a consumer takes from the outputs, and how it is judged.

    Attributes:
        decode: How it is taken. `coral`: the sum of the sigmoids of the thresholds' logits (Cao, Mirjalili and Raschka,
            "Rank consistent ordinal regression for neural networks"). `expectation`: the sum of value times
            probability. `argmax`: the most probable label. `sigmoid`: a probability for each logit. `none`: the output
            as it is. `cosine`: the direction of the whole output. `yolo` and `yunet`: boxes, see `detection.heads`.
        source: Name of the output (`from` in the recipe); empty for `yunet`, which knows its twelve by name.
        of: Which upstream file has that output. It matters to the caller only, who picks the plans of one file.
        unit: Of the decoded figure.
        metrics: What is measured; empty takes the decoding's usual ones.
        labels: `argmax`: names of the classes, in order.
        values: `expectation`: what each class stands for; by default 0, 1, 2, …
        softmax: `expectation`: the output holds logits, not probabilities.
        threshold: `sigmoid`: from which probability on it is a yes.
        detection: `yolo` and `yunet`: what counts as a detection, and as the same.
        mask: Name of the input whose zeros mark positions of a sequence that do not count; empty counts all. Each
            position then counts by itself.
    """

    decode: Literal["coral", "expectation", "argmax", "sigmoid", "none", "cosine", "yolo", "yunet"]
    source: str = Field(default="", alias="from")
    of: str | None = None
    unit: str = ""
    metrics: tuple[Metric, ...] = ()
    labels: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    softmax: bool = False
    threshold: float = Field(default=0.5, gt=0.0, lt=1.0)
    detection: DetectionPlan = DetectionPlan()
    mask: str = ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that it reads."""
        return YUNET_OUTPUTS if self.decode == "yunet" else (self.source,)

    @property
    def wanted(self) -> tuple[Metric, ...]:
        """The metrics to measure."""
        return self.metrics or DEFAULT_METRICS[self.decode]


def parse_decision(subject: str, plan: Json) -> DecisionPlan:
    """Reads a decision from plain data.

    Args:
        subject: Its name, for errors.
        plan: As in the recipe under `measure.accuracy`.

    Raises:
        RecipeError: It is not understood, or asks for a metric that its decoding does not have.
    """
    where = f"measure.accuracy.{subject}"
    try:
        parsed = DecisionPlan.model_validate(plan)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"is not understood: {first['msg']}", where=f"{where}.{place}") from error
    if bool(parsed.source) == (parsed.decode == "yunet"):
        problem = "yunet takes none" if parsed.source else "Field required"
        raise RecipeError(f"is not understood: {problem}", where=f"{where}.from")
    if strange := set(parsed.metrics) - ALLOWED_METRICS[parsed.decode]:
        raise RecipeError(
            f"{parsed.decode} has no metric {', '.join(sorted(strange))}",
            where=f"{where}.metrics",
            remedy=f"It has: {', '.join(sorted(ALLOWED_METRICS[parsed.decode]))}.",
        )
    return parsed


def sigmoid(logits: Array) -> Values:
    """1 / (1 + exp(-x)) in float64, without overflow at either end."""
    values = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small)), dtype=np.float64)


def softmax(logits: Array) -> Values:
    """Softmax over the last axis in float64."""
    values = np.asarray(logits, dtype=np.float64)
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float64)


def coral(logits: Array) -> Values:
    """Sum of the sigmoids over the last axis: (N, …, K) to (N, …), in 0..K."""
    return np.asarray(sigmoid(logits).sum(axis=-1), dtype=np.float64)


def expectation(output: Array, values: tuple[float, ...] = (), *, logits: bool = False) -> Values:
    """Sum of value times probability over the last axis: (N, …, K) to (N, …).

    Args:
        output: Probabilities, or logits.
        values: K values; empty means 0, 1, …, K - 1.
        logits: Take the softmax first.

    Raises:
        StepError: There is not one value for each class.
    """
    classes = output.shape[-1]
    weights = np.asarray(values or range(classes), dtype=np.float64)
    if len(weights) != classes:
        raise StepError(f"the recipe names {len(weights)} values for an output of {classes} classes")
    probabilities = softmax(output) if logits else np.asarray(output, dtype=np.float64)
    return np.asarray(probabilities @ weights, dtype=np.float64)


def argmax(output: Array, labels: tuple[str, ...] = ()) -> NDArray[np.int64]:
    """Index of the largest value over the last axis; the first of equals.

    Raises:
        StepError: There are labels, but not one for each class.
    """
    if labels and len(labels) != output.shape[-1]:
        raise StepError(f"the recipe names {len(labels)} labels for an output of {output.shape[-1]} classes")
    return np.asarray(np.argmax(output, axis=-1), dtype=np.int64)


def decode(plan: DecisionPlan, output: Array) -> Values:
    """The figures that a decision is about, one row per sample, for all decodings that give figures."""
    if plan.decode == "coral":
        return coral(output)
    if plan.decode == "expectation":
        return expectation(output, plan.values, logits=plan.softmax)
    if plan.decode == "sigmoid":
        return sigmoid(output)
    return np.asarray(output, dtype=np.float64)


def choose(plan: DecisionPlan, output: Array) -> NDArray[np.int64]:
    """The choices that a decision comes to, one row per sample: class indices, or 0 and 1."""
    if plan.decode == "sigmoid":
        return np.asarray(sigmoid(output) >= plan.threshold, dtype=np.int64)
    return argmax(output, plan.labels)


def cosines(first: Array, second: Array) -> Values:
    """The cosine between the rows of two arrays, each row flattened: (N, …) and (N, …) to (N,).

    Two rows of nothing but zeros point the same way; one of them alone points nowhere, which counts as 0.
    """
    rows = len(first)
    left = np.asarray(first, dtype=np.float64).reshape(rows, -1)
    right = np.asarray(second, dtype=np.float64).reshape(rows, -1)
    # Scaled by the largest magnitude first, so that no square overflows or vanishes.
    left, right = _scaled(left), _scaled(right)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    both_zero = ~left.any(axis=1) & ~right.any(axis=1)
    ratio = np.divide((left * right).sum(axis=1), norms, out=np.zeros(rows), where=norms > 0)
    return np.asarray(np.where(both_zero, 1.0, np.clip(ratio, -1.0, 1.0)), dtype=np.float64)


def _scaled(rows: Values) -> Values:
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0), dtype=np.float64)
