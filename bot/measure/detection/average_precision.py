"""Mean average precision, as the COCO challenge defines it.

For each class, detections of all pictures are taken by falling score; one is right if it overlaps a true box of the
class that no better one took. Precision is made falling from right to left and averaged at 101 levels of recall. The
mean is over the classes that the truth has (Lin et al., "Microsoft COCO: common objects in context", and the page on
the challenge's evaluation). True boxes that are marked to be ignored are neither missed nor found: what is matched to
one does not count. At most `LIMIT` detections of each class and picture count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.measure.detection.boxes import Detections, Floats, overlaps

LEVELS = np.linspace(0.0, 1.0, 101)
THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Overlaps over which COCO's main figure is a mean."""

LIMIT = 100


@dataclass(frozen=True)
class Truth:
    """What there is to be found in one picture.

    Attributes:
        boxes: (N, 4): left, top, right, bottom, in pixels of the network's input.
        classes: (N,).
        ignore: (N,): boxes that need not be found and do not count when they are.
    """

    boxes: Floats
    classes: NDArray[np.int64]
    ignore: NDArray[np.bool_]


def truth_of(found: Detections) -> Truth:
    """Another network's detections as what there is to be found."""
    return Truth(found.boxes, found.classes, np.zeros(len(found), dtype=bool))


def mean_average_precision(
    truths: Sequence[Truth], found: Sequence[Detections], thresholds: Sequence[float] = (0.5,)
) -> float | None:
    """The mean over classes and thresholds; None where there is nothing to be found.

    Args:
        truths: Per picture, what there is.
        found: Per picture, in the same order, what was found.
        thresholds: Overlaps from which on a detection is right.
    """
    kinds = sorted({int(kind) for truth in truths for kind in truth.classes[~truth.ignore]})
    if not kinds:
        return None
    values = [average_precision(truths, found, kind, threshold) for kind in kinds for threshold in thresholds]
    return float(np.mean(values))


def average_precision(truths: Sequence[Truth], found: Sequence[Detections], kind: int, threshold: float) -> float:
    """The average precision of one class at one overlap."""
    scores, right, counted = [], [], []
    total = 0
    for truth, detections in zip(truths, found, strict=True):
        of_kind = truth.classes == kind
        total += int((of_kind & ~truth.ignore).sum())
        chosen = np.flatnonzero(detections.classes == kind)
        chosen = chosen[np.argsort(-detections.scores[chosen], kind="stable")][:LIMIT]
        hits, counts = _judge(truth.boxes[of_kind], truth.ignore[of_kind], detections.boxes[chosen], threshold)
        scores.append(detections.scores[chosen])
        right.append(hits)
        counted.append(counts)
    if not total:
        return 0.0
    counts = np.concatenate(counted)
    order = np.argsort(-np.concatenate(scores)[counts], kind="stable")
    return _area(np.concatenate(right)[counts][order], total)


def _judge(
    boxes: Floats, ignore: NDArray[np.bool_], found: Floats, threshold: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Per detection, by falling score: whether it is right, and whether it counts at all.

    As COCO has it, a true box is preferred to an ignored one, however much it overlaps less.
    """
    shared = overlaps(found, boxes)
    free = np.ones(len(boxes), dtype=bool)
    right, counts = np.zeros(len(found), dtype=bool), np.ones(len(found), dtype=bool)
    for index in range(len(found)):
        for ignored in (False, True):
            usable = np.where(free & (ignore == ignored), shared[index], -1.0)
            if usable.size and usable.max() >= threshold:
                free[int(usable.argmax())] = False
                right[index], counts[index] = not ignored, not ignored
                break
    return right, counts


def _area(right: NDArray[np.bool_], total: int) -> float:
    """The area under the falling curve of precision over recall."""
    hits = np.cumsum(right)
    recall = hits / total
    precision = hits / np.arange(1, len(right) + 1)
    falling = np.maximum.accumulate(precision[::-1])[::-1] if len(right) else precision
    place = np.searchsorted(recall, LEVELS, side="left")
    values = np.zeros(len(LEVELS))
    inside = place < len(falling)
    values[inside] = falling[place[inside]]
    return float(values.mean())
