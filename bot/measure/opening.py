"""Opens a published file as a stranger would: a fresh session, one sample, the expected answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import Array, open_array
from bot.measure.tolerance import largest_difference
from bot.records import Json

DEVIATION = 0.02
"""Kernels of different versions round differently: so much of an output's largest value may an answer be off."""


def open_model(
    model: Path, feeds: dict[str, Path], expected: dict[str, Path] | None, provider: str = "cpu"
) -> dict[str, Json]:
    """Opens a model in the runtime that is first on the path, and runs the first sample.

    Args:
        model: The file.
        feeds: Path of the .npy by input; the first row is taken, or as many as the graph fixes. Without any, the model
            is opened and not run.
        expected: Path of the .npy by output with the answers of another runtime, if they are to be compared.
        provider: What it is opened on; never replaced by another.

    Returns:
        `runtime`, `ok`, `reason`, and `max_absolute`: the largest difference from the expected answers, or None.
    """
    from bot.measure.providers import runtime_name
    from bot.measure.sessions import fixed_batch, open_session, run_once

    answer: dict[str, Json] = {"runtime": runtime_name(), "ok": False, "reason": "", "max_absolute": None}
    try:
        session = open_session(model, provider)
        if not feeds:
            answer.update(ok=True, reason="opens")
            return answer
        arrays = {name: open_array(path) for name, path in feeds.items()}
        rows = fixed_batch(session) or 1
        outputs = run_once(session, {name: array[[0] * rows] for name, array in arrays.items()}, model.name)
        problem, answer["max_absolute"] = _judge(outputs, expected)
    except StepError as error:
        problem = error.what
    answer.update(ok=not problem, reason=problem or "opens, runs and answers as expected")
    return answer


def _judge(outputs: dict[str, Array], expected: dict[str, Path] | None) -> tuple[str, float | None]:
    """What is wrong with the first sample's answer, and how far it is from the expected one."""
    if not expected:
        broken = [name for name, array in outputs.items() if not np.isfinite(array).all()]
        return (f"{broken[0]} is not finite" if broken else ""), None
    worst = 0.0
    for name, path in expected.items():
        values = open_array(path)
        if name not in outputs:
            return f"the output {name} is missing", None
        first = outputs[name][:1] if outputs[name].shape[1:] == values.shape[1:] else outputs[name][None]
        difference = largest_difference(first, values[:1])
        if not np.isfinite(difference):
            return f"the output {name} has another shape, or is not finite where it should be", None
        if difference > DEVIATION * _largest(values):
            return f"the output {name} differs by {difference:.3g} from the answer of the newer runtime", difference
        worst = max(worst, difference)
    return "", worst


def _largest(values: Array) -> float:
    finite = np.abs(np.asarray(values, np.float64))[np.isfinite(values)]
    return float(finite.max(initial=0.0))
