"""Which weights of a graph can be stored in eight bits, and the nodes that turn them back into float.

A matrix that is multiplied with is read through DequantizeLinear. From a table, the rows that a Gather reads are taken
in eight bits, each with its scale, and only those are turned into float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.graph.int8.weights import EightBits, scales_of, tiles
from bot.graph.model_file import Model, Payload, all_nodes, graphs_of, pieces_of
from bot.graph.rebuild.weights import ArrayPayload
from bot.graph.tensors import FLOAT

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

FEW = "has so few weights that nothing is saved"
ELSEWHERE = "has weights that something reads in float, or that can be replaced from outside"
INFINITE = "has weights that are infinite or NaN"

FEWEST = 1024
"""Weights from here on are stored in eight bits: below, the nodes and scales that it takes weigh as much."""

_INT8 = 3
"""`TensorProto.INT8`."""


@dataclass(frozen=True)
class Use:
    """A node that reads a matrix of weights.

    Attributes:
        node: Its name.
        weight: The matrix.
        place: Which of its inputs that is.
        axis: Along which the matrix's channels lie: 0 if each row is one, 1 if each column is.
        looks_up: It reads rows of a table.
    """

    node: str
    weight: str
    place: int
    axis: int
    looks_up: bool

    def block(self, block: int | None) -> int | None:
        """How many numbers of a channel share a scale: for the row of a table, always all."""
        return None if self.looks_up else block


def constants_of(graph: GraphProto) -> dict[str, TensorProto]:
    """The graph's constants by name, whether they are initializers or nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                found[node.output[0]] = attribute.t
    return found


def uses_of(graph: GraphProto) -> dict[str, Use]:
    """Every node of the graph that could read its weights in eight bits, by its name."""
    constants = constants_of(graph)
    found = {}
    for node in graph.node:
        use = _use(node)
        tensor = constants.get(use.weight) if use else None
        if use and tensor is not None and tensor.data_type == FLOAT and len(tensor.dims) == 2:
            found[node.name] = use
    return found


def _use(node: NodeProto) -> Use | None:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return None
    if node.op_type == "MatMul":
        return Use(node.name, node.input[1], 1, 1, False)
    if node.op_type == "Gemm":
        return Use(node.name, node.input[1], 1, 0 if attributes.get("transB", 0) else 1, False)
    if node.op_type == "Gather" and attributes.get("axis", 0) in (0, -2):
        return Use(node.name, node.input[0], 0, 0, True)
    return None


@dataclass(frozen=True)
class Stored:
    """What is stored in eight bits.

    Attributes:
        uses: By node.
        matrices: By weight, axis and block.
        refused: Nodes that could be and are not, with the reason.
    """

    uses: dict[str, Use]
    matrices: dict[tuple[str, int, int | None], EightBits]
    refused: dict[str, str] = field(default_factory=dict)


def look_at(model: Model, wanted: Mapping[str, Use], block: int | None) -> Stored:
    """Reads the weights once: which can be stored in eight bits, and their scales.

    Args:
        model: Its nodes have names of their own.
        wanted: The nodes whose weights should be, by name.
        block: How many numbers of a channel share a scale; None for all.
    """
    constants = constants_of(model.proto.graph)
    reads = _reads(model)
    together: dict[str, list[Use]] = {}
    for use in wanted.values():
        together.setdefault(use.weight, []).append(use)
    found = Stored({}, {})
    for weight, uses in together.items():
        tensor = constants[weight]
        shape = (tensor.dims[0], tensor.dims[1])
        reason = FEW if shape[0] * shape[1] < FEWEST else ELSEWHERE if reads[weight] != len(uses) else ""
        kinds = {(use.axis, use.block(block)) for use in uses}
        matrices = {} if reason else {kind: _stored(model, tensor, shape, *kind) for kind in sorted(kinds, key=str)}
        if None in matrices.values():
            reason = INFINITE
        for kind, matrix in matrices.items():
            if matrix is not None and not reason:
                found.matrices[weight, *kind] = matrix
        for use in uses:
            if reason:
                found.refused[use.node] = reason
            else:
                found.uses[use.node] = use
    return found


def _reads(model: Model) -> Counter[str]:
    """How often each tensor is read, in branches and loops and as an output too. A default of an input counts more."""
    found = Counter(name for node in all_nodes(model.proto) for name in node.input)
    for graph in graphs_of(model.proto):
        found.update(value.name for value in [*graph.output, *graph.input])
    return found


def _stored(
    model: Model, tensor: TensorProto, shape: tuple[int, int], axis: int, block: int | None
) -> EightBits | None:
    payload: Payload = model.payload_of(tensor) or ArrayPayload(model.array(tensor).astype("<f4"))
    parted = tiles(shape, axis, block)
    scales = scales_of(pieces_of(payload), parted)
    return None if scales is None else EightBits(payload, parted, scales)


def rewrite(model: Model, stored: Stored, block: int | None) -> None:
    """Puts the matrices and the nodes that read them into the graph, in place of the float ones."""
    writing = _Writing(model, stored, block)
    graph = model.proto.graph
    nodes = [each for node in graph.node for each in writing.instead_of(node)]
    nodes = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    gone = {use.weight for use in stored.uses.values()}
    kept = [tensor for tensor in graph.initializer if tensor.name not in gone]
    kept = [type(tensor).FromString(tensor.SerializeToString()) for tensor in [*kept, *writing.tensors]]
    del graph.initializer[:]
    graph.initializer.extend(kept)


class _Writing:
    """Makes nodes and tensors; what several nodes read is made once."""

    def __init__(self, model: Model, stored: Stored, block: int | None) -> None:
        self._model, self._stored, self._block = model, stored, block
        self._gone = {use.weight for use in stored.uses.values()}
        self._made: dict[tuple[str, int, int | None, str], str] = {}
        self._taken = {name for node in all_nodes(model.proto) for name in [*node.input, *node.output, node.name]}
        self._taken |= {tensor.name for graph in graphs_of(model.proto) for tensor in graph.initializer}
        self.tensors: list[TensorProto] = []

    def instead_of(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that take a node's place."""
        if node.op_type == "Constant" and set(node.output) & self._gone:
            return []
        use = self._stored.uses.get(node.name)
        if use is None:
            return [node]
        return self._looking_up(node, use) if use.looks_up else self._multiplying(node, use)

    def _multiplying(self, node: NodeProto, use: Use) -> list[NodeProto]:
        from onnx import helper

        made: list[NodeProto] = []
        name, new = self._name(use, "float")
        if new:
            axis = use.axis if self._block is None else 1 - use.axis
            blocked: dict[str, Any] = {} if self._block is None else {"block_size": self._block}
            inputs = [self._whole_numbers(use), self._scales(use)]
            made.append(helper.make_node("DequantizeLinear", inputs, [name], name=name, axis=axis, **blocked))
        node.input[use.place] = name
        return [*made, node]

    def _looking_up(self, node: NodeProto, use: Use) -> list[NodeProto]:
        from onnx import helper

        rows, scales = self._free(f"{node.name}_int8"), self._free(f"{node.name}_scale")
        cast = self._free(f"{node.name}_float")
        places = node.input[1]
        return [
            helper.make_node("Gather", [self._whole_numbers(use), places], [rows], name=rows, axis=0),
            helper.make_node("Gather", [self._scales(use), places], [scales], name=scales, axis=0),
            helper.make_node("Cast", [rows], [cast], name=cast, to=FLOAT),
            helper.make_node("Mul", [cast, scales], [node.output[0]], name=node.name),
        ]

    def _whole_numbers(self, use: Use) -> str:
        from onnx import TensorProto

        name, new = self._name(use, "int8")
        if new:
            matrix = self._matrix(use)
            tensor = TensorProto(name=name, dims=matrix.parted.shape, data_type=_INT8)
            self._model.point(tensor, matrix)
            self.tensors.append(tensor)
        return name

    def _scales(self, use: Use) -> str:
        """Of a channel each as a vector, of a block each as a matrix, and of a row of a table each as a column."""
        from onnx import numpy_helper

        name, new = self._name(use, "row_scale" if use.looks_up else "scale")
        if new:
            scales = self._matrix(use).scales
            flat = not use.looks_up and self._block is None
            self.tensors.append(numpy_helper.from_array(scales.reshape(-1) if flat else scales, name))
        return name

    def _matrix(self, use: Use) -> EightBits:
        return self._stored.matrices[use.weight, use.axis, use.block(self._block)]

    def _name(self, use: Use, what: str) -> tuple[str, bool]:
        """What something made of a weight is called, and whether it is still to be made."""
        key = (use.weight, use.axis, use.block(self._block), what)
        new = key not in self._made
        if new:
            self._made[key] = self._free(f"{use.weight}_{what}")
        return self._made[key], new

    def _free(self, name: str) -> str:
        number, free = 0, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free
