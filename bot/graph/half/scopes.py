"""A graph with its types: every tensor with who makes it and who reads it, over nested graphs.

Names are resolved as ONNX does it: in a node's own graph first, then in the graphs around it. Equal names in two
branches are two tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.half import rules
from bot.graph.inference import schema_of
from bot.graph.inspection import qualified_op
from bot.graph.tensors import FLOAT, FLOAT16

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto
    from onnx.defs import OpSchema

WEIGHTS_NEED_NO_INPUT = 4
"""From this IR version on, an initializer that is a graph input too is a default that callers may replace."""


class State(Enum):
    """What becomes of a node."""

    PLAIN = "has no float32 tensor"
    HALF = "computes in float16"
    FLOAT = "stays float32"
    FOLLOW = "only moves values, so it takes the dtype around it"
    MADE = "makes its output in whichever dtype is read"
    ALIAS = "cast to float16 in the source already"
    NESTED = "holds graphs of its own, which are converted within"


@dataclass(eq=False)
class Value:
    """One tensor.

    Attributes:
        name: In the source.
        scope: The graph that it belongs to.
        elem: Its dtype in the source; 0 where nobody knows.
        composite: It is no dense tensor but a sequence, an optional, a map or sparse.
        constant: Its contents, for an initializer, a Constant node, or what ConstantOfShape fills with.
        producer: The node that makes it; None for inputs and initializers.
        is_output: It is an output of its graph.
        output_dtype: The dtype that it has under its own name where it is an output.
        readers: Nodes that read it and the places of it among their inputs, those in inner graphs included.
        native: The dtype that its producer gives it in the result.
        wanted: The dtypes that readers in the result need.
        names: Its name in the result, per dtype.
        saturate: Magnitudes of its contents beyond float16's range are set to `constants.MASK`.
        from_integers: It is computed from integers, booleans and small constants alone.
    """

    name: str
    scope: Scope
    elem: int = 0
    composite: bool = False
    constant: TensorProto | None = None
    producer: Node | None = None
    is_output: bool = False
    output_dtype: int = FLOAT
    readers: list[tuple[Node, int]] = field(default_factory=list)
    native: int = 0
    wanted: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    saturate: bool = False
    from_integers: bool = False

    @property
    def is_float(self) -> bool:
        """It is a float32 tensor."""
        return self.elem == FLOAT and not self.composite

    @property
    def unknown(self) -> bool:
        """Nothing is known of its type, so that it may be float32."""
        return self.elem == 0 and not self.composite

    @property
    def on_demand(self) -> bool:
        """It can be had in either dtype without a cast from the other."""
        return self.constant is not None or (self.producer is not None and self.producer.state is State.MADE)


@dataclass(eq=False)
class Node:
    """One node.

    Attributes:
        proto: In the source.
        scope: The graph that it belongs to.
        schema: ONNX's definition of its operator; None for a foreign one.
        inputs: None for one that is left out.
        outputs: None for one that is left out.
        inner: The graphs in its attributes.
        state: What becomes of it.
        reason: Why it stays float32.
    """

    proto: NodeProto
    scope: Scope
    schema: OpSchema | None
    inputs: list[Value | None] = field(default_factory=list)
    outputs: list[Value | None] = field(default_factory=list)
    inner: list[Scope] = field(default_factory=list)
    state: State = State.PLAIN
    reason: str = ""

    @property
    def op(self) -> str:
        """The operator; `domain:Op` outside ONNX's own domain."""
        return qualified_op(self.proto)

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"{self.op} {self.proto.name or 'that makes ' + repr(next(iter(self.proto.output), ''))}"

    def slots(self) -> Iterator[tuple[bool, int, Value, str, bool]]:
        """Its tensors: whether it is an input, place, tensor, type variable, and whether float16 is allowed there."""
        for inputs, values in ((True, self.inputs), (False, self.outputs)):
            for place, value in enumerate(values):
                if value is not None:
                    variable, half = self._formal(inputs, place)
                    yield inputs, place, value, variable, half

    def _formal(self, inputs: bool, place: int) -> tuple[str, bool]:
        if self.schema is None:
            known = self.op in rules.RUNTIME_OPERATORS and (inputs or place == 0)
            return ("T" if known else ""), known
        formals = self.schema.inputs if inputs else self.schema.outputs
        if not formals:
            return "", False
        formal = formals[min(place, len(formals) - 1)]
        return formal.type_str, "tensor(float16)" in formal.types

    def stay(self, reason: str) -> None:
        """Decides that it stays float32; the first reason is the one that is kept."""
        if self.state is not State.FLOAT:
            self.state, self.reason = State.FLOAT, reason


@dataclass(eq=False)
class Scope:
    """One graph.

    Attributes:
        graph: In the source; the result is written into it.
        parent: The graph around it.
        owner: The node that it belongs to; None for the main graph.
        values: By name.
        nodes: In order.
        outputs: In order.
    """

    graph: GraphProto
    parent: Scope | None
    owner: Node | None = None
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def find(self, name: str) -> Value | None:
        """The tensor that a name means here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes in order, each followed by those within it."""
        for node in self.nodes:
            yield node
            for inner in node.inner:
                yield from inner.all_nodes()

    def inner_first(self) -> Iterator[Node]:
        """Its nodes in order, each after those within it."""
        for node in self.nodes:
            for inner in node.inner:
                yield from inner.inner_first()
            yield node

    def all_scopes(self) -> Iterator[Scope]:
        """This graph and all within it."""
        yield self
        for node in self.nodes:
            for inner in node.inner:
                yield from inner.all_scopes()


def read_scopes(proto: ModelProto, inferred: ModelProto, opsets: dict[str, int]) -> Scope:
    """Reads a model's main graph and all graphs within it.

    Args:
        proto: The model. The scopes refer to its graphs and nodes.
        inferred: The same model with inferred types.
        opsets: Version per domain, the default one being `ai.onnx`.

    Raises:
        StepError: A node reads a tensor that nothing before it makes.
    """
    return _Reader(opsets, proto.ir_version < WEIGHTS_NEED_NO_INPUT).scope(proto.graph, inferred.graph, None)


@dataclass
class _Reader:
    opsets: dict[str, int]
    weights_are_inputs: bool

    def scope(self, graph: GraphProto, inferred: GraphProto, parent: Scope | None) -> Scope:
        scope = Scope(graph, parent)
        types = {value.name: value.type for value in [*inferred.value_info, *inferred.output, *inferred.input]}
        inputs = {value.name for value in graph.input}
        for name in [value.name for value in graph.input]:
            self._add(scope, name, types, None)
        for tensor in graph.initializer:
            value = self._add(scope, tensor.name, types, None)
            value.elem = value.native = tensor.data_type
            if tensor.name not in inputs or self.weights_are_inputs:
                value.constant = tensor
        for sparse in graph.sparse_initializer:
            self._add(scope, sparse.values.name, types, None).composite = True
        for proto, typed in zip(graph.node, inferred.node, strict=True):
            self._node(scope, proto, typed, types)
        for output in graph.output:
            found = scope.find(output.name)
            if found is None:
                raise StepError(f"has an output {output.name!r} that nothing makes.", where=graph.name)
            found.is_output = True
            scope.outputs.append(found)
        return scope

    def _node(self, scope: Scope, proto: NodeProto, typed: NodeProto, types: dict[str, TypeProto]) -> None:
        node = Node(proto, scope, schema_of(proto, self.opsets))
        for place, name in enumerate(proto.input):
            value = scope.find(name) if name else None
            if name and value is None:
                raise StepError(f"reads {name!r}, which nothing before it makes.", where=node.label)
            node.inputs.append(value)
            if value is not None:
                value.readers.append((node, place))
        for attribute, inferred in zip(proto.attribute, typed.attribute, strict=True):
            pairs = [(attribute.g, inferred.g)] if attribute.HasField("g") else []
            for graph, typed_graph in [*pairs, *zip(attribute.graphs, inferred.graphs, strict=True)]:
                inner = self.scope(graph, typed_graph, scope)
                inner.owner = node
                node.inner.append(inner)
        for name in proto.output:
            node.outputs.append(self._add(scope, name, types, node) if name else None)
        scope.nodes.append(node)
        _settle_types(node)

    def _add(self, scope: Scope, name: str, types: dict[str, TypeProto], producer: Node | None) -> Value:
        value = scope.values.setdefault(name, Value(name, scope, producer=producer))
        kind = types.get(name)
        if kind is not None:
            which = kind.WhichOneof("value")
            value.composite = which not in (None, "tensor_type")
            value.elem = kind.tensor_type.elem_type if which == "tensor_type" else 0
        value.native = value.elem
        return value


def _settle_types(node: Node) -> None:
    """Fills in what inference left open, where the operator's definition leaves no choice, and finds constants."""
    bound = {variable: value.elem for inputs, _, value, variable, _ in node.slots() if inputs and value.elem}
    for inputs, place, value, variable, _ in node.slots():
        if not inputs and value.unknown and node.schema is not None:
            formals = node.schema.outputs
            value.elem = value.native = bound.get(variable, 0) or _only_type(
                formals[min(place, len(formals) - 1)].types
            )
    first = node.inputs[0] if node.inputs else None
    result = node.outputs[0] if node.outputs else None
    if node.op in rules.LIKE_FIRST_INPUT and first is not None and result is not None and result.unknown:
        result.elem = result.native = first.elem
    if node.op in ("Constant", "ConstantOfShape") and node.outputs and node.outputs[0] is not None:
        node.outputs[0].constant = _contents(node)


_TYPE_NUMBERS = {"tensor(float)": 1, "tensor(int64)": 7, "tensor(bool)": 9, "tensor(float16)": 10, "tensor(double)": 11}


def _only_type(types: set[str]) -> int:
    """The dtype of a place that allows one only; 0 where it allows more."""
    return _TYPE_NUMBERS.get(next(iter(types)), 0) if len(types) == 1 else 0


def _contents(node: Node) -> TensorProto | None:
    """What a Constant or ConstantOfShape node holds, where that is a dense float32 tensor."""
    from onnx import helper

    for attribute in node.proto.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            return attribute.t if attribute.t.data_type in (FLOAT, FLOAT16) else None
        if attribute.name == "value_float":
            return helper.make_tensor("", FLOAT, [], [attribute.f])
        if attribute.name == "value_floats":
            return helper.make_tensor("", FLOAT, [len(attribute.floats)], attribute.floats)
    if node.op == "ConstantOfShape" and not node.proto.attribute:
        return helper.make_tensor("value", FLOAT, [1], [0.0])
    return None
