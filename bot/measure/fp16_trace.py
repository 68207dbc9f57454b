"""Finds the first tensors that left the range of half precision in an emulated run.

Every floating-point value that a node makes anew gets one number beside it, the sum of its squares: it costs one pass
over the value and is not finite if the value is not. Where one is not, a second run counts what is infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.measure.fp16_rewrite import Rewritten, Step


@dataclass(frozen=True)
class Overflow:
    """A node that read finite numbers and made infinite ones or NaN.

    Attributes:
        tensor: What it made, by its name in the file.
        node: The node's name.
        op: Its operator; `Initializer` for a constant of the file.
        values: How many values are infinite or NaN.
        peak: The largest finite or infinite magnitude before rounding, None if that is infinite or NaN itself.
        inside: Whether it happened inside the kernel, whose result may be finite again.
    """

    tensor: str
    node: str
    op: str
    values: int
    peak: float | None
    inside: bool


@dataclass(frozen=True)
class Probe:
    """Extra outputs of a graph: value in the emulated graph to the name of the output."""

    outputs: Mapping[str, str]


def watch(graph: Any, done: Rewritten) -> Probe:
    """Add an output per value that a node of the main graph makes anew: a scalar that is finite if the value is."""
    outputs: dict[str, str] = {}
    for value in _watched(done.steps):
        outputs[value] = _add_output(graph, f"watch/{len(outputs)}", "ReduceSumSquare", value)
    return Probe(outputs)


def count(graph: Any, values: Sequence[str], peaks: Sequence[str]) -> tuple[Probe, Probe]:
    """Add outputs that count infinite and NaN elements of some values, and give others' largest magnitude."""
    import onnx

    counts: dict[str, str] = {}
    largest: dict[str, str] = {}
    for value in dict.fromkeys(values):
        base = f"count/{len(counts)}"
        # Infinity minus infinity is NaN, and NaN is true.
        graph.node.append(onnx.helper.make_node("Sub", [value, value], [f"{base}/zero"]))
        graph.node.append(onnx.helper.make_node("Cast", [f"{base}/zero"], [f"{base}/bad"], to=9))
        graph.node.append(onnx.helper.make_node("Cast", [f"{base}/bad"], [f"{base}/one"], to=7))
        counts[value] = _add_output(graph, base, "ReduceSum", f"{base}/one", element=7)
    for value in dict.fromkeys(peaks):
        base = f"peak/{len(largest)}"
        graph.node.append(onnx.helper.make_node("Abs", [value], [f"{base}/abs"]))
        largest[value] = _add_output(graph, base, "ReduceMax", f"{base}/abs")
    return Probe(counts), Probe(largest)


def _add_output(graph: Any, name: str, op: str, value: str, element: int = 1) -> str:
    import onnx

    graph.node.append(onnx.helper.make_node(op, [value], [name], keepdims=0))
    graph.output.append(onnx.helper.make_tensor_value_info(name, element, []))
    return name


def _watched(steps: Sequence[Step]) -> list[str]:
    return list(dict.fromkeys(value for step in steps if not step.exact for value in _made(step)))


def _made(step: Step) -> list[str]:
    return [*step.outputs, *(value for value in step.unrounded if value not in step.outputs)]


def suspects(done: Rewritten, flagged: set[str]) -> list[Step]:
    """The nodes that made a value that may not be finite."""
    return [step for step in done.steps if not step.exact and any(value in flagged for value in _made(step))]


def asked(steps: Sequence[Step], done: Rewritten) -> tuple[list[str], list[str]]:
    """What to count and what to measure for some nodes: the values that they read and made; those before rounding."""
    counted = [value for step in steps for value in (*step.inputs, *_made(step))]
    return [*counted, *done.constants], [value for step in steps for value in step.unrounded.values()]


def guilty(
    steps: Sequence[Step], done: Rewritten, counts: Mapping[str, int], peaks: Mapping[str, float], *, constants: bool
) -> list[Overflow]:
    """The nodes among some that read finite values and made others, the worst first.

    Args:
        steps: The suspects.
        done: The rewriting.
        counts: Per value, how many of its elements are infinite or NaN.
        peaks: Per value before rounding, its largest magnitude.
        constants: Whether constants that are not finite are to be named too: a mask may hold infinities on purpose.
    """
    found = []
    for step in steps:
        if any(counts.get(value) for value in step.inputs):
            continue
        bad = [value for value in _made(step) if counts.get(value)]
        if not bad:
            continue
        worst = max(bad, key=lambda value: counts[value])
        peak = peaks.get(step.unrounded.get(worst, ""))
        inside = not any(value in step.outputs for value in bad)
        tensor = step.outputs[0] if inside and step.outputs else worst
        found.append(
            Overflow(
                done.original.get(tensor, tensor),
                step.name,
                step.op,
                counts[worst],
                peak if peak is not None and math.isfinite(peak) else None,
                inside,
            )
        )
    if constants:
        found += [
            Overflow(done.original.get(value, value), "", "Initializer", counts[value], None, False)
            for value in done.constants
            if counts.get(value)
        ]
    return sorted(found, key=lambda each: -each.values)
