"""Removes round trips through float16: a cast down whose result is only cast up again.

A converter that wraps each node that stays float32 in its own casts sends the values between two such nodes through
float16, where they are rounded, and lost beyond 65504. The readers of the cast up read the float32 tensor instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.graph.inference import infer
from bot.graph.inspection import opsets_of
from bot.graph.model_file import Model, graphs_of, read_model, write_model
from bot.graph.parameters import NoParameters
from bot.graph.steps import StepContext
from bot.graph.tensors import FLOAT, FLOAT16
from bot.records import Json

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def drop_cast_round_trips(
    source: Path, output: Path, parameters: NoParameters, context: StepContext
) -> dict[str, Json]:
    """Removes every cast from float16 to float32 that reads a cast from float32 to float16.

    Bodies of model-local functions are left as they are, since the types in them are their callers' affair.

    Args:
        source: The model.
        output: Where the result goes.
        parameters: None.
        context: Unused.

    Returns:
        `up_casts_removed`, and `down_casts_removed`: those that had no reader left.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: The types in the graph contradict each other.
    """
    model = read_model(source)
    up, down = remove_round_trips(model)
    write_model(model, output)
    return {"up_casts_removed": up, "down_casts_removed": down}


def remove_round_trips(model: Model) -> tuple[int, int]:
    """Does it on a model in memory.

    Returns:
        How many casts up and how many casts down were removed.
    """
    walk = _Walk(_float_names(model), _repeated_names(model.proto))
    walk.graph(model.proto.graph)
    down = _drop_unread(model.proto, walk)
    for graph in graphs_of(model.proto):
        _forget(graph, walk.removed)
    return walk.up, down


@dataclass
class _Walk:
    """One pass over the nodes, in order, so that a chain of round trips comes down to its beginning.

    Attributes:
        floats: Names of the float32 tensors.
        repeated: Names that mean different tensors in different graphs. Those are left alone.
        renamed: Result of a removed cast up -> the float32 tensor to read instead.
        down: Result of a cast down -> the float32 tensor that it reads.
        up: How many casts up were removed.
        emptied: Results of casts down that lost a reader.
        removed: Names of tensors that are no longer there.
    """

    floats: frozenset[str]
    repeated: frozenset[str]
    renamed: dict[str, str] = field(default_factory=dict)
    down: dict[str, str] = field(default_factory=dict)
    up: int = 0
    emptied: dict[str, None] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)

    def graph(self, graph: GraphProto) -> None:
        """Rewires one graph and those within it."""
        outputs = {value.name for value in graph.output}
        gone: list[int] = []
        for index, node in enumerate(graph.node):
            for place, name in enumerate(node.input):
                node.input[place] = self.renamed.get(name, name)
            for inner in _inner_graphs(node):
                self.graph(inner)
            if self.repeated.intersection([*node.input, *node.output]):
                continue
            if _casts_to(node, FLOAT16) and node.input[0] in self.floats:
                self.down[node.output[0]] = node.input[0]
            elif _casts_to(node, FLOAT) and node.input[0] in self.down:
                self.up += 1
                self.emptied[node.input[0]] = None
                if node.output[0] in outputs:
                    self._pass_on(node)
                else:
                    self.renamed[node.output[0]] = self.down[node.input[0]]
                    self.removed.add(node.output[0])
                    gone.append(index)
        for index in reversed(gone):
            del graph.node[index]

    def _pass_on(self, node: NodeProto) -> None:
        """A graph's output keeps its name, so something has to give the float32 tensor that name."""
        node.input[0] = self.down[node.input[0]]
        node.op_type = "Identity"
        del node.attribute[:]


def _drop_unread(proto: ModelProto, walk: _Walk) -> int:
    """Removes the casts down that have no reader left."""
    read = Counter(_names_read(proto))
    gone = {name for name in walk.emptied if not read[name]}
    for graph in graphs_of(proto):
        unread = [place for place, node in enumerate(graph.node) if _casts_to(node, FLOAT16) and node.output[0] in gone]
        for place in reversed(unread):
            del graph.node[place]
    walk.removed |= gone
    return len(gone)


def _names_read(proto: ModelProto) -> Iterator[str]:
    for graph in graphs_of(proto):
        for node in graph.node:
            yield from node.input
        for value in graph.output:
            yield value.name


def _forget(graph: GraphProto, names: set[str]) -> None:
    """Drops the declarations of tensors that are no longer there."""
    kept = [value for value in graph.value_info if value.name not in names]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _float_names(model: Model) -> frozenset[str]:
    """Names of tensors that are float32 for certain."""
    names: set[str] = set()
    inferred = infer(model, opsets_of(model.proto))
    for graph in graphs_of(inferred):
        for value in [*graph.input, *graph.value_info, *graph.output]:
            if value.type.tensor_type.elem_type == FLOAT:
                names.add(value.name)
        names.update(tensor.name for tensor in graph.initializer if tensor.data_type == FLOAT)
    return frozenset(names)


def _repeated_names(proto: ModelProto) -> frozenset[str]:
    """Names that two graphs define, which the specification allows where neither encloses the other."""
    defined: Counter[str] = Counter()
    for graph in graphs_of(proto):
        names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        names |= {name for node in graph.node for name in node.output if name}
        defined.update(names)
    return frozenset(name for name, times in defined.items() if times > 1)


def _casts_to(node: NodeProto, dtype: int) -> bool:
    if node.op_type != "Cast" or node.domain not in ("", "ai.onnx") or len(node.input) != 1 or len(node.output) != 1:
        return False
    return any(attribute.name == "to" and attribute.i == dtype for attribute in node.attribute)


def _inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
