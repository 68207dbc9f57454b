"""Whether a candidate takes and gives what its source does."""

from __future__ import annotations

from typing import Any

from bot.measure.check import Check, failed, passed
from bot.measure.sessions import Port, inputs_of, outputs_of

RULE = "same inputs and outputs"


def check_interface(source: Any, candidate: Any) -> Check:
    """Names in order, types and shapes of two sessions. What an axis of any size is called does not matter."""
    symbols = {size for port in inputs_of(source) for size in port.shape if isinstance(size, str)}
    problems = _differences("input", inputs_of(source), inputs_of(candidate), symbols)
    problems += _differences("output", outputs_of(source), outputs_of(candidate), symbols)
    if problems:
        return failed(RULE, "; ".join(problems), float(len(problems)))
    return passed(RULE, "names, types and shapes are those of the source", 0.0)


def _differences(kind: str, source: list[Port], candidate: list[Port], symbols: set[str]) -> list[str]:
    names, others = [port.name for port in source], [port.name for port in candidate]
    if names != others:
        return [f"the {kind}s are {', '.join(others)} instead of {', '.join(names)}"]
    problems = []
    for port, other in zip(source, candidate, strict=True):
        if port.kind != other.kind:
            problems.append(f"the {kind} {port.name} is a {other.kind} instead of a {port.kind}")
        if _sizes(port) != _sizes(other) and not (kind == "output" and _compatible(port, other, symbols)):
            problems.append(f"the {kind} {port.name} has shape {_text(other)} instead of {_text(port)}")
    return problems


def _sizes(port: Port) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in port.shape]


def _compatible(source: Port, candidate: Port, symbols: set[str]) -> bool:
    """Whether an output is described in more detail than the source's, or less, without a contradiction.

    How much of an output's shape a file tells depends on who inferred it; what it really is, the answers show. But an
    axis that follows an input's must go on following it.
    """
    if not source.shape or not candidate.shape:
        return True
    if len(source.shape) != len(candidate.shape):
        return False
    for first, second in zip(source.shape, candidate.shape, strict=True):
        if first in symbols and isinstance(second, int):
            return False
        if isinstance(first, int) and isinstance(second, int) and first != second:
            return False
    return True


def _text(port: Port) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in port.shape) + "]"
