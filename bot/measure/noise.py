"""How far a candidate's outputs are from the source's, in one number: what a search ranks candidates by."""

from __future__ import annotations

import numpy as np

from bot.measure.accuracy import Pair
from bot.measure.dead_outputs import groups_of


def noise(pairs: dict[str, Pair]) -> float:
    """Mean over the outputs of the relative error of the worst group of channels.

    A group's relative error is the Euclidean norm of the difference, divided by that of the source's deviation from its
    mean there: 0 for no difference, 1 for an answer that knows nothing but the mean. Groups are those of like
    magnitude: boxes in pixels do not outweigh scores.
    """
    return float(np.mean([_worst(pair) for pair in pairs.values()])) if pairs else 0.0


def _worst(pair: Pair) -> float:
    worst = 0.0
    for source, candidate in groups_of(pair):
        finite = np.isfinite(source) & np.isfinite(candidate)
        if not finite.all() and np.isfinite(source[~finite]).any():
            return float("inf")
        first, second = source[finite], candidate[finite]
        if not first.size:
            continue
        deviation = float(np.linalg.norm(first - first.mean()) or np.linalg.norm(first))
        apart = float(np.linalg.norm(second - first))
        worst = max(worst, apart / deviation if deviation else float(apart > 0))
    return worst
