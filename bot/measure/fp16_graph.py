"""Names, order and ranks of a graph's values: what the rewriting must know of a graph before it changes it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

from bot.measure.fp16_kernels import NotEmulatedError
from bot.measure.fp16_types import HALF, label, subgraphs


def all_names(graph: Any) -> Iterator[str]:
    """Every name of a value in a graph and in its subgraphs."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        for _, inner in subgraphs(node):
            yield from all_names(inner)


def sort_nodes(graph: Any) -> None:
    """Put the nodes of a graph and of its subgraphs into topological order, as they were where that is one.

    Raises:
        NotEmulatedError: The graph has a cycle.
    """
    for node in graph.node:
        for _, inner in subgraphs(node):
            sort_nodes(inner)
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in reads_of(node) if name in maker} for node in graph.node]
    if all(before < index for index, makers in enumerate(needs) for before in makers):
        return
    order = _topological(needs, graph)
    nodes = [type(graph.node[0])() for _ in order]
    for copy, index in zip(nodes, order, strict=True):
        copy.CopyFrom(graph.node[index])
    del graph.node[:]
    graph.node.extend(nodes)


def _topological(needs: list[set[int]], graph: Any) -> list[int]:
    waiting = [len(makers) for makers in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for index, makers in enumerate(needs):
        for maker in makers:
            readers[maker].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(needs):
        stuck = next(index for index in range(len(needs)) if waiting[index])
        raise NotEmulatedError(f"{label(graph.node[stuck])} depends on itself")
    return order


def reads_of(node: Any) -> set[str]:
    """The names that a node reads, those that its subgraphs capture included."""
    names = set(node.input)
    for _, inner in subgraphs(node):
        names |= _captures(inner)
    return names


def _captures(graph: Any) -> set[str]:
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in reads_of(node)}
    return (read | {value.name for value in graph.output}) - own


def rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values wherever the nodes of a graph make or read them, in subgraphs too unless these define the name."""
    for node in graph.node:
        for field_name in ("input", "output"):
            values = getattr(node, field_name)
            for index, name in enumerate(values):
                if name in names:
                    values[index] = names[name]
        for _, inner in subgraphs(node):
            own = {value.name for value in (*inner.input, *inner.initializer)}
            own |= {name for each in inner.node for name in each.output}
            visible = {old: new for old, new in names.items() if old not in own}
            rename(inner, visible)
            for value in inner.output:
                value.name = visible.get(value.name, value.name)


def ranks_of(model: Any) -> dict[str, int]:
    """The ranks that shape inference finds; none where it fails."""
    import onnx

    skeleton = onnx.ModelProto()
    skeleton.ir_version = model.ir_version
    skeleton.opset_import.extend(model.opset_import)
    skeleton.graph.CopyFrom(_without_weights(model.graph))
    try:
        found = onnx.shape_inference.infer_shapes(skeleton).graph
    except Exception:  # the library raises what it likes on a graph that it cannot follow
        found = skeleton.graph
    ranks = {}
    for value in (*found.input, *found.value_info, *found.output):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    ranks.update({tensor.name: len(tensor.dims) for tensor in model.graph.initializer})
    return ranks


def _without_weights(graph: Any) -> Any:
    import onnx

    light = onnx.GraphProto()
    light.name = graph.name
    light.node.extend(graph.node)
    light.input.extend(graph.input)
    light.output.extend(graph.output)
    known = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.data_type != HALF and tensor.ByteSize() < 1024:
            light.initializer.add().CopyFrom(tensor)
        elif tensor.name not in known:
            light.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return light
