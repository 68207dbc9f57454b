"""ONNX Runtime's own fused operators as the ONNX operators that they stand for.

A file that ONNX Runtime's optimiser wrote holds some of them, in its own domain, or LayerNormalization at an opset that
has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import NodeProto


def plain_nodes(
    op: str, node: NodeProto, attributes: dict[str, Any], rank: int, version: int, products: frozenset[int]
) -> list[NodeProto] | None:
    """The nodes that a fused one stands for.

    Args:
        op: Its operator, with its domain.
        node: It.
        attributes: Its attributes.
        rank: Of its second input.
        version: Of ONNX's own operators in the model.
        products: Places of the inputs that are products with matrices.

    Returns:
        None if it is no operator that is known here, or is used in a way that is not.
    """
    expand = _KNOWN.get(op)
    if expand is None or (op == "LayerNormalization" and version >= 17):
        return None
    parts = _Parts(node, attributes, rank, version, products)
    return parts.nodes if expand(parts) else None


class _Parts:
    """Nodes that are made one after the other."""

    def __init__(
        self, node: NodeProto, attributes: dict[str, Any], rank: int, version: int, products: frozenset[int]
    ) -> None:
        self.node = node
        self.attributes = attributes
        self.rank = rank
        self.version = version
        self.products = products
        self.nodes: list[NodeProto] = []

    def add(self, op: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Adds a node; its result has a name of its own or the given one."""
        from onnx import helper

        name = result or f"{self.node.output[0]}/part {len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Adds a float32 constant."""
        from onnx import numpy_helper

        return self.add("Constant", value=numpy_helper.from_array(np.array(value, np.float32)))

    def input(self, place: int) -> str:
        """The name of an input, empty where it is left out."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def mean(self, value: str) -> str:
        """Adds a mean over the last axis."""
        from onnx import numpy_helper

        if self.version < 18:
            return self.add("ReduceMean", value, axes=[-1], keepdims=1)
        last = self.add("Constant", value=numpy_helper.from_array(np.array([-1], np.int64)))
        return self.add("ReduceMean", value, last, keepdims=1)

    def norm(self, value: str, gain: str, bias: str) -> None:
        """Adds a LayerNorm over the last axis, whose result is the node's first."""
        deviation = self.add("Sub", value, self.mean(value))
        variance = self.mean(self.add("Mul", deviation, deviation))
        root = self.add("Sqrt", self.add("Add", variance, self.number(self.attributes.get("epsilon", 1e-5))))
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
    if any(parts.attributes.get(name, 0) for name in ("transA", "transBatchA", "transBatchB")) or parts.rank < 2:
        return False
    second = parts.input(1)
    if parts.attributes.get("transB", 0):
        axes = [*range(parts.rank - 2), parts.rank - 1, parts.rank - 2]
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
        branch = 0 if 0 in parts.products and 1 not in parts.products else 1
        added = parts.add("Add", parts.input(branch), parts.input(4))
        total = parts.add("Add", parts.input(1 - branch), added, result=total)
    else:
        total = parts.add("Add", parts.input(0), parts.input(1), result=total)
    parts.norm(total, parts.input(2), parts.input(3))
    return True


def _norm(parts: _Parts) -> bool:
    if any(parts.node.output[1:]) or parts.rank != 1:  # a gain of one axis: it is over the last one
        return False
    parts.norm(parts.input(0), parts.input(1), parts.input(2))
    return True


_KNOWN: dict[str, Callable[[_Parts], bool]] = {
    "LayerNormalization": _norm,
    "com.microsoft:BiasGelu": _gelu,
    "com.microsoft:FusedMatMul": _product,
    "com.microsoft:Gelu": _gelu,
    "com.microsoft:SkipLayerNormalization": _skip_norm,
}
