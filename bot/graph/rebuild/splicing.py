"""Puts a rebuilt network in the place of the old one, within a larger graph that stays as it is.

What the outputs need besides the network is copied node by node, as the source has it, shape arithmetic included. Only
what is the same at two batch sizes and two lengths is written as a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bot.errors import StepError
from bot.graph.model_file import Model
from bot.graph.rebuild.builder import OPSET, Builder
from bot.graph.rebuild.folding import Folded, Value, reads_of
from bot.graph.rebuild.head import same_in_opset

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_OLDEST_OPSET = 13
"""The first in which Squeeze, Unsqueeze and ReduceSum read their axes as today: a graph's own opset can be kept."""


class Surroundings:
    """The main graph of a source around the network that is rebuilt."""

    def __init__(self, source: Model, folded: Folded, other: Folded | None, ends: list[Value]) -> None:
        """Looks at a source.

        Args:
            source: The source.
            folded: It, folded.
            other: It, folded at another batch size and another length, if they are free.
            ends: Where the network ends.
        """
        self.source = source
        self.folded = folded
        self.other = other
        self.producers = {name: node for node in source.proto.graph.node for name in node.output if name}
        self.weights = {tensor.name: tensor for tensor in source.proto.graph.initializer}
        self.ends = self._names(ends)

    def _names(self, ends: list[Value]) -> dict[str, Value]:
        """The names in the main graph that stand for each end, at both sizes."""
        found: dict[str, Value] = {}
        for end in ends:
            names = [name for name, value in self.folded.scope.items() if value is end]
            if not names:
                raise StepError("has an end of the network inside a branch.", where=self.folded.where)
            same = None if self.other is None else self.other.scope[names[0]]
            found |= {name: end for name in names if self.other is None or self.other.scope[name] is same}
        return found

    def name_of(self, value: Value) -> str:
        """A name in the main graph that stands for a value.

        Raises:
            StepError: It is inside a branch.
        """
        for name, other in self.folded.scope.items():
            if other is value:
                return name
        raise StepError("has an input of the network inside a branch.", where=self.folded.where)

    def nodes(self, inputs: list[str]) -> list[NodeProto]:
        """The nodes that stay: what the outputs need besides the network, and what the network's inputs need."""
        wanted = [*(value.name for value in self.source.proto.graph.output), *inputs]
        seen: set[str] = set()
        kept: set[int] = set()
        while wanted:
            name = wanted.pop()
            if name in seen or name in self.ends or self.constant(name) is not None:
                continue
            seen.add(name)
            node = self.producers.get(name)
            if node is not None:
                kept.add(id(node))
                wanted += reads_of(node)
        return [node for node in self.source.proto.graph.node if id(node) in kept]

    def constant(self, name: str) -> Value | None:
        """A computed value that is the same at every size, and small."""
        value = self.folded.scope.get(name)
        if value is None or not value.constant or name not in self.producers or name in self.weights:
            return None
        if self.other is None:
            return value
        here, there = value.read(), self.other.scope[name].read()
        equal = here.shape == there.shape and np.array_equal(here, there, equal_nan=here.dtype.kind == "f")
        return value if equal else None

    def opset(self, inputs: list[str]) -> int:
        """The opset that the result can have: the usual one if the nodes that stay are the same in it, else their own.

        Raises:
            StepError: It would have to be the source's, and is too old.
        """
        version = self.folded.version
        if all(self._is_usual(node) for node in self.nodes(inputs)):
            return OPSET
        if version < _OLDEST_OPSET:
            raise StepError(
                f"has opset {version}, and nodes around the network that are others in opset {OPSET}.",
                where=self.folded.where,
                remedy="Convert it to opset 13 or later first.",
            )
        return version

    def _is_usual(self, node: NodeProto) -> bool:
        if node.domain not in ("", "ai.onnx"):
            return True
        inner = [each for attribute in node.attribute for each in _nodes_in(attribute.g)]
        return all(same_in_opset(each, self.folded.version, OPSET) for each in [node, *inner])


class Splicer:
    """Copies the surroundings into a rebuilt graph."""

    def __init__(self, surroundings: Surroundings, builder: Builder) -> None:
        """Writes into a graph.

        Args:
            surroundings: What is copied.
            builder: The graph.
        """
        self.around = surroundings
        self.builder = builder
        self.names: dict[str, str] = {}
        self.outputs = {value.name for value in surroundings.source.proto.graph.output}

    def input(self, name: str) -> str:
        """Copies what a value in front of the network needs, and returns its name in the rebuilt graph."""
        return self._emit(name)

    def finish(self, ends: dict[Value, str]) -> None:
        """Copies what follows the network, and gives the outputs their names.

        Args:
            ends: The names of the network's ends in the rebuilt graph.
        """
        self.names |= {name: ends[value] for name, value in self.around.ends.items()}
        for output in self.around.source.proto.graph.output:
            made = self._emit(output.name)
            if made != output.name:
                self.builder.node("Identity", [made], f"head/{output.name}", outputs=[output.name])
        for domain in sorted({node.domain for node in self.builder.model.proto.graph.node}):
            self._import(domain)

    def _import(self, domain: str) -> None:
        proto = self.builder.model.proto
        if domain not in {entry.domain for entry in proto.opset_import} and domain != "ai.onnx":
            imports = self.around.source.proto.opset_import
            proto.opset_import.append(next(entry for entry in imports if entry.domain == domain))

    def _emit(self, name: str) -> str:
        """The name in the rebuilt graph of what a name in the source stands for. Works off what it needs in order."""
        waiting = [name]
        while waiting:
            here = waiting[-1]
            missing = [] if here in self.names else [each for each in self._needs(here) if each not in self.names]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if here not in self.names:
                self._place(here)
        return self.names[name]

    def _needs(self, name: str) -> list[str]:
        node = self.around.producers.get(name)
        if node is None or self.around.constant(name) is not None:
            return []
        return reads_of(node)

    def _place(self, name: str) -> None:
        constant = self.around.constant(name)
        if constant is not None:
            self.names[name] = self.builder.array("head/constant", constant.read())
        elif name in self.around.weights:
            self.names[name] = self.builder.tensor("head/weight", self.around.source, self.around.weights[name])
        elif name in self.around.producers:
            self._copy(self.around.producers[name])
        else:
            self.names[name] = name  # an input of the graph

    def _copy(self, node: NodeProto) -> None:
        from onnx import NodeProto as Proto

        made = Proto()
        made.CopyFrom(node)
        made.ClearField("doc_string")
        del made.metadata_props[:]
        made.name = self.builder.fresh(f"head/{node.op_type}")
        for place, name in enumerate(node.input):
            made.input[place] = self.names[name] if name else ""
        for attribute in made.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _rename(graph, self.names, frozenset())
        for place, name in enumerate(node.output):
            if name:
                kept = name in self.outputs and name not in self.around.ends
                self.names[name] = made.output[place] = name if kept else self.builder.fresh("head/value")
        self.builder.model.proto.graph.node.append(made)


def _nodes_in(graph: GraphProto) -> list[NodeProto]:
    inner = [node for each in graph.node for attribute in each.attribute for node in _nodes_in(attribute.g)]
    return [*graph.node, *inner]


def _rename(graph: GraphProto, names: dict[str, str], own: frozenset[str]) -> None:
    """Gives captured values their new names."""
    own |= {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    own |= {name for node in graph.node for name in node.output}

    def new(name: str) -> str:
        return name if name in own else names.get(name, name)

    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = new(name)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _rename(inner, names, own)
    for value in graph.output:
        value.name = new(value.name)
    del graph.value_info[:]
