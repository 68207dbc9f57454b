"""How far two answers to one question may be apart without meaning anything.

A runtime adds up in another order when the batch has another size, so even the source wobbles. A candidate may wobble
ten times as much, and by half a percent of the output's range in any case: that much rounding to half precision does.
A scale that is taken from the whole batch moves answers by far more.
"""

from __future__ import annotations

import numpy as np

from bot.measure.arrays import Array

FACTOR = 10.0
FLOOR = 0.005


def largest_difference(first: Array, second: Array) -> float:
    """Largest absolute difference; infinite where shapes differ, or only one of two values is finite."""
    if first.shape != second.shape:
        return float("inf")
    left, right = np.asarray(first, np.float64), np.asarray(second, np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if not (same | (np.isfinite(left) & np.isfinite(right))).all():
        return float("inf")
    return float(np.abs(np.where(same, 0.0, left) - np.where(same, 0.0, right)).max(initial=0.0))


def tolerance(source: Array, wobble: float) -> float:
    """The difference that a candidate may show on an output.

    Args:
        source: What the source answers there.
        wobble: How far the source's own answers are apart.
    """
    values = np.asarray(source, np.float64)
    values = values[np.isfinite(values)]
    spread = float(values.max() - values.min()) if values.size else 0.0
    largest = float(np.abs(values).max()) if values.size else 0.0
    return max(FACTOR * wobble, FLOOR * spread, 1e-6 * largest)
