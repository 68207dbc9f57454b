"""How far each node is from the end of its graph, and which nodes belong together.

Names of nodes are an artefact of an export and change with its tools; how many nodes lie between one and an output does
not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators with weights: what eight bits are for."""


def distances(graph: GraphProto) -> dict[str, int]:
    """Per node that some output depends on, how many nodes lie between it and the nearest output.

    The node that makes an output is at 0.

    Args:
        graph: Its nodes have names of their own.
    """
    makers = {output: node for node in graph.node for output in node.output if output}
    found: dict[str, int] = {}
    waiting = deque((value.name, 0) for value in graph.output)
    while waiting:
        tensor, distance = waiting.popleft()
        node = makers.get(tensor)
        if node is None or node.name in found:
            continue
        found[node.name] = distance
        waiting.extend((name, distance + 1) for name in _reads(node))
    return found


def _reads(node: NodeProto) -> list[str]:
    """What a node reads, what its branches and loops read included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                names += _reads(inner)
    return names


@dataclass(frozen=True)
class Group:
    """Nodes that are quantised together or not at all.

    Attributes:
        name: Of the node with the weights, or of the first one.
        nodes: Their names, in the graph's order.
        weights: How many numbers their weights are.
    """

    name: str
    nodes: tuple[str, ...]
    weights: int


def groups(graph: GraphProto, quantizable: Sequence[str]) -> list[Group]:
    """The nodes that can be quantised, in groups, in the graph's order.

    A node with weights begins a group, and those without that follow it belong to it, up to the next ones with weights.
    What no node with weights comes after, such as the decoding of a detector's boxes, has nothing to gain from eight
    bits and much to lose: each chain of such nodes is a group of its own.

    Args:
        graph: Its nodes have names of their own and are sorted.
        quantizable: Names of the nodes that can be quantised.
    """
    wanted = set(quantizable)
    sizes = {tensor.name: _size(tensor.dims) for tensor in graph.initializer}
    leads = _leads_to_weights(graph, sizes)
    belongs: dict[str, str] = {}
    order = {node.name: place for place, node in enumerate(graph.node)}
    makers = {output: node.name for node in graph.node for output in node.output if output}
    for node in graph.node:
        before = [belongs[makers[name]] for name in node.input if name in makers]
        nearest = max(before, key=lambda name: order[name], default=node.name)
        begins = _has_weights(node, sizes) or nearest == node.name
        leaves = leads.get(nearest, False) and not leads[node.name] and not _has_weights(node, sizes)
        belongs[node.name] = node.name if begins or leaves else nearest
    members: dict[str, list[str]] = {}
    for node in graph.node:
        if node.name in wanted:
            members.setdefault(belongs[node.name], []).append(node.name)
    weights = {node.name: sum(sizes.get(name, 0) for name in node.input) for node in graph.node}
    return [Group(name, tuple(nodes), sum(weights[each] for each in nodes)) for name, nodes in members.items()]


def _has_weights(node: NodeProto, sizes: dict[str, int]) -> bool:
    return node.op_type in HEAVY and (node.op_type == "MatMul" or any(name in sizes for name in node.input))


def _leads_to_weights(graph: GraphProto, sizes: dict[str, int]) -> dict[str, bool]:
    """Per node, whether it has weights or some node after it has."""
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in _reads(node):
            readers.setdefault(name, []).append(node.name)
    found: dict[str, bool] = {}
    for node in reversed(graph.node):
        after = any(found.get(reader, False) for output in node.output for reader in readers.get(output, ()))
        found[node.name] = _has_weights(node, sizes) or after
    return found


def _size(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count
