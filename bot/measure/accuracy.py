"""Compares what two models answered on the same samples, per output and per decision.

Only differences are told, and a sample only by its digest: never what a network says of one person. A figure that NaN
or infinity stands in the way of is not measured at all, since a figure over the rest would flatter the model; the
number of such values is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import Array
from bot.measure.decode import DecisionPlan, Values, choose, cosines, decode
from bot.measure.detection.average_precision import Truth
from bot.measure.detection.boxes import Detections
from bot.measure.detection.figures import FLOOR, Comparison, figures
from bot.measure.detection.heads import read
from bot.measure.detection.plan import DETECTORS
from bot.measure.embeddings import nearest_agreement, ranking_agreement
from bot.records import Histogram, Measurement

BLOCK = 4_000_000
"""Elements that are compared at a time: outputs are files, and need not fit into memory."""

BINS = 20

_ABSOLUTE = "absolute difference from the answer of {against}, per sample, decoded in float64"


@dataclass(frozen=True)
class Pair:
    """The same output of two models: arrays of one shape, one row per sample."""

    name: str
    source: Array
    candidate: Array

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """The rows, a bounded number at a time."""
        per_row = max(int(np.prod(self.source.shape[1:], dtype=np.int64)), 1)
        step = max(BLOCK // per_row, 1)
        for start in range(0, len(self.source), step):
            yield self.source[start : start + step], self.candidate[start : start + step]


@dataclass(frozen=True)
class Differences:
    """How far two models are apart on each sample.

    Attributes:
        largest: Largest absolute difference within each sample.
        mean: Mean absolute difference within each sample.
        squares: Sum of the squared differences, over all samples.
        reference: Sum of the squares of the source's values.
        comparable: Nowhere is one of the two finite and the other not, or both not finite in different ways.
    """

    largest: Values
    mean: Values
    squares: float
    reference: float
    comparable: bool


@dataclass(frozen=True)
class Context:
    """What all figures of one comparison have in common.

    Attributes:
        samples: Digests of the samples, in the order of the rows.
        common: Fields of Measurement: artifact, against, provider, device, runtime, batch, threads, samples_digest.
        size: Height and width of the picture that goes in; None where what goes in is not one picture.
        truths: Per sample, what there is to be found in it; None where the data set says nothing of it.
    """

    samples: tuple[str, ...]
    common: dict[str, Any]
    size: tuple[int, int] | None = None
    truths: tuple[Truth, ...] | None = None

    def figure(self, subject: str, metric: str, value: float, method: str, **more: Any) -> Measurement:
        """One measurement."""
        return Measurement(
            subject=subject,
            metric=metric,
            value=float(value),
            method=method.format(against=self.common.get("against") or "the source"),
            samples=len(self.samples),
            **self.common,
            **more,
        )

    def sample(self, index: int) -> str:
        """Digest of one sample."""
        return self.samples[index]


def pair_outputs(source: dict[str, Array], candidate: dict[str, Array]) -> dict[str, Pair]:
    """Puts the outputs of two models side by side.

    Raises:
        StepError: An output is missing or has another shape.
    """
    pairs = {}
    for name, array in source.items():
        if name not in candidate:
            raise StepError(f"the output {name} is missing", remedy="A conversion must keep every output's name.")
        other = candidate[name]
        if array.shape != other.shape or not array.shape:
            raise StepError(f"the output {name} has shape {list(other.shape)}; the source's has {list(array.shape)}")
        pairs[name] = Pair(name, array, other)
    return pairs


def compare(
    pairs: dict[str, Pair],
    plans: dict[str, DecisionPlan],
    context: Context,
    masks: dict[str, Array] | None = None,
) -> list[Measurement]:
    """All figures of a candidate against its source.

    Args:
        pairs: The outputs, by name.
        plans: The decisions, by subject.
        context: What the figures have in common.
        masks: What was fed into the inputs that plans name as their masks: [samples, positions].

    Returns:
        For each output the number of values that are not finite, and its differences; for each decision the metrics
        that its plan wants.

    Raises:
        StepError: A plan reads an output that is not there, or an output does not have a row per sample.
    """
    for pair in pairs.values():
        if len(pair.source) != len(context.samples):
            raise StepError(f"the output {pair.name} has {len(pair.source)} rows for {len(context.samples)} samples")
    found = []
    total = 0
    for pair in pairs.values():
        count = sum(int(np.count_nonzero(~np.isfinite(block))) for _, block in pair.blocks())
        total += count
        subject = f"output:{pair.name}"
        found.append(context.figure(subject, "non_finite_values", count, _NON_FINITE))
        found += _difference_figures(
            subject, "", ("max_absolute", "mean_absolute", "relative"), _differences(pair, _raw), context
        )
    found.insert(0, context.figure("finite", "non_finite_values", total, _NON_FINITE))
    for subject, plan in plans.items():
        if missing := [name for name in plan.outputs if name not in pairs]:
            raise StepError(
                f"the decision {subject} reads the output {missing[0]}, which is not there",
                remedy=f"There are: {', '.join(pairs)}.",
            )
        if plan.decode in DETECTORS:
            found += _detection_figures(subject, plan, [pairs[name] for name in plan.outputs], context)
        elif plan.mask:
            found += _masked_decision(subject, plan, pairs[plan.source], context, (masks or {}).get(plan.mask))
        else:
            found += _decision(subject, plan, pairs[plan.source], context)
    return found


def _masked_decision(
    subject: str, plan: DecisionPlan, pair: Pair, context: Context, mask: Array | None
) -> list[Measurement]:
    """The figures of a decision on sequences, each position that its mask keeps being judged by itself."""
    if mask is None or mask.shape != pair.source.shape[:2]:
        found = "none" if mask is None else list(mask.shape)
        raise StepError(
            f"the decision {subject} has the mask {plan.mask} of shape {found}, and the output {plan.source} has "
            f"{list(pair.source.shape)}",
            remedy="A mask has a row per sample, and an entry for each position of the output's second axis.",
        )
    kept = np.asarray(mask) != 0
    rows = np.nonzero(kept)[0]
    if not len(rows):
        return []
    chosen = Pair(pair.name, np.asarray(pair.source)[kept], np.asarray(pair.candidate)[kept])
    inner = replace(context, samples=tuple(context.samples[row] for row in rows))
    where = f", over the {len(rows)} positions that {plan.mask} keeps"
    return [
        figure.model_copy(update={"samples": len(context.samples), "method": figure.method + where})
        for figure in _decision(subject, plan, chosen, inner)
    ]


_NON_FINITE = "number of values that are NaN or infinite, over all samples"


def _raw(block: Array) -> Values:
    return np.asarray(block, dtype=np.float64)


def _decision(subject: str, plan: DecisionPlan, pair: Pair, context: Context) -> list[Measurement]:
    figures: list[Measurement] = []
    if plan.decode == "cosine":
        return _cosine_figures(subject, plan, pair, context)
    if {"agreement", "flips"} & set(plan.wanted):
        figures += _choice_figures(subject, plan, pair, context)
    if {"mean_absolute", "max_absolute", "relative"} & set(plan.wanted):
        differences = _differences(pair, lambda block: decode(plan, block))
        figures += _difference_figures(subject, plan.unit, plan.wanted, differences, context)
    return figures


def _differences(pair: Pair, reading: Callable[[Array], Values]) -> Differences:
    largest, mean = [], []
    squares = reference = 0.0
    comparable = True
    for source_block, candidate_block in pair.blocks():
        with np.errstate(invalid="ignore", over="ignore"):
            source, candidate = reading(source_block), reading(candidate_block)
        same = (source == candidate) | (np.isnan(source) & np.isnan(candidate))
        finite = np.isfinite(source) & np.isfinite(candidate)
        comparable = comparable and bool((same | finite).all())
        apart = np.abs(np.where(same | ~finite, 0.0, candidate) - np.where(same | ~finite, 0.0, source))
        rows = apart.reshape(len(apart), -1)
        largest.append(rows.max(axis=1, initial=0.0))
        mean.append(rows.mean(axis=1) if rows.shape[1] else np.zeros(len(rows)))
        squares += float(np.square(apart).sum())
        reference += float(np.square(np.where(np.isfinite(source), source, 0.0)).sum())
    return Differences(np.concatenate(largest), np.concatenate(mean), squares, reference, comparable)


def _difference_figures(
    subject: str, unit: str, wanted: tuple[str, ...], differences: Differences, context: Context
) -> list[Measurement]:
    if not differences.comparable or not np.isfinite(differences.squares):
        return []
    worst = context.sample(int(np.argmax(differences.largest)))
    histogram = _histogram(differences.largest)
    figures = []
    for metric in wanted:
        if metric == "mean_absolute":
            value, method = float(differences.mean.mean()), f"mean {_ABSOLUTE}"
        elif metric == "max_absolute":
            value, method = float(differences.largest.max()), f"largest {_ABSOLUTE}"
        elif metric == "relative" and differences.reference > 0:
            value = float(np.sqrt(differences.squares / differences.reference))
            method = "Euclidean norm of all differences, divided by that of all answers of {against}"
            figures.append(context.figure(subject, metric, value, method, worst_sample=worst))
            continue
        else:
            continue
        figures.append(
            context.figure(subject, metric, value, method, unit=unit, worst_sample=worst, histogram=histogram)
        )
    return figures


def _histogram(largest: Values) -> Histogram | None:
    """The samples' largest differences in equal steps from 0; None where there is no difference to show."""
    top = float(largest.max(initial=0.0))
    if not top > 0 or not np.isfinite(top):
        return None
    edges = np.linspace(0.0, top, BINS + 1)
    if not (np.diff(edges) > 0).all():
        return None
    counts, _ = np.histogram(largest, bins=edges)
    return Histogram(edges=tuple(float(edge) for edge in edges), counts=tuple(int(count) for count in counts))


def _choice_figures(subject: str, plan: DecisionPlan, pair: Pair, context: Context) -> list[Measurement]:
    flipped, total, comparable = [], 0, True
    for source, candidate in pair.blocks():
        comparable = comparable and not bool(np.isnan(source).any() or np.isnan(candidate).any())
        apart = choose(plan, source) != choose(plan, candidate)
        flipped.append(apart.reshape(len(apart), -1).sum(axis=1))
        total += apart.size
    flips = np.concatenate(flipped)
    if not comparable or not total:
        return []
    worst = context.sample(int(np.argmax(flips))) if flips.any() else ""
    number = int(flips.sum())
    figures = []
    if "agreement" in plan.wanted:
        method = "share of the decisions that are those of {against}"
        figures.append(context.figure(subject, "agreement", 1 - number / total, method, worst_sample=worst))
    if "flips" in plan.wanted:
        method = "number of decisions that differ from those of {against}"
        figures.append(context.figure(subject, "flips", number, method, worst_sample=worst))
    return figures


def _detection_figures(subject: str, plan: DecisionPlan, pairs: list[Pair], context: Context) -> list[Measurement]:
    if not all(np.isfinite(candidate).all() for pair in pairs for _, candidate in pair.blocks()):
        return []
    comparison = Comparison(
        plan.detection,
        _detections(plan, {pair.name: pair.source for pair in pairs}, context),
        _detections(plan, {pair.name: pair.candidate for pair in pairs}, context),
        context.truths,
    )
    found = []
    for figure in figures(comparison, plan.wanted):
        worst = int(np.argmax(figure.per_picture)) if any(figure.per_picture) else None
        found.append(
            context.figure(
                subject,
                figure.metric,
                figure.value,
                figure.method,
                unit=figure.unit,
                worst_sample="" if worst is None else context.sample(worst),
                histogram=_histogram(np.asarray(figure.distances)) if figure.distances else None,
            )
        )
    return found


def _detections(plan: DecisionPlan, outputs: dict[str, Array], context: Context) -> list[Detections]:
    """Per sample, what is found in it, read sample by sample: outputs are files, and need not fit into memory."""
    found = []
    for row in range(len(context.samples)):
        one = {name: np.asarray(array[row : row + 1]) for name, array in outputs.items()}
        found += read(plan.decode, one, plan.detection, context.size, min(FLOOR, plan.detection.score))
    return found


def _cosine_figures(subject: str, plan: DecisionPlan, pair: Pair, context: Context) -> list[Measurement]:
    parts, comparable = [], True
    for source, candidate in pair.blocks():
        comparable = comparable and bool(np.isfinite(source).all() and np.isfinite(candidate).all())
        if comparable:
            parts.append(cosines(source, candidate))
    if not comparable:
        return []
    values = np.concatenate(parts)
    worst = context.sample(int(np.argmin(values)))
    cosine = "cosine between the output and that of {against}, per sample"
    found = []
    for metric in plan.wanted:
        if metric == "mean_cosine":
            found.append(context.figure(subject, metric, float(values.mean()), f"mean {cosine}", worst_sample=worst))
        elif metric == "min_cosine":
            found.append(context.figure(subject, metric, float(values.min()), f"smallest {cosine}", worst_sample=worst))
        elif metric == "ranking" and len(values) > 2:
            found.append(context.figure(subject, metric, ranking_agreement(pair.source, pair.candidate), _RANKING))
        elif metric == "nearest" and len(values) > 2:
            found.append(context.figure(subject, metric, nearest_agreement(pair.source, pair.candidate), _NEAREST))
    return found


_RANKING = (
    "Spearman correlation between the order in which a sample's cosines put all others and the order by {against}, "
    "mean over the samples"
)
_NEAREST = "share of the samples whose nearest other one, by the cosine, is the same as by {against}"
