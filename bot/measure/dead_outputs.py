"""Finds outputs that have died: parts of an answer that carry nothing any more, while the whole looks perfect.

A detector's boxes reach into the hundreds and its scores to one. Quantised together, the scores fall onto two values,
most of them zero, and the cosine over the whole output is still 0.999995. So each output is judged in groups of
channels of like magnitude, and against the source: what is asked is how much is left of what **eight bits of that
group alone** would have kept. A softmax that is zero nearly everywhere, a mask, or a saturated sigmoid has little to
keep in the source as well, and is not blamed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.measure.accuracy import Pair
from bot.measure.arrays import Array
from bot.measure.check import Check, failed, passed

RULE = "no dead outputs"

LEVELS = 255
"""Steps of an eight-bit grid."""

SIGNIFICANT = 8
"""From so many steps away from zero on, a value should not have become zero: 3 % of the group's largest."""

LOST_SHARE = 0.5
"""A group is dead when this share of its significant values became exactly zero."""

SATURATED_SHARE = 0.05
"""A group is clipped when this share of its values sits at its end without belonging there."""

FEW = 8
"""A living group of many levels that is left with no more than so many values is dead."""

GAP = 100.0
"""Channels whose largest magnitudes are further apart than this factor may belong to different groups."""

FAINT = 1e-5
"""A group fainter than this share of its output's largest value is not judged."""

MAX_CHANNELS = 1024
"""An axis with more entries than this is taken for positions, not for channels."""

MAX_ELEMENTS = 20_000_000
"""Of a larger output only evenly spaced samples are judged."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loss:
    """What became of one group.

    Attributes:
        what: Output and channels, in words.
        share: The worst of the shares that are judged, 0..1.
        problem: What is wrong; empty if nothing is.
    """

    what: str
    share: float
    problem: str


def check_dead_outputs(pairs: dict[str, Pair]) -> Check:
    """Judges every output of a candidate against the source's.

    The check's value is the largest share of significant values that any group lost to zero.
    """
    losses = [loss for pair in pairs.values() for loss in judge(pair)]
    dead = [loss for loss in losses if loss.problem]
    worst = max((loss.share for loss in losses), default=0.0)
    if dead:
        more = f" (and {len(dead) - 1} more groups)" if len(dead) > 1 else ""
        return failed(RULE, f"{dead[0].what}: {dead[0].problem}{more}", worst)
    return passed(RULE, f"all {len(losses)} groups of channels keep what the source tells apart", worst)


def judge(pair: Pair) -> Iterator[Loss]:
    """What became of each group of an output, the whole output first."""
    source, candidate = _samples(pair)
    if not source.size:
        return
    finite = np.isfinite(source) & np.isfinite(candidate)
    if gone := int(np.isfinite(source).sum() - finite.sum()):
        share = gone / int(np.isfinite(source).sum())
        problem = f"{share:.2%} of the values are not finite" if share >= LOST_SHARE else ""
        yield Loss(f"output {pair.name}", share, problem)
    source, candidate = np.where(finite, source, 0.0), np.where(finite, candidate, 0.0)
    yield _loss(f"output {pair.name}", source, candidate, _bounds(source))
    top = float(np.abs(source).max())
    for axis in range(1, source.ndim):
        if not 2 <= source.shape[axis] <= MAX_CHANNELS:
            continue
        first, second = (np.moveaxis(array, axis, 0).reshape(source.shape[axis], -1) for array in (source, candidate))
        for channels in _groups(np.abs(first).max(axis=1)):
            group, answer = first[channels], second[channels]
            if np.abs(group).max() < FAINT * top or not group.any():
                continue
            bounds = _bounds(group)
            name = f"output {pair.name}, axis {axis}, {_channels(channels)}"
            yield _loss(name, group, answer, bounds)
            yield from _lone(pair.name, axis, channels, first, second, bounds)


def groups_of(pair: Pair) -> Iterator[tuple[Floats, Floats]]:
    """The source's and the candidate's values in each group of channels of like magnitude; all of them where an output
    has no channels."""
    source, candidate = _samples(pair)
    parted = False
    for axis in range(1, source.ndim):
        if not 2 <= source.shape[axis] <= MAX_CHANNELS:
            continue
        first, second = (np.moveaxis(array, axis, 0).reshape(source.shape[axis], -1) for array in (source, candidate))
        magnitudes = np.where(np.isfinite(first), np.abs(first), 0.0).max(axis=1)
        for channels in _groups(magnitudes):
            parted = True
            if magnitudes[channels].max() > FAINT * magnitudes.max():
                yield first[channels], second[channels]
    if not parted:
        yield source, candidate


def _samples(pair: Pair) -> tuple[Floats, Floats]:
    source: Array = pair.source
    per_row = max(int(np.prod(source.shape[1:], dtype=np.int64)), 1)
    step = max(-(-len(source) * per_row // MAX_ELEMENTS), 1)
    with np.errstate(invalid="ignore"):
        return np.asarray(source[::step], np.float64), np.asarray(pair.candidate[::step], np.float64)


def _groups(magnitudes: Floats) -> list[NDArray[np.int64]]:
    """Channels of like magnitude, as stretches of the axis.

    Sorted by magnitude, the channels are parted wherever it jumps by more than the gap. Parts that lie among each other
    along the axis are one group all the same: they are the classes of one head, of which some occur and some do not.
    """
    order = np.argsort(-magnitudes, kind="stable")
    falling = magnitudes[order]
    jumps = np.flatnonzero(falling[:-1] > GAP * falling[1:]) + 1
    groups: list[NDArray[np.int64]] = []
    for part in sorted(np.split(order, jumps), key=min):
        if groups and part.min() < groups[-1].max():
            groups[-1] = np.concatenate([groups[-1], part])
        else:
            groups.append(part)
    return [np.sort(group) for group in groups]


def _bounds(group: Floats) -> tuple[float, float]:
    """The ends of the group's range, zero included, as a quantiser would choose them."""
    return min(float(group.min()), 0.0), max(float(group.max()), 0.0)


def _lone(
    output: str,
    axis: int,
    channels: NDArray[np.int64],
    source: Floats,
    candidate: Floats,
    bounds: tuple[float, float],
) -> Iterator[Loss]:
    """Single channels of a group, on the group's own grid: one head's class may be dead while its neighbours live."""
    if len(channels) < 2:
        return
    for channel in channels:
        name = f"output {output}, axis {axis}, channel {channel}"
        loss = _loss(name, source[channel], candidate[channel], bounds)
        if loss.problem:
            yield loss


def _loss(what: str, source: Floats, candidate: Floats, bounds: tuple[float, float]) -> Loss:
    low, high = bounds
    step = (high - low) / LEVELS
    if step == 0 or not np.isfinite(step):
        return Loss(what, 0.0, "")
    significant = np.abs(source) >= SIGNIFICANT * step
    count = int(significant.sum())
    lost = float((candidate[significant] == 0).sum() / count) if count else 0.0
    levels = len(np.unique(np.rint(source / step)))
    left = len(np.unique(candidate))
    problem = ""
    if count >= FEW and lost >= LOST_SHARE:
        share = float((candidate == 0).mean())
        problem = (
            f"{lost:.1%} of the values that matter became exactly zero; {share:.2%} of all are zero "
            f"where the source has {float((source == 0).mean()):.2%}, and {left} distinct values are left"
        )
    elif left <= min(max(levels // 16, 1), FEW) and levels >= 2 * FEW:
        problem = f"{left} distinct values are left of at least {levels}"
    elif (clipped := _clipped(source, candidate, SIGNIFICANT * step)) >= SATURATED_SHARE:
        problem = f"{clipped:.1%} of the values are clipped to the ends of the range"
    return Loss(what, lost, problem)


def _clipped(source: Floats, candidate: Floats, margin: float) -> float:
    """Share of values at an end of the candidate's range that are not within the margin of that end in the source."""
    upper = (candidate == candidate.max()) & (source < source.max() - margin)
    lower = (candidate == candidate.min()) & (source > source.min() + margin)
    # One value is at each end by definition.
    return float((upper | lower).mean()) if int((upper | lower).sum()) > 2 else 0.0


def _channels(channels: NDArray[np.int64]) -> str:
    if len(channels) == 1:
        return f"channel {channels[0]}"
    return f"channels {channels[0]} to {channels[-1]}"
