"""Which detections of two networks are the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bot.measure.detection.boxes import Detections, Indices, by_score, overlaps


@dataclass(frozen=True)
class Matches:
    """Pairs of detections that are the same, and those without a partner.

    Attributes:
        reference: Index of each pair in the reference.
        candidate: Index of each pair in the candidate.
        lost: Indices in the reference that found no partner.
        new: Indices in the candidate that found none.
    """

    reference: Indices
    candidate: Indices
    lost: Indices
    new: Indices


def match(reference: Detections, candidate: Detections, overlap: float) -> Matches:
    """Pairs detections greedily: the candidate's best score first, each with the free box that it overlaps most.

    Args:
        reference: What should be found.
        candidate: What was found.
        overlap: Least intersection over union of a pair; pairs are of one class.

    Returns:
        The pairs. The order in which either is given does not matter.
    """
    first, second = by_score(reference), by_score(candidate)
    left, right = reference.take(first), candidate.take(second)
    shared = np.where(left.classes[:, None] == right.classes[None, :], overlaps(left.boxes, right.boxes), 0.0)
    pairs: list[tuple[int, int]] = []
    free = np.ones(len(left), dtype=bool)
    for column in range(len(right)):
        usable = np.where(free, shared[:, column], 0.0)
        if usable.size and usable.max() >= overlap:
            row = int(usable.argmax())
            free[row] = False
            pairs.append((row, column))
    rows = np.asarray([row for row, _ in pairs], dtype=np.int64)
    columns = np.asarray([column for _, column in pairs], dtype=np.int64)
    return Matches(
        reference=first[rows],
        candidate=second[columns],
        lost=first[np.flatnonzero(free)],
        new=second[np.setdiff1d(np.arange(len(right)), columns)],
    )
