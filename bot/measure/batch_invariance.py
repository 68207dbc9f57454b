"""Whether one sample's answer depends on the samples that happen to be in the same batch.

It must not: a face's age is its own. Dynamic quantisation breaks this, because it takes one scale from the whole batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bot.measure.arrays import Array
from bot.measure.check import Check, failed, not_measured, passed
from bot.measure.sessions import fixed_batch, run_once
from bot.measure.tolerance import largest_difference, tolerance

RULE = "batch invariance"

SAMPLES = 8
"""So many samples are run alone, and together, and together the other way round without the first."""


def check_batch_invariance(source: Any, candidate: Any, feeds: dict[str, Array]) -> Check:
    """Compares answers to samples alone with answers in company, for a source and a candidate.

    The check's value is the largest difference as a share of what is tolerated: above 1 it fails.
    """
    if (size := fixed_batch(candidate)) is not None:
        return passed(RULE, f"the graph fixes the batch at {size}")
    count = min(SAMPLES, *(len(array) for array in feeds.values()))
    if count < 2:
        return not_measured(RULE, "there is only one sample")
    alone, wobble = _spread(source, feeds, count)
    answers, moved = _spread(candidate, feeds, count)
    if {name: values.shape for name, values in alone.items()} != {name: value.shape for name, value in answers.items()}:
        return not_measured(RULE, "the outputs are not those of the source")
    if any(not np.isfinite(answers[name][np.isfinite(values)]).all() for name, values in alone.items()):
        return not_measured(RULE, "the answers are not finite")
    worst, name = 0.0, ""
    for output, values in alone.items():
        allowed = tolerance(values, wobble.get(output, 0.0))
        share = moved.get(output, 0.0) / allowed if allowed else float(moved.get(output, 0.0) > 0)
        if share > worst:
            worst, name = share, output
    if worst > 1:
        reason = (
            f"an answer in {name} moves by {moved[name]:.3g} with the other samples of its batch, "
            f"{worst:.3g} times what is tolerated; the source's moves by {wobble[name]:.3g}"
        )
        return failed(RULE, reason, worst)
    return passed(RULE, f"{count} samples get the same answers alone and in batches", worst)


def _spread(session: Any, feeds: dict[str, Array], count: int) -> tuple[dict[str, Array], dict[str, float]]:
    """Each sample's answer alone, and per output the largest difference to its answers in company."""
    orders = [np.arange(count), np.arange(count - 1, 0, -1)]
    singles = [run_once(session, {name: array[[row]] for name, array in feeds.items()}) for row in range(count)]
    names = [name for name, value in singles[0].items() if value.ndim and len(value) == 1]
    alone = {name: np.concatenate([single[name] for single in singles]) for name in names}
    moved = dict.fromkeys(names, 0.0)
    for order in orders:
        together = run_once(session, {name: array[order] for name, array in feeds.items()})
        for name in names:
            moved[name] = max(moved[name], largest_difference(together[name], alone[name][order]))
    return alone, moved
