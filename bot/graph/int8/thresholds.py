"""Where to clip a tensor's values before they are put on a grid of 256 steps.

`minmax` clips nothing. `percentile` cuts the outermost share of the values off. `entropy` clips where the distribution
on the grid tells the least about the original one wrong, as Migacz describes it ("8-bit inference with TensorRT", GTC
2017). The last two read a histogram whose range is that of the values over all samples, so that neither the order of
the samples nor how many are looked at at a time plays a part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

BINS = 2048
"""Steps of a histogram from the smallest to the largest value."""

LEVELS = 128
"""Steps of the grid on one side of zero."""

_CHUNK = 1 << 18
"""Values that are sorted into a histogram at a time."""

SMOOTHING = 1e-4
"""The share that an empty place of a distribution is given, so that no logarithm is infinite."""


def histogram(values: NDArray[np.floating], low: float, high: float) -> Counts:
    """How many finite values lie in each of the `BINS` steps from low to high, which bound them all."""
    if not high > low:
        return np.zeros(BINS, np.int64)
    flat = values.reshape(-1)
    total = np.zeros(BINS, np.int64)
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK].astype(np.float64)
        chunk = chunk[np.isfinite(chunk)]
        place = ((chunk - low) * (BINS / (high - low))).astype(np.int64)
        total += np.bincount(np.clip(place, 0, BINS - 1), minlength=BINS)
    return total


def percentile_range(counts: Counts, low: float, high: float, percentile: float) -> tuple[float, float]:
    """The range that holds this share of all values, as much being cut off at either end.

    Args:
        counts: A histogram from low to high.
        low: The smallest value.
        high: The largest value.
        percentile: Share in percent, above 50 and up to 100.
    """
    total = int(counts.sum())
    if not total or percentile >= 100:
        return low, high
    edges = np.linspace(low, high, len(counts) + 1)
    cut = total * (100.0 - percentile) / 200.0
    rising = np.cumsum(counts)
    first = int(np.searchsorted(rising, cut, side="right"))
    last = len(counts) - int(np.searchsorted(np.cumsum(counts[::-1]), cut, side="right"))
    return (float(edges[first]), float(edges[last])) if first < last else (low, high)


def entropy_range(counts: Counts, low: float, high: float) -> tuple[float, float]:
    """The range that loses the least information on a grid of `LEVELS` steps.

    Magnitudes are clipped, alike on both sides of zero; the range is never wider than the values.

    Args:
        counts: A histogram from low to high.
        low: The smallest value.
        high: The largest value.
    """
    top = max(-low, high)
    if not counts.any() or top <= 0:
        return low, high
    magnitudes = _magnitudes(counts, low, high, top)
    if not magnitudes.any():
        return low, high
    limits = range(LEVELS, len(magnitudes) + 1, 8)
    losses = [_divergence(magnitudes, limit) for limit in limits]
    limit = limits[int(np.argmin(losses))] / len(magnitudes) * top
    return max(low, -limit), min(high, limit)


def _magnitudes(counts: Counts, low: float, high: float, top: float) -> Floats:
    """The histogram of the magnitudes, from 0 to the largest.

    Zero is on every grid and loses nothing, and after a ReLU it would outweigh all else: its bin counts as the next.
    """
    edges = np.linspace(low, high, len(counts) + 1)
    centres = np.abs((edges[:-1] + edges[1:]) / 2)
    place = np.minimum((centres / top * len(counts)).astype(np.int64), len(counts) - 1)
    found = np.bincount(place, weights=counts, minlength=len(counts)).astype(np.float64)
    found[0] = min(found[0], found[1])
    return found


def _divergence(magnitudes: Floats, limit: int) -> float:
    """What is lost if magnitudes are clipped after so many bins: Kullback and Leibler's divergence.

    The clipped values count as being at the end; the grid merges bins evenly, and spreads each step's sum over those of
    its bins that are not empty.
    """
    inside = magnitudes[:limit]
    clipped = inside.copy()
    clipped[-1] += magnitudes[limit:].sum()
    step = np.minimum(np.arange(limit) * LEVELS // limit, LEVELS - 1)
    filled = inside > 0
    sums = np.bincount(step, weights=inside, minlength=LEVELS)
    members = np.bincount(step, weights=filled.astype(np.float64), minlength=LEVELS)
    share = np.divide(sums, members, out=np.zeros(LEVELS), where=members > 0)
    spread = np.where(filled, share[step], 0.0)
    return _kullback_leibler(_smooth(clipped), _smooth(spread))


def _smooth(distribution: Floats) -> Floats:
    total = distribution.sum()
    even = np.full(len(distribution), 1.0 / len(distribution))
    return np.asarray((1 - SMOOTHING) * (distribution / total if total > 0 else even) + SMOOTHING * even, np.float64)


def _kullback_leibler(first: Floats, second: Floats) -> float:
    return float((first * np.log(first / second)).sum())
