"""The checks that every artifact passes through, whatever its recipe says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bot.errors import StepError
from bot.measure.accuracy import Pair, pair_outputs
from bot.measure.arrays import Array, open_array
from bot.measure.batch_invariance import check_batch_invariance
from bot.measure.check import Check, failed, passed
from bot.measure.dead_outputs import check_dead_outputs
from bot.measure.dynamic_axes import check_dynamic_axes
from bot.measure.interface import RULE as INTERFACE_RULE
from bot.measure.interface import check_interface
from bot.measure.samples.collect import Progress
from bot.measure.sessions import open_session

FINITE_RULE = "finite outputs"


def check_finite(pairs: dict[str, Pair]) -> Check:
    """No NaN and no infinity where the source has none. The check's value is their number.

    A value that is not finite in the source either, and the same there, is the source's: a mask of -inf, say.
    """
    total, reason = 0, ""
    for pair in pairs.values():
        row = 0
        for source, candidate in pair.blocks():
            same = (source == candidate) | (np.isnan(source) & np.isnan(candidate))
            wrong = (~np.isfinite(candidate) & ~same).reshape(len(candidate), -1).sum(axis=1)
            total += int(wrong.sum())
            if wrong.any() and not reason:
                reason = f"{pair.name} is not finite, first on sample number {row + int(np.argmax(wrong > 0)) + 1}"
            row += len(candidate)
    if total:
        return failed(FINITE_RULE, f"{reason}; {total} values in all", float(total))
    return passed(FINITE_RULE, "every value on every sample is finite, or what the source has there", 0.0)


def run_checks(
    models: tuple[Path, Path],
    feeds: dict[str, Path],
    outputs: tuple[dict[str, Path], dict[str, Path]],
    provider: str,
    threads: int,
    progress: Progress,
) -> list[Check]:
    """All checks of one candidate.

    Args:
        models: Files of the source and of the candidate.
        feeds: Path of the .npy by input.
        outputs: What the two answered, as paths of .npy by output.
        provider: On which the checks run that run the models.
        threads: For one operator; 0 leaves it to the runtime.
        progress: Told of every check.

    Returns:
        One check per rule. A model that cannot be run fails the rule that needed it.

    Raises:
        StepError: The source itself cannot be opened.
    """
    source = open_session(models[0], provider, threads)
    candidate = open_session(models[1], provider, threads)
    arrays = {name: open_array(path) for name, path in feeds.items()}
    answers = [{name: open_array(path) for name, path in paths.items()} for paths in outputs]
    interface = check_interface(source, candidate)
    rules: list[tuple[str, Callable[[], Check]]] = [
        (INTERFACE_RULE, lambda: interface),
        (FINITE_RULE, lambda: check_finite(_pairs(answers))),
        ("no dead outputs", lambda: check_dead_outputs(_pairs(answers))),
        ("dynamic axes", lambda: check_dynamic_axes(source, candidate, arrays)),
        ("batch invariance", lambda: check_batch_invariance(source, candidate, arrays)),
    ]
    checks = []
    for done, (rule, check) in enumerate(rules, start=1):
        try:
            checks.append(check())
        except StepError as error:
            checks.append(failed(rule, error.what))
        progress(done, len(rules), rule)
    return checks


def _pairs(answers: list[dict[str, Array]]) -> dict[str, Pair]:
    return pair_outputs(answers[0], answers[1])
