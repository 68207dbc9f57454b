"""What became of a detector's detections: the figures of a candidate against its source, and against labels.

A reader of a detector asks which of its detections are still there, not how far two tensors lie apart: eight bits can
leave the cosine at 0.999995 and find nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bot.measure.detection.average_precision import THRESHOLDS, Truth, mean_average_precision, truth_of
from bot.measure.detection.boxes import Detections, Floats, overlaps
from bot.measure.detection.matching import Matches, match
from bot.measure.detection.plan import DetectionPlan

FLOOR = 0.01
"""Detections from this score on go into the precision over recall; COCO's tools go down to 0.001."""


@dataclass(frozen=True)
class Comparison:
    """The detections of two networks in the same pictures.

    Attributes:
        plan: What counts as a detection, and as the same.
        source: Per picture, what the source finds from `FLOOR` on.
        candidate: Per picture, what the candidate finds.
        truths: Per picture, what there is by the data set's labels; None where it has none.
    """

    plan: DetectionPlan
    source: Sequence[Detections]
    candidate: Sequence[Detections]
    truths: Sequence[Truth] | None = None

    @cached_property
    def pairs(self) -> list[tuple[Detections, Detections, Matches]]:
        """Per picture, the detections that a consumer takes, and which of them are the same."""
        found = []
        for source, candidate in zip(self.source, self.candidate, strict=True):
            first, second = source.at_least(self.plan.score), candidate.at_least(self.plan.score)
            found.append((first, second, match(first, second, self.plan.match)))
        return found

    @property
    def reference(self) -> int:
        """How many detections the source has."""
        return sum(len(first) for first, _, _ in self.pairs)

    @property
    def lost(self) -> list[int]:
        """Per picture, how many of the source's are gone."""
        return [len(matches.lost) for _, _, matches in self.pairs]

    @property
    def new(self) -> list[int]:
        """Per picture, how many the source does not have."""
        return [len(matches.new) for _, _, matches in self.pairs]

    @property
    def has_points(self) -> bool:
        """Whether the network gives landmarks."""
        return any(first.points.shape[1] for first, _, _ in self.pairs)

    def score_drifts(self) -> list[Floats]:
        """Per picture and pair, the absolute difference of the scores."""
        return self._each(lambda first, second: np.abs(first.scores - second.scores))

    def box_drifts(self) -> list[Floats]:
        """Per picture and pair, how far the farthest of the box's four edges moved, in pixels."""
        return self._each(lambda first, second: np.abs(first.boxes - second.boxes).max(axis=1, initial=0.0))

    def point_drifts(self) -> list[Floats]:
        """Per picture and pair, how far the farthest landmark moved, in pixels."""
        return self._each(
            lambda first, second: np.linalg.norm(first.points - second.points, axis=2).max(axis=1, initial=0.0)
        )

    def pair_overlaps(self) -> list[Floats]:
        """Per picture and pair, intersection over union of its two boxes."""
        return self._each(lambda first, second: np.diagonal(overlaps(first.boxes, second.boxes)))

    def _each(self, distance: Callable[[Detections, Detections], Floats]) -> list[Floats]:
        return [
            np.asarray(distance(first.take(matches.reference), second.take(matches.candidate)), np.float64)
            for first, second, matches in self.pairs
        ]

    def map_to_source(self) -> float | None:
        """Mean average precision with the source's detections as what there is."""
        truths = [truth_of(first) for first, _, _ in self.pairs]
        return mean_average_precision(truths, self.candidate, (self.plan.match,))

    def map_to_labels(self, found: Sequence[Detections], thresholds: Sequence[float] = ()) -> float | None:
        """Mean average precision by the data set's labels; None where it has none."""
        if self.truths is None:
            return None
        return mean_average_precision(self.truths, found, thresholds or (self.plan.match,))


@dataclass(frozen=True)
class Figure:
    """One figure, not yet a Measurement.

    Attributes:
        metric: Its name.
        value: The figure.
        unit: Of it.
        method: How it was taken; `{against}` stands for what it was compared with.
        per_picture: The figure of each picture, largest is worst; empty where there is none.
        distances: What a histogram is drawn of; empty where there is none.
    """

    metric: str
    value: float
    method: str
    unit: str = ""
    per_picture: tuple[float, ...] = ()
    distances: tuple[float, ...] = ()


def figures(comparison: Comparison, wanted: Sequence[str]) -> list[Figure]:
    """Those of the figures that are wanted and can be taken, in the order in which they are wanted.

    Shares and precisions are not taken where the source finds nothing; drifts are not where no detection is kept; what
    is judged by labels is not where there are none.
    """
    found = {figure.metric: figure for figure in [*_counts(comparison), *_drifts(comparison), *_precisions(comparison)]}
    return [found[metric] for metric in wanted if metric in found]


def _counts(comparison: Comparison) -> list[Figure]:
    plan = comparison.plan
    lost, new, reference = comparison.lost, comparison.new, comparison.reference
    same = f"overlapping by {plan.match:g} or more, both scored {plan.score:g} or more"
    found = [
        Figure("lost", sum(lost), f"detections of {{against}} without a partner {same}", per_picture=_floats(lost)),
        Figure("new", sum(new), f"detections that {{against}} does not have, {same}", per_picture=_floats(new)),
        Figure("found", reference, "detections of {against}"),
    ]
    if reference:
        share = 1 - sum(lost) / reference
        method = f"share of the detections of {{against}} that have a partner {same}"
        found.append(Figure("kept", share, method, per_picture=_floats(lost)))
    return found


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _drifts(comparison: Comparison) -> list[Figure]:
    kinds = [
        ("score_drift", "", "absolute difference of the scores", comparison.score_drifts()),
        ("box_drift", "pixel", "distance that the farthest edge of a box moved", comparison.box_drifts()),
        ("point_drift", "pixel", "distance that the farthest landmark moved", comparison.point_drifts()),
    ]
    found = []
    for name, unit, what, per_picture in kinds:
        values = np.concatenate(per_picture) if per_picture else np.zeros(0)
        if not values.size or (name == "point_drift" and not comparison.has_points):
            continue
        worst = tuple(float(each.max(initial=0.0)) for each in per_picture)
        drawn = tuple(float(value) for value in values)
        found += [
            Figure(f"mean_{name}", float(values.mean()), f"mean {what}, over the kept detections", unit, worst),
            Figure(f"max_{name}", float(values.max()), f"largest {what}, of the kept detections", unit, worst, drawn),
        ]
    shared = [*comparison.pair_overlaps()]
    values = np.concatenate(shared) if shared else np.zeros(0)
    if values.size:
        worst = tuple(float(1 - each.min(initial=1.0)) for each in shared)
        what = "intersection over union of a detection with its partner"
        found += [
            Figure("mean_overlap", float(values.mean()), f"mean {what}", per_picture=worst),
            Figure("min_overlap", float(values.min()), f"smallest {what}", per_picture=worst),
        ]
    return found


def _precisions(comparison: Comparison) -> list[Figure]:
    plan = comparison.plan
    found = []
    if (value := comparison.map_to_source()) is not None:
        method = (
            f"mean average precision at an overlap of {plan.match:g}, the detections of {{against}} being the truth"
        )
        found.append(Figure("map", value, method))
    after, before = comparison.map_to_labels(comparison.candidate), comparison.map_to_labels(comparison.source)
    if after is None or before is None:
        return found
    labels = f"mean average precision at an overlap of {plan.match:g} by the data set's labels"
    strict = "mean average precision by the data set's labels, over overlaps from 0.5 to 0.95"
    found += [
        Figure("label_map", after, labels),
        Figure("source_label_map", before, f"{labels}, of {{against}}"),
        Figure("label_map_change", after - before, f"{labels}, less that of {{against}}"),
    ]
    if (value := comparison.map_to_labels(comparison.candidate, THRESHOLDS)) is not None:
        found.append(Figure("label_map_coco", value, strict))
    return found
