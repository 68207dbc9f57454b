"""How large and how small the tensors of a model become: one instrumented run over samples.

Beside every node that makes a float32 tensor stand a few that reduce it, so that a few numbers per tensor come out and
no tensor is kept. A sample is run at a time. Nodes that only move values are not measured, but for a reduction: their
results hold what their inputs hold. Neither are tensors within If, Loop and Scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph import stream
from bot.graph.feeding import Samples, open_session, run
from bot.graph.functions import inline_functions
from bot.graph.half.rules import MOVES, NESTED, SUMS_INSIDE
from bot.graph.inference import infer
from bot.graph.inspection import opsets_of, qualified_op
from bot.graph.model_file import Model, graphs_of, write_model
from bot.graph.steps import Progress
from bot.graph.tensors import FLOAT, FLOAT16_MAX, FLOAT16_OVERFLOWS_AT, FLOAT16_SMALLEST_NORMAL, FLOAT16_VANISHES_AT
from bot.records import Json

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

_OLDEST_OPSET = 9
_BIG = float(np.finfo(np.float32).max)
_NO_VALUES = frozenset({"Constant", "ConstantOfShape"})
_PARTS = ("channels", "positive", "negative", "smallest", "beyond", "subnormal", "vanished", "zero", "infinite", "size")

SAMPLES = 32
"""How many samples are run at most where nobody says otherwise, evenly spread over those that there are."""


@dataclass
class Range:
    """What was seen of one tensor over all samples. Infinite values and NaN are counted and otherwise left out.

    Attributes:
        name: Of the tensor.
        op: The operator that makes it; `Input` for an input of the graph.
        node: That node's name.
        values: How many there were.
        peaks: Largest magnitude per channel: per index of the last axis, or of axis 1 where there are four axes; one
            number for a tensor of fewer than two axes.
        most_positive: The largest value.
        most_negative: The smallest value.
        smallest: The smallest magnitude other than zero; infinite where there is none.
        beyond: Values that are infinite in float16 and not here.
        subnormal: Values that keep fewer than eleven bits in float16.
        vanished: Values other than zero that are zero in float16.
        infinite: Values that are infinite or NaN here.
    """

    name: str
    op: str
    node: str
    values: int = 0
    peaks: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.float32))
    most_positive: float = -np.inf
    most_negative: float = np.inf
    smallest: float = np.inf
    beyond: int = 0
    subnormal: int = 0
    vanished: int = 0
    infinite: int = 0

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return float(self.peaks.max(initial=0.0))

    @property
    def channel(self) -> int | None:
        """The channel of the largest magnitude; None for a tensor without channels."""
        return int(self.peaks.argmax()) if self.peaks.size > 1 else None

    @property
    def typical(self) -> float:
        """The largest magnitude of a channel in the middle: half of them stay below."""
        return float(np.median(self.peaks)) if self.peaks.size else 0.0

    @property
    def leaves_float16(self) -> bool:
        """It does not fit into float16."""
        return self.largest > FLOAT16_MAX

    def add(self, seen: dict[str, Any]) -> None:
        """Takes in what one run showed: the numbers of `_PARTS`."""
        peaks = np.atleast_1d(np.asarray(seen["channels"], np.float32))
        both = np.zeros(max(self.peaks.size, peaks.size), np.float32)
        both[: self.peaks.size] = self.peaks
        both[: peaks.size] = np.maximum(both[: peaks.size], peaks)
        self.peaks = both
        size, zero, tiny, infinite = (int(seen[part]) for part in ("size", "zero", "vanished", "infinite"))
        self.values += size
        self.infinite += infinite
        self.beyond += int(seen["beyond"]) - infinite
        self.vanished += tiny - zero
        self.subnormal += int(seen["subnormal"]) - tiny
        self.most_positive = max(self.most_positive, float(np.clip(seen["positive"], -_BIG, _BIG)))
        self.most_negative = min(self.most_negative, float(np.clip(seen["negative"], -_BIG, _BIG)))
        smallest = float(seen["smallest"])
        self.smallest = min(self.smallest, smallest if 0 < smallest < _BIG else np.inf)

    def to_plain(self) -> dict[str, Json]:
        """As plain JSON data, figures to six digits."""
        return {
            "tensor": self.name,
            "op": self.op,
            "node": self.node,
            "values": self.values,
            "largest": _digits(self.largest),
            "channel": self.channel,
            "typical": _digits(self.typical),
            "smallest": _digits(self.smallest) if np.isfinite(self.smallest) else None,
            "beyond": self.beyond,
            "subnormal": self.subnormal,
            "vanished": self.vanished,
            "infinite": self.infinite,
        }


@dataclass(frozen=True)
class Ranges:
    """What was seen of a model.

    Attributes:
        tensors: By name, in the graph's order, inputs first.
        samples: How many samples were run.
        available: Of how many.
        left_out: How many float32 tensors were not measured, by reason.
        stream: The tensors of the residual stream, in order; empty if the model has none.
        runtime: Name and version of the runtime.
    """

    tensors: dict[str, Range]
    samples: int
    available: int
    left_out: dict[str, int]
    stream: tuple[str, ...]
    runtime: str

    def worst(self, count: int) -> list[Range]:
        """The tensors with the largest magnitudes."""
        return sorted(self.tensors.values(), key=lambda each: -each.largest)[:count]

    @property
    def massive(self) -> Range | None:
        """The tensor with the massive activation: one channel far above the others; see `stream.is_massive`."""
        on_stream = [self.tensors[name] for name in self.stream if name in self.tensors]
        for candidates in (on_stream, list(self.tensors.values())):
            found = [each for each in candidates if stream.is_massive(each.largest, each.typical, each.peaks.size)]
            if found:
                return max(found, key=lambda each: each.largest)
        return None

    @property
    def residual_peak(self) -> float | None:
        """The largest magnitude on the residual stream; None if there is none."""
        peaks = [self.tensors[name].largest for name in self.stream if name in self.tensors]
        return max(peaks, default=None)

    def to_plain(self, top: int) -> dict[str, Json]:
        """As plain JSON data.

        Args:
            top: How many tensors to name.
        """
        massive, peak = self.massive, self.residual_peak
        return {
            "samples": self.samples,
            "samples_available": self.available,
            "runtime": self.runtime,
            "measured": len(self.tensors),
            "not_measured": {**self.left_out},
            "beyond_float16": sum(each.leaves_float16 for each in self.tensors.values()),
            "tensors": [each.to_plain() for each in self.worst(top)],
            "massive_activation": None
            if massive is None
            else {
                "tensor": massive.name,
                "channel": massive.channel,
                "size": _digits(massive.largest),
                "typical": _digits(massive.typical),
            },
            "residual_stream": None
            if peak is None
            else {"additions": len(self.stream), "peak": _digits(peak), "scale": stream.scale_that_fits(peak)},
        }


def measure_ranges(
    model: Model, feeds: Mapping[str, Path], scratch: Path, progress: Progress, limit: int = SAMPLES
) -> Ranges:
    """Runs a model over samples and looks at its tensors.

    Args:
        model: The model. Its functions are inlined; otherwise it stays as it is.
        feeds: Per graph input, a .npy file with samples.
        scratch: A folder with room for the model.
        progress: Told of every run.
        limit: How many samples to run at most, evenly spread; 0 for all.

    Raises:
        StepError: The model is too old, cannot be run, or the samples do not fit it.
    """
    import onnxruntime

    inline_functions(model)
    opsets = opsets_of(model.proto)
    if opsets.get("ai.onnx", 0) < _OLDEST_OPSET:
        raise StepError(
            f"has opset {opsets.get('ai.onnx', 0)}; ranges are measured from {_OLDEST_OPSET} on.",
            where=model.path.name,
            remedy="Convert it to a newer opset first.",
        )
    inferred = infer(model, opsets)
    found, left_out = _measurable(model.proto, inferred)
    inputs = {each.name: Range(each.name, "Input", "") for each in inferred.graph.input if _is_float(each.type)}
    samples = _run(model, inferred, found, inputs, (feeds, scratch, progress, limit))
    tensors = {name: each for name, each in (inputs | found).items() if each.values}
    return Ranges(
        tensors,
        samples.count,
        samples.available,
        left_out,
        stream.residual_stream(model.proto.graph, set(found)),
        f"onnxruntime {onnxruntime.__version__}",
    )


def _run(
    model: Model,
    inferred: ModelProto,
    found: dict[str, Range],
    inputs: dict[str, Range],
    how: tuple[Mapping[str, Path], Path, Progress, int],
) -> Samples:
    """Measures, and then measures tensors with infinities or NaN once more, without those."""
    feeds, scratch, progress, limit = how
    where = model.path.name
    first = _Instruments(model, inferred, found, finite=False)
    session = open_session(first.write(scratch), where)
    samples = Samples(feeds, session, where, limit)
    for done, fed in enumerate(samples):
        for name, each in inputs.items():
            if name in fed:
                each.add(_look(fed[name]))
        first.read(run(session, first.outputs, fed, where))
        progress(done + 1, samples.runs, "ranges")
    del session
    again = {name: Range(name, each.op, each.node) for name, each in found.items() if not np.isfinite(each.largest)}
    if again:
        second = _Instruments(model, inferred, again, finite=True)
        session = open_session(second.write(scratch), where)
        for done, fed in enumerate(samples):
            second.read(run(session, second.outputs, fed, where))
            progress(done + 1, samples.runs, "ranges of what is not finite")
        found.update(again)
    return samples


def _measurable(proto: ModelProto, inferred: ModelProto) -> tuple[dict[str, Range], dict[str, int]]:
    types = {value.name: value.type for value in [*inferred.graph.value_info, *inferred.graph.output]}
    summed = {node.input[0] for node in proto.graph.node if node.op_type in SUMS_INSIDE and node.input}
    left_out: Counter[str] = Counter()
    found = {}
    for node in proto.graph.node:
        for name in node.output:
            if not name or name not in types or not _is_float(types[name]):
                left_out["of unknown type"] += bool(name) and name not in types
            elif node.op_type in MOVES and name not in summed:
                left_out["moved values"] += 1
            elif node.op_type not in _NO_VALUES:
                found[name] = Range(name, qualified_op(node), node.name)
    nested = sum(len(graph.node) for graph in [*graphs_of(proto)][1:])
    left_out[f"nodes within {', '.join(sorted(NESTED))}"] += nested
    return found, {reason: count for reason, count in left_out.items() if count}


def _is_float(kind: Any) -> bool:
    return bool(kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type == FLOAT)


def _look(array: NDArray[Any]) -> dict[str, Any]:
    """The same numbers of an input of the graph, which may be empty."""
    magnitude = np.abs(array)
    finite = np.isfinite(array)
    magnitude = np.where(finite, magnitude, 0)
    axis = _channel_axis(array.ndim)
    others = tuple(other for other in range(array.ndim) if other != axis)
    return {
        "channels": magnitude.max(others, initial=0) if axis is not None else magnitude.max(initial=0),
        "positive": array.max(initial=-np.inf, where=finite),
        "negative": array.min(initial=np.inf, where=finite),
        "smallest": magnitude.min(initial=_BIG, where=magnitude > 0),
        "beyond": np.count_nonzero((magnitude >= FLOAT16_OVERFLOWS_AT) | ~finite),
        "subnormal": np.count_nonzero(magnitude < FLOAT16_SMALLEST_NORMAL),
        "vanished": np.count_nonzero(magnitude <= FLOAT16_VANISHES_AT),
        "zero": np.count_nonzero(magnitude == 0),
        "infinite": np.count_nonzero(~finite),
        "size": array.size,
    }


def _channel_axis(rank: int | None) -> int | None:
    if rank is None or rank < 2:
        return None
    return 1 if rank == 4 else rank - 1


class _Instruments:
    """A copy of a model with nodes that reduce some of its tensors.

    Args:
        model: The model.
        inferred: The same with types.
        ranges: The tensors; what is read goes there.
        finite: Leave infinite values and NaN out, and count them.
    """

    def __init__(self, model: Model, inferred: ModelProto, ranges: dict[str, Range], *, finite: bool) -> None:
        from onnx import ModelProto

        self._model = model
        self._ranges = ranges
        self._finite = finite
        self._opset = opsets_of(model.proto)["ai.onnx"]
        self._prefix = _free_prefix(inferred.graph)
        self._ranks = {
            value.name: len(value.type.tensor_type.shape.dim) if value.type.tensor_type.HasField("shape") else None
            for value in [*inferred.graph.value_info, *inferred.graph.output]
        }
        self._proto = ModelProto()
        self._proto.CopyFrom(model.proto)
        self._constants: dict[str, TensorProto] = {}
        self._parts = [part for part in _PARTS if finite or part != "infinite"]
        self.outputs = [f"{self._prefix}{index}/{part}" for index in range(len(ranges)) for part in self._parts]
        self._place()

    def write(self, folder: Path) -> Path:
        """Writes it; its weights stay in a file beside it, which the runtime maps."""
        path = folder / "ranges.onnx"
        write_model(Model(self._proto, self._model.payloads, self._model.path), path, beside=True)
        return path

    def read(self, answers: list[NDArray[Any]]) -> None:
        """Takes in the answers of one run."""
        width = len(self._parts)
        for index, each in enumerate(self._ranges.values()):
            seen = dict(zip(self._parts, answers[index * width : (index + 1) * width], strict=True))
            each.add({"infinite": 0, **seen})

    def _place(self) -> None:
        """Puts the reductions right behind the node whose result they read, so that they run while it is there."""
        from onnx import helper

        graph = self._proto.graph
        numbers = {name: index for index, name in enumerate(self._ranges)}
        nodes: list[NodeProto] = []
        for node in graph.node:
            nodes.append(node)
            for name in node.output:
                if name in numbers:
                    nodes += self._reductions(name, f"{self._prefix}{numbers[name]}/")
        del graph.node[:]
        graph.node.extend(nodes)
        del graph.output[:]
        kinds = {"channels": 1, "positive": 1, "negative": 1, "smallest": 1, "size": 7}
        for output in self.outputs:
            kind = kinds.get(output.rpartition("/")[2], 6)
            graph.output.append(helper.make_tensor_value_info(output, kind, None))
        graph.initializer.extend(self._constants.values())

    def _reductions(self, name: str, prefix: str) -> list[NodeProto]:
        """The nodes for one tensor; what `_PARTS` calls its results."""
        from onnx import helper

        nodes = []

        def add(op: str, inputs: list[str], result: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(op, inputs, [prefix + result], name=prefix + result, **attributes))
            return prefix + result

        def count(condition: str, result: str) -> None:
            add("ReduceSum", [add("Cast", [condition], result + "_ones", to=6)], result, keepdims=0)

        source, magnitude = name, add("Abs", [name], "magnitude")
        if self._finite:
            finite = add("Less", [magnitude, self._number(np.inf)], "finite")
            source = add("Where", [finite, name, self._number(0)], "source")
            count(add("Not", [finite], "not_finite"), "infinite")
            beyond = add("Not", [add("Less", [magnitude, self._number(FLOAT16_OVERFLOWS_AT)], "within")], "outside")
            magnitude = add("Abs", [source], "finite_magnitude")
        else:
            beyond = add("Not", [add("Less", [magnitude, self._number(FLOAT16_OVERFLOWS_AT)], "within")], "outside")
        count(beyond, "beyond")
        self._channels(add, magnitude, self._ranks.get(name))
        add("ReduceMax", [source], "positive", keepdims=0)
        add("ReduceMin", [source], "negative", keepdims=0)
        nonzero = add("Greater", [magnitude, self._number(0)], "nonzero")
        sizes = add("Where", [nonzero, magnitude, self._number(_BIG)], "sizes")
        add("ReduceMin", [sizes], "smallest", keepdims=0)
        count(add("Not", [nonzero], "zeros"), "zero")
        count(add("Less", [magnitude, self._number(FLOAT16_SMALLEST_NORMAL)], "small"), "subnormal")
        kept = add("Greater", [magnitude, self._number(FLOAT16_VANISHES_AT)], "kept")
        count(add("Not", [kept], "gone"), "vanished")
        add("Size", [name], "size")
        return nodes

    def _channels(self, add: Any, magnitude: str, rank: int | None) -> None:
        axis = _channel_axis(rank)
        if rank is None or axis is None:
            add("ReduceMax", [magnitude], "channels", keepdims=0)
            return
        others = [other for other in range(rank) if other != axis]
        if self._opset < 18:
            add("ReduceMax", [magnitude], "channels", axes=others, keepdims=0)
        else:
            add("ReduceMax", [magnitude, self._axes(others)], "channels", keepdims=0)

    def _number(self, number: float) -> str:
        return self._constant(f"number/{number}", np.asarray(number, np.float32))

    def _axes(self, axes: list[int]) -> str:
        return self._constant(f"axes/{axes}", np.asarray(axes, np.int64))

    def _constant(self, key: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = self._prefix + key
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(array, name)
        return name


def _free_prefix(graph: GraphProto) -> str:
    """A beginning that no name of the graph has."""
    prefix = "ranges/"
    names = {name for node in graph.node for name in [*node.output, node.name]}
    names |= {each.name for each in [*graph.initializer, *graph.input]}
    while any(name.startswith(prefix) for name in names):
        prefix = "_" + prefix
    return prefix


def _digits(number: float) -> float:
    return float(f"{number:.6g}")
