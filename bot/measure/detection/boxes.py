"""Boxes, how much two of them overlap, and non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Detections:
    """What a detector found in one picture.

    Attributes:
        boxes: (N, 4) float64: left, top, right, bottom, in pixels of the network's input.
        scores: (N,) float64, 0..1.
        classes: (N,) int64.
        points: (N, K, 2) float64: landmarks in the same pixels; K is 0 where the network gives none.
    """

    boxes: Floats
    scores: Floats
    classes: Indices
    points: Floats

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Detections:
        """Some of them, in the order of the index."""
        return Detections(self.boxes[index], self.scores[index], self.classes[index], self.points[index])

    def at_least(self, score: float) -> Detections:
        """Those of at least this score."""
        return self.take(self.scores >= score)


def detections(
    boxes: NDArray[np.floating],
    scores: NDArray[np.floating],
    classes: NDArray[np.integer],
    points: Floats | None = None,
) -> Detections:
    """Detections from arrays of any float and integer type; without points where there are none."""
    count = len(scores)
    return Detections(
        np.asarray(boxes, np.float64).reshape(count, 4),
        np.asarray(scores, np.float64).reshape(count),
        np.asarray(classes, np.int64).reshape(count),
        np.zeros((count, 0, 2)) if points is None else np.asarray(points, np.float64),
    )


def overlaps(first: Floats, second: Floats) -> Floats:
    """Intersection over union of every pair of boxes: (N, 4) and (M, 4) to (N, M).

    Boxes are left, top, right, bottom. One without an area overlaps nothing.
    """
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0.0, None).prod(axis=2)
    union = areas(first)[:, None] + areas(second)[None, :] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0), dtype=np.float64)


def areas(boxes: Floats) -> Floats:
    """Area of each box; 0 where right is left of left, or bottom above top."""
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=1), dtype=np.float64)


def by_score(found: Detections) -> Indices:
    """The order by falling score. Equal scores are ordered by class and place, so that no network's order counts."""
    keys = (*reversed(found.boxes.T), found.classes, -found.scores)
    return np.asarray(np.lexsort(keys), dtype=np.int64)


def suppress(found: Detections, overlap: float, limit: int) -> Detections:
    """Greedy non-maximum suppression, each class for itself.

    The best box stays, those of its class that overlap it by more than the limit go, and so on.

    Args:
        found: Detections in any order.
        overlap: Intersection over union, 0..1, above which the box of the lower score goes.
        limit: How many stay at most, of all classes together.

    Returns:
        What stays, by falling score.
    """
    ordered = found.take(by_score(found))
    left = np.arange(len(ordered))
    kept: list[int] = []
    while left.size and len(kept) < limit:
        best, others = left[0], left[1:]
        kept.append(int(best))
        same = ordered.classes[others] == ordered.classes[best]
        shared = overlaps(ordered.boxes[best : best + 1], ordered.boxes[others])[0]
        left = others[~(same & (shared > overlap))]
    return ordered.take(np.asarray(kept, dtype=np.int64))
