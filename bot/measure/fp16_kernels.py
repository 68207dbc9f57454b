"""What is known of how real half-precision kernels compute: which lose nothing, and which sum in half.

A kernel reads halves, computes in single precision and rounds its result, unless it stands in `HALF_KERNELS`. The
entries were read from the runtime's sources; each says whether anybody saw it happen on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bot.errors import RecipeError
from bot.measure.fp16_types import attributes

EXACT = frozenset(
    {
        # They move values.
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Expand"),
        *("Gather", "GatherElements", "GatherND", "Tile", "Pad", "DepthToSpace", "SpaceToDepth", "Where", "Compress"),
        *("Trilu", "ReverseSequence", "OneHot", "Unique", "CenterCropPad", "TopK", "TensorScatter", "EyeLike"),
        *("SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceEmpty", "SplitToSequence"),
        *("ConcatFromSequence", "Optional", "OptionalGetElement", "If", "Loop", "Scan", "SequenceMap"),
        # They choose one of their inputs' values, or change its sign.
        *("Neg", "Abs", "Relu", "Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "MaxUnpool"),
        # Every whole number that they can make of a half is a half.
        *("Sign", "Floor", "Ceil", "Round"),
    }
)
"""Operators of the ONNX domain whose result is made of halves if their inputs are: rounding it would change nothing."""


@dataclass(frozen=True)
class Runtime:
    """The runtime whose half-precision kernels are emulated.

    Attributes:
        provider: `cuda`.
        version: Of ONNX Runtime, as (major, minor).
        strict: Whether the provider option `enable_skip_layer_norm_strict_mode` is on.
    """

    provider: str
    version: tuple[int, int]
    strict: bool = False


def parse_runtime(text: str) -> Runtime:
    """Read a runtime's name: `cuda-1.22`, `cuda-1.27+` (that version and later), `cuda-1.22-strict`.

    Raises:
        RecipeError: It is no such name, or nothing is known of that provider's kernels.
    """
    found = re.fullmatch(r"([a-z]+)-(\d+)\.(\d+)\+?(-strict)?", text)
    if found is None:
        raise RecipeError(
            f"{text!r} names no runtime", remedy="Write it like cuda-1.22, cuda-1.27+ or cuda-1.22-strict."
        )
    if found[1] != "cuda":
        raise RecipeError(f"nothing is known of {found[1]}'s half-precision kernels", remedy="Emulate cuda instead.")
    return Runtime(found[1], (int(found[2]), int(found[3])), bool(found[4]))


class Builder(Protocol):
    """Writes single-precision nodes whose results are rounded; see `fp16_rewrite`."""

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node of the ONNX domain and return its output, not rounded."""

    def rounded(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node and a rounding to half, and return the rounded value."""

    def round(self, value: str) -> str:
        """Round a value to half."""

    def scalar(self, value: float) -> str:
        """A constant of shape (), rounded to half."""

    def sum_last(self, value: str) -> str:
        """The sums over the last axis, which is kept with length 1, not rounded."""

    def like(self, node: Any, op: str, inputs: list[str]) -> str:
        """Add a node with the attributes of another, and return its output, not rounded."""

    def rank(self, value: str) -> int | None:
        """A value's number of dimensions, where it is known."""

    def constant(self, value: str) -> list[int] | None:
        """The integers in a constant, or None if the value is none."""


class NotEmulatedError(Exception):
    """Something in the graph cannot be emulated; the message names it."""


@dataclass(frozen=True)
class HalfKernel:
    """A kernel that holds intermediate results in half precision.

    Attributes:
        op: Operator.
        domain: Its domain.
        before: The first version, (major, minor), whose kernel does so no longer; None if none is known.
        since: The first version that is taken to do so; older ones are of no interest here.
        cured_by_strict: Whether the strict mode of skip layer normalisation avoids it.
        what: What is held in half.
        evidence: `read` in the runtime's sources; `reported` by others who saw it on a GPU; `run` on a GPU by this
            project.
        source: Where that can be checked.
        applies: Whether a node is computed in this way.
        emulate: Writes nodes that do the same, and returns one value per output ("" for one that is not there).
    """

    op: str
    domain: str
    before: tuple[int, int] | None
    since: tuple[int, int]
    cured_by_strict: bool
    what: str
    evidence: Literal["read", "reported", "run"]
    source: str
    applies: Callable[[Any, Builder], bool]
    emulate: Callable[[Any, Builder], list[str]]

    def concerns(self, runtime: Runtime) -> bool:
        """Whether a runtime has this kernel."""
        if self.cured_by_strict and runtime.strict:
            return False
        return self.since <= runtime.version and (self.before is None or runtime.version < self.before)

    @property
    def seen_on_gpu(self) -> bool:
        """Whether anybody saw it happen on a GPU."""
        return self.evidence != "read"


def half_kernel(node: Any, runtime: Runtime, builder: Builder) -> HalfKernel | None:
    """The entry of the table that a node falls under, if there is one."""
    for entry in HALF_KERNELS:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (entry.domain, entry.op) == (domain, node.op_type) and entry.concerns(runtime):
            return entry if entry.applies(node, builder) else None
    return None


def _input(node: Any, position: int) -> str:
    return str(node.input[position]) if position < len(node.input) else ""


def _always(node: Any, builder: Builder) -> bool:
    return True


def _epsilon(node: Any) -> float:
    found = attributes(node).get("epsilon")
    return float(found.f) if found is not None else 1e-12


def _skip_sum(node: Any, build: Builder, bias: str) -> str:
    value = _input(node, 0)
    if bias:
        value = build.rounded("Add", [value, bias])
    return build.rounded("Add", [value, _input(node, 1)])


def _reciprocal_width(build: Builder, gamma: str) -> str:
    shape = build.node("Cast", [build.node("Shape", [gamma])], to=1)
    return build.rounded("Reciprocal", [shape])


def _no_statistics(node: Any) -> None:
    if any(node.output[1:3]):
        raise NotEmulatedError(f"{node.op_type} node {node.name!r}: its mean and variance outputs")


def _skip_layer_norm(node: Any, build: Builder) -> list[str]:
    """x/n and x·(x/n) are halves and so are their sums; the order of the additions is not reproduced."""
    _no_statistics(node)
    gamma, beta, bias = _input(node, 2), _input(node, 3), _input(node, 4)
    total = _skip_sum(node, build, bias)
    share = build.rounded("Mul", [total, _reciprocal_width(build, gamma)])
    mean = build.round(build.sum_last(share))
    squares = build.round(build.sum_last(build.rounded("Mul", [share, total])))
    variance = build.rounded("Sub", [squares, build.rounded("Mul", [mean, mean])])
    scale = _inverse_root(build, build.rounded("Add", [variance, build.scalar(_epsilon(node))]))
    centred = build.rounded("Mul", [gamma, build.rounded("Sub", [total, mean])])
    result = build.rounded("Mul", [centred, scale])
    if beta:
        result = build.rounded("Add", [result, beta])
    return [result, "", "", total]


def _skip_simplified_layer_norm(node: Any, build: Builder) -> list[str]:
    _no_statistics(node)
    gamma, bias = _input(node, 2), _input(node, 3)
    total = _skip_sum(node, build, bias)
    share = build.rounded("Mul", [total, _reciprocal_width(build, gamma)])
    squares = build.round(build.sum_last(build.rounded("Mul", [share, total])))
    scale = _inverse_root(build, build.rounded("Add", [squares, build.scalar(_epsilon(node))]))
    return [build.rounded("Mul", [build.rounded("Mul", [gamma, total]), scale]), "", "", total]


def _inverse_root(build: Builder, value: str) -> str:
    return build.rounded("Reciprocal", [build.node("Sqrt", [value])])


def _refuse(node: Any, build: Builder) -> list[str]:
    raise NotEmulatedError(
        f"{node.op_type} node {node.name!r}: it sums in half on this runtime, and that is not emulated"
    )


def _reduce_sum_square(node: Any, build: Builder) -> list[str]:
    # The sum of squares is their L1 norm, whose operator takes its axes in the same way in every version.
    squares = build.rounded("Mul", [_input(node, 0), _input(node, 0)])
    return [build.round(build.like(node, "ReduceL1", [squares, *node.input[1:]]))]


def _reduced_axes(node: Any, build: Builder) -> list[int] | None:
    """The axes that a reduction names; empty for all; None if the file does not say."""
    found = attributes(node).get("axes")
    if found is not None:
        return [int(axis) for axis in found.ints]
    return build.constant(_input(node, 1)) if _input(node, 1) else []


def _leading_or_trailing(node: Any, build: Builder) -> bool:
    """Whether the axes are the first ones, or the last ones, but not all by being left out."""
    axes = _reduced_axes(node, build)
    rank = build.rank(_input(node, 0))
    if axes is None:
        raise NotEmulatedError(f"{node.op_type} node {node.name!r}: its axes are no constant of the file")
    if not axes:
        return False
    if rank is not None:
        axes = [axis % rank for axis in axes]
    axes = sorted(axes)
    gapless = axes == list(range(axes[0], axes[0] + len(axes)))
    if rank is not None:
        return gapless and len(axes) < rank and (axes[0] == 0 or axes[-1] == rank - 1)
    if gapless and (axes[0] == 0 or axes[-1] == -1):
        return True
    raise NotEmulatedError(f"{node.op_type} node {node.name!r}: the rank of its input is not known")


def _reduce_mean(node: Any, build: Builder) -> list[str]:
    mean = build.like(node, "ReduceMean", list(node.input))
    sizes = [build.node("Cast", [build.node("Size", [value])], to=1) for value in (_input(node, 0), mean)]
    count = build.node("Div", sizes)
    total = build.rounded("Mul", [mean, count])
    return [build.rounded("Div", [total, build.round(count)])]


_SKIP_FIX = "microsoft/onnxruntime#28682, onnxruntime/contrib_ops/cuda/bert/skip_layer_norm_impl.cu"
_REDUCTION = "onnxruntime/core/providers/cuda/reduction/reduction_ops.cc"

HALF_KERNELS = (
    HalfKernel(
        op="SkipLayerNormalization",
        domain="com.microsoft",
        before=(1, 27),
        since=(1, 0),
        cured_by_strict=True,
        what="mean and mean of squares are summed in half",
        evidence="read",
        source=_SKIP_FIX,
        applies=_always,
        emulate=_skip_layer_norm,
    ),
    HalfKernel(
        op="SkipSimplifiedLayerNormalization",
        domain="com.microsoft",
        before=(1, 27),
        since=(1, 0),
        cured_by_strict=True,
        what="the mean of squares is summed in half",
        evidence="reported",
        source=f"microsoft/onnxruntime#29034, {_SKIP_FIX}",
        applies=_always,
        emulate=_skip_simplified_layer_norm,
    ),
    HalfKernel(
        op="EmbedLayerNormalization",
        domain="com.microsoft",
        before=(1, 27),
        since=(1, 0),
        cured_by_strict=False,
        what="mean and mean of squares are summed in half",
        evidence="read",
        source="microsoft/onnxruntime#28682, onnxruntime/contrib_ops/cuda/bert/embed_layer_norm_impl.cu",
        applies=_always,
        emulate=_refuse,
    ),
    HalfKernel(
        op="ReduceSumSquare",
        domain="",
        before=None,
        since=(1, 0),
        cured_by_strict=False,
        what="the squares are stored in half before they are summed",
        evidence="read",
        source=_REDUCTION,
        applies=_always,
        emulate=_reduce_sum_square,
    ),
    HalfKernel(
        op="ReduceMean",
        domain="",
        before=None,
        since=(1, 12),
        cured_by_strict=False,
        what="over leading or trailing axes, the sum and the number of terms are stored in half before the division",
        evidence="reported",
        source=f"microsoft/onnxconverter-common#323, {_REDUCTION}",
        applies=_leading_or_trailing,
        emulate=_reduce_mean,
    ),
)
"""The kernels that hold intermediate results in half, as far as they are known."""
