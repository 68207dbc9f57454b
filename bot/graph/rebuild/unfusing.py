"""ONNX Runtime's own fused operators as the ONNX operators that they stand for.

A file that ONNX Runtime's optimiser wrote holds some of them, in its own domain, or LayerNormalization at an opset that
has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class Surroundings:
    """What is known of the values that a fused node reads.

    Attributes:
        sizes: The shape of each input; empty where it is left out or cannot be told.
        products: Places of the inputs that are products with matrices.
        version: Of ONNX's own operators in the model.
    """

    sizes: list[tuple[int, ...]]
    products: frozenset[int]
    version: int


def plain_nodes(op: str, node: NodeProto, attributes: dict[str, Any], around: Surroundings) -> list[NodeProto] | None:
    """The nodes that a fused one stands for.

    Args:
        op: Its operator, with its domain.
        node: It.
        attributes: Its attributes.
        around: What is known of its inputs.

    Returns:
        None if it is no operator that is known here, or is used in a way that is not.
    """
    expand = _KNOWN.get(op)
    if expand is None or (op == "LayerNormalization" and around.version >= 17):
        return None
    parts = _Parts(node, attributes, around)
    return parts.nodes if expand(parts) else None


class _Parts:
    """Nodes that are made one after the other."""

    def __init__(self, node: NodeProto, attributes: dict[str, Any], around: Surroundings) -> None:
        self.node = node
        self.attributes = attributes
        self.around = around
        self.version = around.version
        self.nodes: list[NodeProto] = []

    def sizes(self, place: int) -> tuple[int, ...]:
        """The shape of an input, empty where it cannot be told."""
        return self.around.sizes[place] if place < len(self.around.sizes) else ()

    def has(self, *places: int) -> bool:
        """Whether any of some inputs is there."""
        return any(self.input(place) for place in places)

    def add(self, op: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Adds a node; its result has a name of its own or the given one."""
        from onnx import helper

        name = result or f"{self.node.output[0]}/part {len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Adds a float32 constant."""
        return self.constant(np.array(value, np.float32))

    def whole(self, *values: int) -> str:
        """Adds an int64 constant with one axis."""
        return self.constant(np.array(values, np.int64))

    def constant(self, array: NDArray[Any]) -> str:
        """Adds a constant."""
        from onnx import numpy_helper

        return self.add("Constant", value=numpy_helper.from_array(array))

    def input(self, place: int) -> str:
        """The name of an input, empty where it is left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def mean(self, value: str) -> str:
        """Adds a mean over the last axis."""
        if self.version < 18:
            return self.add("ReduceMean", value, axes=[-1], keepdims=1)
        return self.add("ReduceMean", value, self.whole(-1), keepdims=1)

    def norm(self, value: str, gain: str, bias: str, epsilon: float = 1e-5) -> None:
        """Adds a LayerNorm over the last axis, whose result is the node's first."""
        deviation = self.add("Sub", value, self.mean(value))
        variance = self.mean(self.add("Mul", deviation, deviation))
        root = self.add("Sqrt", self.add("Add", variance, self.number(self.attributes.get("epsilon", epsilon))))
        normed = self.add("Div", deviation, root)
        if bias:
            self.add("Add", self.add("Mul", normed, gain), bias, result=self.node.output[0])
        else:
            self.add("Mul", normed, gain, result=self.node.output[0])


def _gelu(parts: _Parts) -> bool:
    value = parts.add("Add", parts.input(0), parts.input(1)) if parts.input(1) else parts.input(0)
    error = parts.add("Erf", parts.add("Div", value, parts.number(2**0.5)))
    share = parts.add("Mul", parts.number(0.5), parts.add("Add", error, parts.number(1.0)))
    parts.add("Mul", value, share, result=parts.node.output[0])
    return True


def _product(parts: _Parts) -> bool:
    if (
        any(parts.attributes.get(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
        or len(parts.sizes(1)) < 2
    ):
        return False
    second = parts.input(1)
    if parts.attributes.get("transB", 0):
        rank = len(parts.sizes(1))
        axes = [*range(rank - 2), rank - 1, rank - 2]
        second = parts.add("Transpose", second, perm=axes)
    product = parts.add("MatMul", parts.input(0), second)
    parts.add("Mul", product, parts.number(parts.attributes.get("alpha", 1.0)), result=parts.node.output[0])
    return True


def _skip_norm(parts: _Parts) -> bool:
    total = parts.node.output[3] if len(parts.node.output) > 3 else ""
    if any(parts.node.output[1:3]) or not parts.input(2):
        return False
    if parts.input(4):
        # The bias is that of a projection, and either input may be the projection.
        branch = 0 if 0 in parts.around.products and 1 not in parts.around.products else 1
        added = parts.add("Add", parts.input(branch), parts.input(4))
        total = parts.add("Add", parts.input(1 - branch), added, result=total)
    else:
        total = parts.add("Add", parts.input(0), parts.input(1), result=total)
    parts.norm(total, parts.input(2), parts.input(3))
    return True


def _norm(parts: _Parts) -> bool:
    if any(parts.node.output[1:]) or len(parts.sizes(1)) != 1:  # a gain of one axis: it is over the last one
        return False
    parts.norm(parts.input(0), parts.input(1), parts.input(2))
    return True


def _gelu_by_tanh(parts: _Parts) -> bool:
    value = parts.add("Add", parts.input(0), parts.input(1)) if parts.input(1) else parts.input(0)
    cube = parts.add("Mul", parts.number(0.044715), parts.add("Pow", value, parts.number(3.0)))
    inner = parts.add("Mul", parts.number(math.sqrt(2 / math.pi)), parts.add("Add", value, cube))
    share = parts.add("Mul", parts.number(0.5), parts.add("Add", parts.add("Tanh", inner), parts.number(1.0)))
    parts.add("Mul", value, share, result=parts.node.output[0])
    return True


def _embeddings(parts: _Parts) -> bool:
    """Its second result, lengths of texts, is made where there is a mask, which it counts."""
    if parts.version < 13:
        return False
    ids, outputs = parts.input(0), parts.node.output
    rows = parts.add("Gather", parts.input(2), ids)
    if parts.input(1):
        rows = parts.add("Add", rows, parts.add("Gather", parts.input(4), parts.input(1)))
    zero, one, two = (parts.whole(number) for number in range(3))
    if parts.has(8):
        places = parts.add("Gather", parts.input(3), parts.input(8))
    else:
        length = parts.add("Slice", parts.add("Shape", ids), one, two, zero)
        places = parts.add("Slice", parts.input(3), zero, length, zero)
    total = parts.add("Add", rows, places, result=outputs[2] if len(outputs) > 2 else "")
    parts.norm(total, parts.input(5), parts.input(6), 1e-12)
    if parts.input(7) and len(outputs) > 1 and outputs[1]:
        parts.add("ReduceSum", parts.input(7), one, result=outputs[1], keepdims=0)
    return True


def _attention(parts: _Parts) -> bool:
    """The projection of query, key and value by one matrix, and what is done with them."""
    matrix, found = parts.sizes(1), parts.attributes
    other = parts.has(4, 6) or len(parts.node.output) > 1 or "qkv_hidden_sizes" in found
    if other or len(matrix) != 2 or matrix[1] != 3 * matrix[0]:
        return False
    product = parts.add("MatMul", parts.input(0), parts.input(1))
    if parts.input(2):
        product = parts.add("Add", product, parts.input(2))
    heads = found["num_heads"]
    cut = parts.add("Reshape", product, parts.whole(0, 0, 3, heads, matrix[0] // heads))
    cut = parts.add("Transpose", cut, perm=[2, 0, 3, 1, 4])
    query, key, value = (parts.add("Gather", cut, parts.constant(np.array(n, np.int64))) for n in range(3))
    return _attend(parts, (query, key, value), matrix[0], 3)


def _multi_head(parts: _Parts) -> bool:
    """Attention over query, key and value that are given one by one."""
    width = parts.sizes(0)[-1:]
    other = parts.has(6, 7, 8, 9) or len(parts.node.output) > 1 or not (parts.input(1) and parts.input(2))
    if other or not width or any(parts.sizes(place)[-1:] != width for place in (1, 2)):
        return False
    heads, given = parts.attributes["num_heads"], []
    for place in range(3):
        value = parts.input(place)
        if parts.input(3):
            ends = parts.whole(place * width[0]), parts.whole((place + 1) * width[0])
            value = parts.add("Add", value, parts.add("Slice", parts.input(3), *ends))
        value = parts.add("Reshape", value, parts.whole(0, 0, heads, width[0] // heads))
        given.append(parts.add("Transpose", value, perm=[0, 2, 1, 3]))
    return _attend(parts, (given[0], given[1], given[2]), width[0], 4)


def _attend(parts: _Parts, heads: tuple[str, str, str], width: int, mask: int) -> bool:
    """Softmax attention over heads, under the mask in the input with that place."""
    found = parts.attributes
    if parts.version < 13 or found.get("unidirectional", 0) or found.get("do_rotary", 0):
        return False
    query, key, value = heads
    scores = parts.add("MatMul", query, parts.add("Transpose", key, perm=[0, 1, 3, 2]))
    scale = found.get("scale", 0.0) or (width / found["num_heads"]) ** -0.5
    scores = parts.add("Mul", scores, parts.number(scale))
    if parts.input(5):
        scores = parts.add("Add", scores, parts.input(5))
    if parts.input(mask):
        read = _read_tokens(parts, mask)
        if not read:
            return False
        lowered = parts.add("Where", read, parts.number(0.0), parts.number(found.get("mask_filter_value", -10000.0)))
        scores = parts.add("Add", scores, parts.add("Unsqueeze", lowered, parts.whole(1, 2)))
    mixed = parts.add("MatMul", parts.add("Softmax", scores, axis=-1), value)
    joined = parts.add("Transpose", mixed, perm=[0, 2, 1, 3])
    parts.add("Reshape", joined, parts.whole(0, 0, width), result=parts.node.output[0])
    return True


def _read_tokens(parts: _Parts, mask: int) -> str:
    """Which tokens are read, batch x tokens: by a number for each, or by the length of each text."""
    sizes, shape = parts.sizes(mask), parts.sizes(0)
    if len(sizes) == 2 and len(shape) == 3 and sizes == shape[:2]:
        return parts.add("Not", parts.add("Equal", parts.input(mask), parts.constant(np.array(0, np.int32))))
    if len(sizes) != 1 or len(shape) != 3 or sizes[0] != shape[0]:
        return ""
    places = parts.constant(np.arange(shape[1], dtype=np.int32)[None])
    return parts.add("Less", places, parts.add("Unsqueeze", parts.input(mask), parts.whole(1)))


_KNOWN: dict[str, Callable[[_Parts], bool]] = {
    "LayerNormalization": _norm,
    "com.microsoft:Attention": _attention,
    "com.microsoft:BiasGelu": _gelu,
    "com.microsoft:EmbedLayerNormalization": _embeddings,
    "com.microsoft:FastGelu": _gelu_by_tanh,
    "com.microsoft:FusedMatMul": _product,
    "com.microsoft:Gelu": _gelu,
    "com.microsoft:MultiHeadAttention": _multi_head,
    "com.microsoft:SkipLayerNormalization": _skip_norm,
}
