"""The range of each tensor over the calibration samples.

A sample is run at a time, and tensors come out in portions of a bounded size: what is kept is two numbers per tensor,
and a histogram where the method wants one. Three hundred pictures need as much memory as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bot.graph.feeding import Samples, open_session, run
from bot.graph.int8.distance import distances
from bot.graph.int8.thresholds import Counts, entropy_range, histogram, percentile_range
from bot.graph.model_file import write_proto
from bot.graph.steps import Progress
from bot.graph.tensors import DTYPES, FLOAT

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

Method = Literal["minmax", "percentile", "entropy"]

PERCENTILE = 99.99
"""The share of the values, in percent, that is kept unless a recipe says another."""

PORTION = 512 << 20
"""Bytes of tensors that come out of one run, as far as their shapes are known."""


@dataclass(frozen=True)
class How:
    """How ranges are found.

    Attributes:
        method: See `thresholds`.
        percentile: For that method, the share in percent that is kept.
        limit: How many samples to run at most, evenly spread; 0 for all.
    """

    method: Method = "minmax"
    percentile: float = PERCENTILE
    limit: int = 0


@dataclass(frozen=True)
class Calibration:
    """What calibrating found.

    Attributes:
        ranges: Per tensor, the smallest and the largest value that the grid should hold, 0 included.
        infinite: Tensors with values that are infinite or NaN: their nodes cannot be quantised.
        samples: How many samples were run.
        available: Of how many.
    """

    ranges: dict[str, tuple[float, float]]
    infinite: frozenset[str]
    samples: int
    available: int


@dataclass
class _Seen:
    """What was seen so far."""

    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    infinite: set[str] = field(default_factory=set)

    def widen(self, name: str, value: Any) -> None:
        """Takes in a tensor's smallest and largest value."""
        finite = np.isfinite(value)
        if not finite.all():
            self.infinite.add(name)
            value = value[finite]
        low, high = self.extremes.get(name, (np.inf, -np.inf))
        low, high = min(low, float(value.min(initial=np.inf))), max(high, float(value.max(initial=-np.inf)))
        self.extremes[name] = (low, high)

    def count(self, name: str, value: Any) -> None:
        """Sorts a tensor's values into its histogram, whose range is known by now."""
        found = histogram(value, *self.extremes[name])
        self.counts[name] = self.counts[name] + found if name in self.counts else found

    def clipped(self, name: str, how: How) -> tuple[float, float]:
        """The range that a tensor's grid should hold. Zero is part of it: padding and ReLU need it exactly."""
        low, high = self.extremes[name]
        if low > high:
            return 0.0, 0.0
        if how.method == "percentile":
            low, high = percentile_range(self.counts[name], low, high, how.percentile)
        elif how.method == "entropy":
            low, high = entropy_range(self.counts[name], low, high)
        return min(low, 0.0), max(high, 0.0)


def calibrate(
    proto: ModelProto, feeds: Mapping[str, Path], how: How, scratch: Path, progress: Progress, where: str
) -> Calibration:
    """Runs a model over samples and finds the range of each of its float32 tensors.

    Args:
        proto: A prepared model: every tensor has its type.
        feeds: Per graph input, a .npy file with samples.
        how: The method.
        scratch: A folder with room for the model.
        progress: Told of every run.
        where: What to call the model in a message.

    Raises:
        StepError: The model cannot be run, or the samples do not fit it.
    """
    seen = _Seen()
    turns: list[Callable[[str, Any], None]] = [seen.widen] if how.method == "minmax" else [seen.widen, seen.count]
    portions = _portions(proto)
    samples = available = 0
    for number, names in enumerate(portions):
        path = scratch / "shown.onnx"
        write_proto(_showing(proto, names), path)
        session = open_session(path, where)
        taken = Samples(feeds, session, where, how.limit)
        samples, available = taken.count, taken.available
        total = len(portions) * len(turns) * taken.runs
        for turn, take_in in enumerate(turns):
            before = (number * len(turns) + turn) * taken.runs
            for done, fed in enumerate(taken, start=before + 1):
                for name, value in _tensors(session, fed, names, where):
                    take_in(name, value)
                progress(done, total, "calibration")
        del session
        path.unlink()
    ranges = {name: seen.clipped(name, how) for name in sorted(seen.extremes)}
    return Calibration(ranges, frozenset(seen.infinite), samples, available)


def _tensors(session: Any, fed: Mapping[str, Any], names: list[str], where: str) -> list[tuple[str, Any]]:
    """The tensors of a portion in one run, the graph's own inputs among them."""
    outputs = {each.name for each in session.get_outputs()}
    shown = [name for name in names if name in outputs]
    found = list(zip(shown, run(session, shown, fed, where), strict=True)) if shown else []
    return found + [(name, fed[name]) for name in names if name in fed]


def _portions(proto: ModelProto) -> list[list[str]]:
    """All float32 tensors but constants, in the graph's order, parted so that no portion is too large."""
    graph = proto.graph
    values = {value.name: value for value in [*graph.value_info, *graph.output, *graph.input]}
    constant = {tensor.name for tensor in graph.initializer}
    made = [value.name for value in graph.input] + [name for node in graph.node for name in node.output]
    portions: list[list[str]] = []
    room = 0
    for name in dict.fromkeys(made):
        if name not in values or name in constant or values[name].type.tensor_type.elem_type != FLOAT:
            continue
        size = _bytes(values[name])
        if not portions or size > room:
            portions.append([])
            room = PORTION
        portions[-1].append(name)
        room -= size
    return portions


def _bytes(value: ValueInfoProto) -> int:
    """Of one sample; an axis of unknown size counts as 1."""
    size = DTYPES[FLOAT].bits // 8
    for axis in value.type.tensor_type.shape.dim:
        size *= max(axis.dim_value, 1)
    return size


def _showing(proto: ModelProto, names: list[str]) -> ModelProto:
    """A copy that gives these tensors as its outputs, and computes nothing that they do not need."""
    shown: ModelProto = type(proto).FromString(proto.SerializeToString())
    graph = shown.graph
    inputs = {value.name for value in graph.input}
    values = {value.name: value for value in [*graph.value_info, *graph.output]}
    wanted = [values[name] for name in names if name not in inputs] or [graph.output[0]]
    outputs = [type(value).FromString(value.SerializeToString()) for value in wanted]
    del graph.output[:]
    graph.output.extend(outputs)
    needed = distances(graph)
    kept = [type(node).FromString(node.SerializeToString()) for node in graph.node if node.name in needed]
    del graph.node[:]
    graph.node.extend(kept)
    return shown
