"""Finds the first tensors that left the range of half precision in an emulated run.

Every floating-point value that a node makes anew gets one number beside it, the sum of its squares: it costs one pass
over the value and is not finite if the value is not. Where one is not, a second run counts what is infinite or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
        peak: The largest magnitude before rounding; None if that is infinite or NaN itself, or is not known.
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
    watched = {value: f"emulated/watch/{index}" for index, value in enumerate(_watched(done.steps))}
    nodes = {value: [_reduce("ReduceSumSquare", value, name)] for value, name in watched.items()}
    _insert(graph, nodes)
    _add_outputs(graph, watched.values(), _FLOAT)
    return Probe(watched)


def count(graph: Any, values: Iterable[str], peaks: Iterable[str]) -> tuple[Probe, Probe]:
    """Add outputs that count infinite and NaN elements of some values, and give others' largest magnitude."""
    counts = {value: f"emulated/count/{index}" for index, value in enumerate(dict.fromkeys(values))}
    largest = {value: f"emulated/peak/{index}" for index, value in enumerate(dict.fromkeys(peaks))}
    nodes: dict[str, list[Any]] = {}
    for value, name in counts.items():
        nodes.setdefault(value, []).extend(_counting(value, name))
    for value, name in largest.items():
        size = f"{name}/abs"
        nodes.setdefault(value, []).extend([_node("Abs", [value], size), _reduce("ReduceMax", size, name)])
    _insert(graph, nodes)
    _add_outputs(graph, counts.values(), _INT64)
    _add_outputs(graph, largest.values(), _FLOAT)
    return Probe(counts), Probe(largest)


def _counting(value: str, name: str) -> list[Any]:
    # Infinity minus infinity is NaN, and NaN is true.
    zero, bad, one = (f"{name}/{part}" for part in ("zero", "bad", "one"))
    return [
        _node("Sub", [value, value], zero),
        _node("Cast", [zero], bad, to=_BOOL),
        _node("Cast", [bad], one, to=_INT64),
        _reduce("ReduceSum", one, name),
    ]


_FLOAT, _INT64, _BOOL = 1, 7, 9


def _node(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    import onnx

    return onnx.helper.make_node(op, inputs, [output], **attributes)


def _reduce(op: str, value: str, name: str) -> Any:
    return _node(op, [value], name, keepdims=0)


def _insert(graph: Any, nodes: Mapping[str, list[Any]]) -> None:
    """Put nodes beside the maker of the value that they read, so that they run while it is there.

    Left for the end, they would keep every value of the graph in memory.
    """
    made = {name for node in graph.node for name in node.output}
    placed = [each for value, probes in nodes.items() if value not in made for each in probes]
    for node in graph.node:
        placed.append(node)
        for name in node.output:
            placed += nodes.get(name, [])
    del graph.node[:]
    graph.node.extend(placed)


def _add_outputs(graph: Any, names: Iterable[str], element: int) -> None:
    import onnx

    graph.output.extend(onnx.helper.make_tensor_value_info(name, element, []) for name in names)


def _watched(steps: Sequence[Step]) -> list[str]:
    return list(dict.fromkeys(value for step in steps if not step.exact for value in _made(step)))


def _made(step: Step) -> list[str]:
    return [*step.outputs, *(value for value in step.unrounded if value not in step.outputs)]


def suspects(done: Rewritten, flagged: set[str]) -> list[Step]:
    """The nodes that made a value that may not be finite, and are not known to have read one.

    A half cannot be so large that its square is infinite, so a flagged half is not finite. A flagged float32 may be.
    """
    bad = {value for step in done.steps for value in step.unrounded if value in flagged}
    return [
        step
        for step in done.steps
        if not step.exact and not bad.intersection(step.inputs) and not flagged.isdisjoint(_made(step))
    ]


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
