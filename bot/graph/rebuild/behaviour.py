"""What a part of a graph without weights computes, told by what it answers.

Attention with rotary positions can be written in a hundred ways, and so can GELU. Rather than to list them, the part
is run on random numbers and compared with the definition. Only operators are let through that could stand in such a
part at all: none of them thresholds or compares, so that what agrees on random numbers does not differ on others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.graph.rebuild.folding import Operation, Value, evaluate

Array = NDArray[Any]

MASK_OPERATORS = frozenset(
    {"And", "Cast", "Equal", "Expand", "GatherND", "Greater", "GreaterOrEqual", "Less", "Not", "Or", "ReduceSum"}
    | {"Sub", "Where"}
)
"""Those that may stand besides in attention that reads a mask of zeros and ones: a threshold of it is no other mask."""

ATTENTION_OPERATORS = frozenset(
    {"Add", "Attention", "Concat", "Div", "Flatten", "Gather", "IsNaN", "MatMul", "Mul", "Neg", "Reshape", "Slice"}
    | {"Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze", "Where"}
)
ACTIVATION_OPERATORS = frozenset({"Add", "Div", "Erf", "Gelu", "Mul", "Pow", "Sub", "Tanh"})

_COMPARED_ELEMENTS = 4096
"""Constants up to this size are compared by their contents; larger ones are the same if they are one tensor."""

LOWEST = -3.4028234663852886e38
"""float32's: what exporters add to a masked score. Any score vanishes beside it."""

MODERATE = -10000.0
"""What older exporters add. Where every token is masked, it leaves the scores' differences as they were."""

_EMPTY_AGREEMENT = 1e-2
"""The same for scores that a moderate number was added to, which rounds them coarsely."""

_AGREEMENT = 1e-5
"""Largest difference from the definition, for results of order one computed in float32."""


@dataclass(frozen=True)
class Rotation:
    """Angles of the rotary positions, as tables.

    Attributes:
        cos: Patches x half a head's width, float64.
        sin: The same.
        computed_in: `float64` if the source has the angles, `float32` if it has cosines and sines only.
    """

    cos: NDArray[np.float64]
    sin: NDArray[np.float64]
    computed_in: str


@dataclass(frozen=True)
class Attention:
    """How many heads, what scores are multiplied by, the rotation, and what is done with masked tokens.

    Attributes:
        heads: Their number.
        scale: What scores are multiplied by.
        rotation: None for attention without rotary positions.
        masked: Whether a mask says which tokens are read.
        masked_score: What stands for a masked token's score. It only matters where every token is masked.
        by_length: The mask is counted, and so many tokens from the first one are read.
        empty: What the source answers where every token is masked: the `mean` of all values, `unmasked`, as if none
            were, `zero`, or `other`. The score makes no other attention answer the last two.
    """

    heads: int
    scale: float
    rotation: Rotation | None
    masked: bool = False
    masked_score: float = 0.0
    by_length: bool = False
    empty: str = ""


def gelu(values: Array) -> Array:
    """Its definition with the error function, in float64."""
    return np.array([x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in values.astype(np.float64).tolist()])


def gelu_by_tanh(values: Array) -> Array:
    """Its approximation by Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), in float64."""
    x = values.astype(np.float64)
    approximated: Array = 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return approximated


def gelu_kind(operations: list[Operation], start: Value, end: Value) -> str | None:
    """Which GELU these operations make of a value, number by number: `erf`, `tanh`, or None for neither."""
    if not operations or any(operation.op not in ACTIVATION_OPERATORS for operation in operations):
        return None
    constants = [value for operation in operations for value in operation.operands if value.constant]
    if any(value.elements != 1 for value in constants):
        return None
    points = np.linspace(-12.0, 12.0, 1201, dtype=np.float32)
    (answer,) = evaluate(operations, {start: points.reshape((1,) * (len(start.sizes) - 1) + (-1,))}, [end])
    for kind, definition in (("erf", gelu), ("tanh", gelu_by_tanh)):
        if answer.size == points.size and np.abs(answer.reshape(-1) - definition(points)).max() < _AGREEMENT:
            return kind
    return None


def read_attention(
    operations: list[Operation],
    feeds: list[tuple[Value, slice]],
    end: Value,
    shape: tuple[int, ...],
    patches: int | None,
    mask: Value | None = None,
) -> tuple[Attention, tuple[int, int, int]] | None:
    """What kind of attention these operations are.

    Args:
        operations: From the projections to the value that the output projection reads.
        feeds: Where the three projections end, each with its columns.
        end: What is computed.
        shape: Batch, tokens, width.
        patches: How many tokens, the last ones, have a rotary position; None where there is no such thing.
        mask: Says which tokens are read: batch x tokens, one for those that are.

    Returns:
        The attention, and which of the three are query, key and value; None if it is another computation.
    """
    allowed = ATTENTION_OPERATORS if mask is None else ATTENTION_OPERATORS | MASK_OPERATORS
    if any(operation.op not in allowed for operation in operations):
        return None
    if sum(operation.op in ("Softmax", "Attention") for operation in operations) != 1:
        return None
    batch, tokens, width = shape
    if (patches is not None and tokens <= patches) or end.elements != batch * tokens * width:
        return None
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((batch, tokens, width)).astype(np.float32) for _ in range(3)]
    given: dict[Value, Array] = {}
    for value in dict.fromkeys(value for value, _ in feeds):
        both = [part for (other, _), part in zip(feeds, parts, strict=True) if other is value]
        given[value] = np.concatenate(both, axis=-1).reshape(value.sizes)
    rotations: list[Rotation | None] = [None] if patches is None else [*_rotations(operations, patches)]
    if mask is None:
        (answer,) = evaluate(operations, given, [end])
        return _explain(answer.reshape(shape), parts, rotations, _heads(operations, width), None)
    read = np.ones((batch, tokens), bool)
    read[0, tokens // 2 :] = False
    read[1:, 0] = False
    given[mask] = _mask_like(mask, read)
    (answer,) = evaluate(operations, given, [end])
    found, by_length = _explain(answer.reshape(shape), parts, rotations, _heads(operations, width), read), False
    if found is None:
        counted = np.arange(tokens) < read.sum(axis=1, keepdims=True)
        found, by_length = _explain(answer.reshape(shape), parts, rotations, _heads(operations, width), counted), True
    if found is None:
        return None
    given[mask] = _mask_like(mask, np.zeros((batch, tokens), bool))
    (answer,) = evaluate(operations, given, [end])
    attention, order = replace(found[0], by_length=by_length), found[1]
    return _with_empty(attention, [parts[place] for place in order], answer.reshape(shape)), order


def _mask_like(mask: Value, read: Array) -> Array:
    from onnx import helper

    return read.astype(helper.tensor_dtype_to_np_dtype(mask.elem)).reshape(mask.sizes)


def _with_empty(attention: Attention, parts: list[Array], answer: Array) -> Attention:
    """What is done where every token is masked, and the score that does the same."""
    read = np.zeros(answer.shape[:2], bool)
    for empty, score in (("mean", LOWEST), ("unmasked", MODERATE)):
        tried = replace(attention, masked=True, masked_score=score, empty=empty)
        if (
            np.abs(attend(tried, parts[0], parts[1], parts[2], read) - answer).max() < _EMPTY_AGREEMENT
        ):  # NaN is no agreement
            return tried
    empty = "zero" if not answer.any() else "other"
    return replace(attention, masked=True, masked_score=LOWEST, empty=empty)


def signature(
    operations: list[Operation], feeds: list[tuple[Value, slice]], end: Value, mask: Value | None = None
) -> Hashable:
    """What tells two parts apart: equal parts compute the same.

    Args:
        operations: In order.
        feeds: As for `read_attention`.
        end: What is computed.
        mask: As for `read_attention`.
    """
    numbers: dict[Value, Hashable] = {} if mask is None else {mask: "mask"}
    for value, _ in feeds:
        numbers.setdefault(value, ("feed", len(numbers), value.shape))
    written: list[Hashable] = []
    for place, operation in enumerate(operations):
        reads = tuple(_identity(value, numbers) for value in operation.inputs)
        details = b"".join(sorted(each.SerializeToString(deterministic=True) for each in operation.proto.attribute))
        written.append((operation.op, operation.version, details, reads))
        numbers.update({value: (place, number, value.shape) for number, value in enumerate(operation.outputs)})
    columns = tuple((numbers[value], part.start, part.stop) for value, part in feeds)
    return tuple(written), columns, numbers.get(end)


def _identity(value: Value | None, numbers: dict[Value, Hashable]) -> Hashable:
    if value is None or value in numbers:
        return None if value is None else numbers[value]
    if value.constant and value.elements <= _COMPARED_ELEMENTS:
        array = value.read()
        return array.dtype.str, array.shape, array.tobytes()
    return value


def _explain(
    answer: Array, parts: list[Array], rotations: list[Rotation | None], heads: list[int], read: Array | None
) -> tuple[Attention, tuple[int, int, int]] | None:
    for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        query, key, value = (parts[place] for place in order)
        for count in heads:
            for rotation in rotations:
                if rotation is not None and query.shape[-1] // count != 2 * rotation.cos.shape[1]:
                    continue
                for scale in ((query.shape[-1] / count) ** -0.5, 1.0):
                    attention = Attention(count, scale, rotation)
                    if np.abs(attend(attention, query, key, value, read) - answer).max() < _AGREEMENT:
                        return attention, order
    return None


def attend(attention: Attention, query: Array, key: Array, value: Array, read: Array | None = None) -> Array:
    """The definition, in float32 for the products.

    Args:
        attention: Heads, scale, rotation and the score of masked tokens.
        query: Batch x tokens x width.
        key: Likewise.
        value: Likewise.
        read: Batch x tokens, whether a token is read; None if all are.
    """

    def split(array: Array) -> Array:
        batch, tokens, width = array.shape
        return array.reshape(batch, tokens, attention.heads, width // attention.heads).transpose(0, 2, 1, 3)

    turned = [split(array) for array in (query, key)]
    if attention.rotation is not None:
        turned = [_turn(array, attention.rotation) for array in turned]
    scores = turned[0] @ turned[1].transpose(0, 1, 3, 2) * np.float32(attention.scale)
    if read is not None:
        lowered = np.float32(attention.masked_score if attention.masked else LOWEST)
        scores = scores + np.where(read, np.float32(0), lowered)[:, None, None, :]
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ split(value)
    joined: Array = mixed.transpose(0, 2, 1, 3).reshape(query.shape)
    return joined


def _turn(heads: Array, rotation: Rotation) -> Array:
    first = heads.shape[2] - rotation.cos.shape[0]
    half = heads.shape[3] // 2
    cos, sin = rotation.cos.astype(np.float32), rotation.sin.astype(np.float32)
    result = heads.copy()
    left, right = heads[:, :, first:, :half], heads[:, :, first:, half:]
    result[:, :, first:, :half] = left * cos - right * sin
    result[:, :, first:, half:] = right * cos + left * sin
    return result


def _heads(operations: list[Operation], width: int) -> list[int]:
    """Candidates for the number of heads: sizes of axes."""
    sizes = {size for operation in operations for value in operation.outputs for size in value.sizes}
    return sorted((size for size in sizes if size > 0 and width % size == 0 and size < width), reverse=True)


def _rotations(operations: list[Operation], patches: int) -> list[Rotation]:
    """Pairs of tables by which the operations multiply."""
    tables: dict[bytes, Value] = {}
    for operation in operations:
        for value in operation.operands if operation.op == "Mul" else []:
            if _is_table(value, patches):
                tables.setdefault(value.read().tobytes(), value)
    found = []
    for one in tables.values():
        for other in tables.values():
            rotation = None if one is other else _rotation(one, other)
            if rotation is not None:
                found.append(rotation)
    return found


def _is_table(value: Value, patches: int) -> bool:
    whole = value.constant and len(value.sizes) >= 2 and value.elements == patches * value.width
    return whole and value.sizes[-2] == patches and value.width % 2 == 0


def _rotation(first: Value, second: Value) -> Rotation | None:
    width, half = first.width, first.width // 2
    if second.width != width:
        return None
    angles = _angles(first, "Cos"), _angles(second, "Sin")
    if angles[0] is not None and angles[1] is not None and np.array_equal(angles[0], angles[1]):
        wide = angles[0].astype(np.float64).reshape(-1, width)
        cos, sin, computed_in = np.cos(wide), np.sin(wide), "float64"
    else:
        cos, sin = (value.read().astype(np.float64).reshape(-1, width) for value in (first, second))
        computed_in = "float32"
    if not (np.array_equal(cos[:, :half], cos[:, half:]) and np.array_equal(sin[:, :half], sin[:, half:])):
        return None
    if np.abs(cos**2 + sin**2 - 1).max() > 1e-5:
        return None
    return Rotation(cos[:, :half], sin[:, :half], computed_in)


def _angles(table: Value, op: str) -> Array | None:
    """What a table is the cosine or sine of."""
    while table.producer is not None and table.producer.op in ("Reshape", "Unsqueeze", "Squeeze", "Cast"):
        table = table.producer.operands[0]
    made = table.producer
    return made.operands[0].read() if made is not None and made.op == op else None
