"""Whether every axis that is declared dynamic really is.

An exporter can bake a length into a graph that calls it dynamic; only running at other lengths shows it. For each
symbol two other sizes are looked for that the source runs at; the candidate must run at them too and answer the same.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import Array
from bot.measure.check import Check, failed, not_measured, passed
from bot.measure.sessions import fixed_batch, inputs_of, run_once

RULE = "dynamic axes"

WANTED = 2
"""Other sizes at which each axis is exercised."""

SAMPLES = 8
"""So many samples at their own size tell how far the two are apart anyway."""

FACTOR = 4.0
FLOOR = 0.02
"""At another size the two may be four times as far apart, and by 2 % of the answers' own variation in any case."""

_STEPS = (64, 32, 16, 8, 1, -1, -8, -16, -32)

Axes = dict[str, list[tuple[str, int]]]
"""By symbol: the inputs and axes that carry it."""


def check_dynamic_axes(source: Any, candidate: Any, feeds: dict[str, Array]) -> Check:
    """Exercises each dynamic axis of the candidate at two sizes that the source runs at.

    The check's value is the largest difference as a share of what is tolerated: above 1 it fails.
    """
    axes = dynamic_axes(candidate)
    if not axes:
        return passed(RULE, "no axis is declared dynamic", 0.0)
    rows = fixed_batch(candidate)
    several = _sized(feeds, {}, {}, rows or min(SAMPLES, *(len(array) for array in feeds.values())))
    expected, answers = run_once(source, several), run_once(candidate, several)
    ordinary = {name: distance(values, answers[name]) for name, values in expected.items() if name in answers}
    if not np.isfinite(list(ordinary.values())).all():
        return not_measured(RULE, "the answers cannot be compared at their own size")
    base = _sized(feeds, {}, {}, rows or 1)
    worst = 0.0
    exercised: list[str] = []
    barren: list[str] = []
    for symbols in _attempts(axes):
        sizes = 0
        for resized in _resizings(base, feeds, axes, symbols):
            share, problem = _try(source, candidate, resized, ordinary)
            if share is None:
                continue
            sizes += 1
            worst = max(worst, share)
            if problem:
                return failed(RULE, f"axis {' and '.join(symbols)} at {_shapes(resized)}: {problem}", share)
            if sizes == WANTED:
                break
        (exercised if sizes else barren).append(" and ".join(symbols))
    return passed(RULE, _summary(exercised, barren), worst)


def dynamic_axes(session: Any) -> Axes:
    """The dynamic axes of a session's inputs. First axes without a name count as one symbol, `batch`."""
    axes: Axes = defaultdict(list)
    for port in inputs_of(session):
        for axis, size in enumerate(port.shape):
            if not isinstance(size, int):
                symbol = size or ("batch" if axis == 0 else f"axis {axis} of {port.name}")
                axes[symbol].append((port.name, axis))
    return dict(axes)


def _attempts(axes: Axes) -> list[tuple[str, ...]]:
    """Each symbol alone; and those that are not a batch all at once, for graphs that only take squares, say."""
    symbols: list[tuple[str, ...]] = [(symbol,) for symbol in axes]
    others = tuple(symbol for symbol, places in axes.items() if any(axis for _, axis in places))
    return [*symbols, others] if len(others) > 1 else symbols


def _resizings(base: dict[str, Array], feeds: dict[str, Array], axes: Axes, symbols: tuple[str, ...]) -> Any:
    """Feeds at other sizes, in the order in which they are tried."""
    name, axis = axes[symbols[0]][0]
    is_batch = all(place == 0 for _, place in axes[symbols[0]])
    now = base[name].shape[axis]
    wanted = [2, 3, 1] if is_batch else [2 * now, now + now // 2, now // 2, *(now + step for step in _STEPS)]
    for size in dict.fromkeys(wanted):
        if size < 1 or size == now or size > 4 * now + 64:
            continue
        ratio = size / now
        sizes = {symbol: max(1, round(_size_of(base, axes, symbol) * ratio)) for symbol in symbols}
        yield _sized(feeds, sizes, axes, len(next(iter(base.values()))))


def _size_of(base: dict[str, Array], axes: Axes, symbol: str) -> int:
    name, axis = axes[symbol][0]
    return int(base[name].shape[axis])


def _sized(feeds: dict[str, Array], sizes: dict[str, int], axes: Axes, batch: int) -> dict[str, Array]:
    """Samples cut or repeated along their axes to the sizes that are asked for."""
    resized = {name: array[np.arange(batch) % len(array)] for name, array in feeds.items()}
    for symbol, size in sizes.items():
        for name, axis in axes[symbol]:
            whole = feeds[name] if axis == 0 else resized[name]
            resized[name] = np.take(whole, np.arange(size) % whole.shape[axis], axis=axis)
    return resized


def _try(source: Any, candidate: Any, feeds: dict[str, Array], ordinary: dict[str, float]) -> tuple[float | None, str]:
    """The difference as a share of what is tolerated, and what is wrong; None where the source itself does not run."""
    try:
        expected = run_once(source, feeds)
    except StepError:
        return None, ""
    try:
        answers = run_once(candidate, feeds)
    except StepError as error:
        return float("inf"), f"the source runs and this does not ({error.what})"
    worst = 0.0
    for name, values in expected.items():
        if name not in answers or answers[name].shape != values.shape:
            shape = list(answers[name].shape) if name in answers else "none"
            return float("inf"), f"{name} has shape {shape} instead of {list(values.shape)}"
        apart = distance(values, answers[name])
        share = apart / (FACTOR * ordinary.get(name, 0.0) + FLOOR)
        worst = max(worst, share)
        if share > 1:
            usual = ordinary.get(name, 0.0)
            return share, f"{name} is {apart:.1%} of its variation away from the source, and {usual:.1%} elsewhere"
    return worst, ""


def distance(source: Array, candidate: Array) -> float:
    """How far the candidate is from the source on the worst sample, as a share of how much the source's answers vary.

    Args:
        source: The source's answers, one row per sample.
        candidate: The candidate's, of the same shape.

    Returns:
        Per row, the Euclidean norm of the difference divided by that of the row without its mean; the largest of them.
        Infinite where shapes differ, or only one of two values is finite.
    """
    if source.shape != candidate.shape:
        return float("inf")
    first, second = np.asarray(source, np.float64), np.asarray(candidate, np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    if not (same | (np.isfinite(first) & np.isfinite(second))).all():
        return float("inf")
    rows = len(first) if first.ndim > 1 else 1
    apart = np.abs(np.where(same, 0.0, second) - np.where(same, 0.0, first)).reshape(rows, -1)
    values = np.where(np.isfinite(first), first, 0.0).reshape(rows, -1)
    sizes = np.linalg.norm(values, axis=1)
    spread = np.linalg.norm(values - values.mean(axis=1, keepdims=True), axis=1)
    # An answer of one number has no variation of its own; how it varies between samples, or its size, has to do.
    spread = np.maximum(np.maximum(spread, values.std()), 1e-3 * sizes)
    norms = np.linalg.norm(apart, axis=1)
    return float(np.divide(norms, spread, out=np.where(norms > 0, np.inf, 0.0), where=spread > 0).max(initial=0.0))


def _shapes(feeds: dict[str, Array]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())


def _summary(exercised: list[str], barren: list[str]) -> str:
    parts = []
    if exercised:
        parts.append(f"exercised at other sizes: {', '.join(exercised)}")
    if barren:
        parts.append(f"the source itself runs at no other size of {', '.join(barren)}")
    return "; ".join(parts)
