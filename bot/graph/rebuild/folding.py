"""A graph as it is at one batch size: every shape a number, every constant known, shape arithmetic gone.

Exporters write the same network in many ways. At a fixed batch most of the differences vanish: sizes that are computed
while the network runs become constants, the branch that an If takes is known, reshapes that change nothing are passed
by. What is left is the network itself. Nothing is computed before somebody asks for it, and large weights stay on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.inference import schema_of
from bot.graph.inspection import opsets_of, qualified_op
from bot.graph.model_file import Model
from bot.graph.rebuild.unfusing import Surroundings, plain_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

Array = NDArray[Any]

_KEPT_ELEMENTS = 1 << 16
"""Constants up to this size are computed once and kept; larger ones are computed for each reader."""

_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_SAME_SHAPE_SAME_VALUES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Slice", "Tile"})
"""Operators whose result equals their first input wherever it has the same shape."""


@dataclass(eq=False, repr=False)
class Value:
    """One tensor.

    Attributes:
        name: In the source; unique within the folded graph.
        shape: At the batch of the folding; None where it cannot be told.
        elem: Its dtype, as `TensorProto.DataType`.
        producer: The operation that makes it; None for inputs and weights.
        constant: It does not depend on the graph's inputs.
        readers: The operations that read it and are not constant themselves.
        tensor: The source's tensor that it is; None for all but weights.
    """

    name: str
    shape: tuple[int, ...] | None
    elem: int
    producer: Operation | None = None
    constant: bool = False
    readers: list[Operation] = field(default_factory=list)
    load: Callable[[], Array] | None = None
    kept: Array | None = None
    tensor: TensorProto | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, empty where it cannot be told."""
        return self.shape or ()

    @property
    def width(self) -> int:
        """Size of the last axis; 0 where there is none."""
        return self.shape[-1] if self.shape else 0

    @property
    def elements(self) -> int:
        """Their number; 0 where it cannot be told."""
        return int(np.prod(self.shape, dtype=np.int64)) if self.shape is not None else 0

    def read(self) -> Array:
        """A constant's contents; large ones are computed, or read from disk, at each call."""
        if self.kept is not None:
            return self.kept
        if self.producer is not None:
            array = evaluate_constant(self.producer)[self.producer.outputs.index(self)]
        elif self.load is not None:
            array = self.load()
        else:
            raise StepError("is read as a constant and is none: a fault of this step.", where=self.name)
        if array.size <= _KEPT_ELEMENTS:
            self.kept = array
        return array


@dataclass(eq=False, repr=False)
class Operation:
    """One node.

    Attributes:
        op: The operator; `domain:Op` outside ONNX's own domain.
        proto: In the source.
        inputs: None for one that is left out.
        outputs: Those with a name.
        attributes: By name, as Python values.
        version: Of the operator set that it belongs to.
    """

    op: str
    proto: NodeProto
    inputs: list[Value | None]
    outputs: list[Value] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    version: int = 0

    @property
    def output(self) -> Value:
        """Its first result."""
        return self.outputs[0]

    def input(self, index: int) -> Value | None:
        """An input, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def operands(self) -> list[Value]:
        """The inputs that are there."""
        return [value for value in self.inputs if value is not None]


@dataclass
class Folded:
    """The graph.

    Attributes:
        inputs: Those that are no weights, in order.
        outputs: By the graph's output names.
        operations: Those that depend on the inputs, in order.
        values: By name.
        where: The file's name, for messages.
        version: Of ONNX's own operator set.
        scope: What the names in the main graph stand for; several may stand for one value.
        architecture: What it should be, for messages.
    """

    inputs: list[Value]
    outputs: dict[str, Value]
    operations: list[Operation]
    values: dict[str, Value]
    where: str
    version: int
    scope: dict[str, Value]
    architecture: str


def batch_is_free(model: Model) -> bool:
    """Whether the first axis of some input of the model may have any size."""
    weights = {tensor.name for tensor in model.proto.graph.initializer}
    inputs = [value for value in model.proto.graph.input if value.name not in weights]
    axes = [value.type.tensor_type.shape.dim for value in inputs]
    return any(len(dims) > 0 and not dims[0].HasField("dim_value") for dims in axes)


def length_is_free(model: Model) -> bool:
    """Whether another axis of some input of the model may have any size."""
    weights = {tensor.name for tensor in model.proto.graph.initializer}
    inputs = [value for value in model.proto.graph.input if value.name not in weights]
    axes = [axis for value in inputs for axis in list(value.type.tensor_type.shape.dim)[1:]]
    return any(not axis.HasField("dim_value") for axis in axes)


def fold(
    model: Model, batch: int, length: int | None = None, architecture: str = "DINOv3", surrounded: bool = False
) -> Folded:
    """Folds a model at one batch size.

    Args:
        model: Its model-local functions are inlined; it stays as it is.
        batch: What the free first axis of an input becomes.
        length: What its other free axes become; None for no size.
        architecture: What the model should be, for messages.
        surrounded: It may be a part of the model; operators that are not known are let through.

    Raises:
        StepError: It has a Loop, a Scan, or an If whose branch depends on the input.
    """
    return _Folder(model, batch, length, architecture, surrounded).run()


def reads_of(node: NodeProto) -> list[str]:
    """What a node reads, captured values of its subgraphs included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
            own |= {name for each in graph.node for name in each.output}
            inner = [name for each in graph.node for name in reads_of(each)]
            inner += [value.name for value in graph.output]
            found += [name for name in inner if name not in own]
    return list(dict.fromkeys(found))


class _Folder:
    def __init__(self, model: Model, batch: int, length: int | None, architecture: str, surrounded: bool) -> None:
        self.model = model
        self.batch = batch
        self.length = length
        self.architecture = architecture
        self.surrounded = surrounded
        self.where = model.path.name
        self.opsets = opsets_of(model.proto)
        self.operations: list[Operation] = []
        self.values: dict[str, Value] = {}

    def run(self) -> Folded:
        graph = self.model.proto.graph
        scope: dict[str, Value] = {}
        self._weights(graph, scope, "")
        inputs = []
        for declared in graph.input:
            if declared.name not in scope:
                value = self._input(declared)
                scope[declared.name] = value
                inputs.append(value)
        self._nodes(graph, scope, "")
        outputs = {declared.name: self._find(scope, declared.name) for declared in graph.output}
        version = self.opsets.get("ai.onnx", 0)
        return Folded(inputs, outputs, self.operations, self.values, self.where, version, scope, self.architecture)

    def _input(self, declared: Any) -> Value:
        kind = declared.type.tensor_type
        sizes: list[int | None] = []
        for place, axis in enumerate(kind.shape.dim):
            known = axis.HasField("dim_value")
            sizes.append(axis.dim_value if known else self.batch if place == 0 else self.length)
        shape = None if None in sizes or not kind.HasField("shape") else tuple(size or 0 for size in sizes)
        return self._add(Value(declared.name, shape, kind.elem_type))

    def _add(self, value: Value) -> Value:
        name, number = value.name, 1
        while name in self.values:
            number += 1
            name = f"{value.name}_{number}"
        value.name = name
        self.values[name] = value
        return value

    def _find(self, scope: Mapping[str, Value], name: str) -> Value:
        if name not in scope:
            raise StepError(f"reads {name[:80]!r}, which nothing makes.", where=self.where)
        return scope[name]

    def _weights(self, graph: GraphProto, scope: dict[str, Value], prefix: str) -> None:
        for tensor in graph.initializer:
            scope[tensor.name] = self._add(self._weight(prefix + tensor.name, tensor))

    def _weight(self, name: str, tensor: TensorProto) -> Value:
        return Value(
            name,
            tuple(tensor.dims),
            tensor.data_type,
            constant=True,
            load=lambda: self.model.array(tensor),
            tensor=tensor,
        )

    def _nodes(self, graph: GraphProto, scope: dict[str, Value], prefix: str) -> None:
        for node in graph.node:
            op = qualified_op(node)
            if op == "If":
                self._branch(node, scope, prefix)
            elif op == "Constant":
                scope[node.output[0]] = self._add(self._constant(prefix + node.output[0], node))
            else:
                self._node(op, node, scope, prefix)

    def _branch(self, node: NodeProto, scope: dict[str, Value], prefix: str) -> None:
        condition = self._find(scope, node.input[0])
        if not condition.constant and self.surrounded:
            self._opaque("If", node, scope, prefix)
            return
        if not condition.constant:
            raise StepError(
                f"has an If whose branch depends on its input, which no {self.architecture} does.", where=self.where
            )
        wanted = "then_branch" if bool(condition.read().reshape(-1)[0]) else "else_branch"
        inner = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        below = dict(scope)
        deeper = f"{prefix}{node.output[0]}/"
        self._weights(inner, below, deeper)
        self._nodes(inner, below, deeper)
        for name, declared in zip(node.output, inner.output, strict=True):
            scope[name] = self._find(below, declared.name)

    def _constant(self, name: str, node: NodeProto) -> Value:
        from onnx import helper

        (attribute,) = node.attribute
        found = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return self._weight(name, found)
        dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
        if attribute.name not in dtypes:
            raise StepError(f"has a Constant of the kind {attribute.name}.", where=self.where)
        array = np.array(found, dtypes[attribute.name])
        elem = helper.np_dtype_to_tensor_dtype(array.dtype)
        return Value(name, array.shape, elem, constant=True, kept=array)

    def _node(self, op: str, node: NodeProto, scope: dict[str, Value], prefix: str) -> None:
        from onnx import helper

        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute if each.type != 5}
        if any(each.HasField("g") or each.graphs for each in node.attribute):
            if self.surrounded:
                self._opaque(op, node, scope, prefix)
                return
            raise StepError(f"has a {op}, which no {self.architecture} needs.", where=self.where)
        inputs = [self._find(scope, name) if name else None for name in node.input]
        if schema_of(node, self.opsets) is None:
            self._foreign(op, node, attributes, scope, prefix)
            return
        version = self.opsets.get(node.domain or "ai.onnx", 0)
        operation = Operation(op, node, inputs, attributes=attributes, version=version)
        shapes = self._infer(operation)
        constant = self._is_constant(operation)
        for name in node.output:
            if name:
                shape, elem = shapes.get(name, (None, 0))
                operation.outputs.append(Value(prefix + name, shape, elem, operation, constant))
        same = None if constant else _passed_by(operation)
        if same is not None:
            scope[node.output[0]] = same
            return
        for name, value in zip((name for name in node.output if name), operation.outputs, strict=True):
            scope[name] = self._add(value)
            if constant and value.shape is None:
                value.kept = value.read()
                value.shape = value.kept.shape
        if not constant:
            self._keep(operation)

    def _keep(self, operation: Operation) -> None:
        self.operations.append(operation)
        for value in dict.fromkeys(operation.operands):
            value.readers.append(operation)

    def _foreign(
        self, op: str, node: NodeProto, attributes: dict[str, Any], scope: dict[str, Value], prefix: str
    ) -> None:
        """A node whose operator ONNX does not know: one of ONNX Runtime's that can be taken apart, or a refusal."""
        sizes = [self._find(scope, name).sizes if name else () for name in node.input]
        products = frozenset(place for place, name in enumerate(node.input) if name and _is_product(scope.get(name)))
        around = Surroundings(sizes, products, self.opsets.get("ai.onnx", 0))
        parts = plain_nodes(op, node, attributes, around)
        if parts is None and self.surrounded:
            self._opaque(op, node, scope, prefix)
            return
        if parts is None:
            remedy = "Give this step the file as it was exported, before a runtime optimised it."
            raise StepError(f"has the operator {op}, which this step does not know.", where=self.where, remedy=remedy)
        for part in parts:
            if part.op_type == "Constant":
                scope[part.output[0]] = self._add(self._constant(prefix + part.output[0], part))
            else:
                self._node(part.op_type, part, scope, prefix)

    def _opaque(self, op: str, node: NodeProto, scope: dict[str, Value], prefix: str) -> None:
        """A node of which nothing is known but what it reads, in its subgraphs too."""
        operation = Operation(op, node, [self._find(scope, name) for name in reads_of(node)])
        for name in node.output:
            if name:
                scope[name] = self._add(Value(prefix + name, None, 0, operation))
                operation.outputs.append(scope[name])
        self._keep(operation)

    def _is_constant(self, operation: Operation) -> bool:
        if operation.op in ("Shape", "Size"):
            return operation.operands[0].shape is not None
        return operation.op not in _RANDOM and all(value.constant for value in operation.operands)

    def _infer(self, operation: Operation) -> dict[str, tuple[tuple[int, ...] | None, int]]:
        """Shape and dtype of each output, by its name in the node; less where ONNX cannot tell."""
        from onnx import NodeProto, TypeProto, helper, numpy_helper, shape_inference

        schema = schema_of(operation.proto, self.opsets)
        if schema is None:
            return {}
        node = NodeProto()
        node.CopyFrom(operation.proto)
        types: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for place, value in enumerate(operation.inputs):
            if value is None:
                continue
            name = node.input[place] = f"input {place}"
            types[name] = helper.make_tensor_type_proto(value.elem, value.shape)
            if (value.constant and value.elem in (6, 7) and 0 < value.elements <= 64) or (
                value.constant and value.elem == 1 and len(value.sizes) <= 1 and value.elements == 1
            ):
                data[name] = numpy_helper.from_array(value.read(), name)
        try:
            imports = list(self.model.proto.opset_import)
            inferred = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
        except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise StepError(f"has a {operation.op} whose types do not fit: {error}", where=self.where) from error
        return {name: _described(kind) for name, kind in inferred.items()}


def _is_product(value: Value | None) -> bool:
    """Whether a value is a product with a matrix, perhaps reshaped."""
    while value is not None and value.producer is not None and value.producer.op == "Reshape":
        value = value.producer.inputs[0]
    return value is not None and value.producer is not None and value.producer.op in ("MatMul", "Gemm")


def _described(kind: Any) -> tuple[tuple[int, ...] | None, int]:
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or any(not axis.HasField("dim_value") for axis in tensor.shape.dim):
        return None, tensor.elem_type
    return tuple(axis.dim_value for axis in tensor.shape.dim), tensor.elem_type


def _passed_by(operation: Operation) -> Value | None:
    """The input that an operation gives back as it is; None if it does something."""
    first = operation.input(0)
    if first is None or len(operation.outputs) != 1:
        return None
    if operation.op in ("Identity", "Dropout"):
        return first
    result = operation.output
    if operation.op == "Cast":
        return first if first.elem == result.elem else None
    if operation.op == "Concat" and len(operation.inputs) == 1:
        return first
    same = first.shape is not None and first.shape == result.shape
    if operation.op in _SAME_SHAPE_SAME_VALUES and same:
        backwards = operation.op == "Slice" and len(operation.inputs) == 5 and not _forwards(operation.inputs[4])
        return None if backwards else first
    if operation.op == "Transpose" and same:
        order = operation.attributes.get("perm")
        return first if order is not None and list(order) == sorted(order) else None
    return None


def _forwards(steps: Value | None) -> bool:
    return steps is None or (steps.constant and bool((steps.read() > 0).all()))


def evaluate_constant(operation: Operation) -> list[Array]:
    """The results of an operation all of whose inputs are constant, or of a Shape."""
    first = operation.inputs[0] if operation.inputs else None
    if operation.op in ("Shape", "Size") and first is not None:
        sizes = np.array(first.sizes, np.int64)
        if operation.op == "Size":
            return [np.array(sizes.prod(), np.int64)]
        return [sizes[operation.attributes.get("start", 0) : operation.attributes.get("end")]]
    if operation.op == "Transpose" and first is not None:
        order = operation.attributes.get("perm")
        return [first.read().transpose(None if order is None else tuple(order))]
    if operation.op == "GatherElements" and first is not None:
        # The reference evaluator gathers from 32 places at most, and beyond them by the first index of each row.
        return [_gathered(first.read(), operation.operands[1].read(), operation.attributes.get("axis", 0))]
    feeds = {value: value.read() for value in operation.operands}
    return evaluate([operation], feeds, operation.outputs)


def _gathered(values: Array, places: Array, axis: int) -> Array:
    """What GatherElements gives: along the other axes, as many values are looked at as there are places."""
    axis %= values.ndim
    near = tuple(slice(None if each == axis else size) for each, size in enumerate(places.shape))
    return np.take_along_axis(values[near], places, axis)


def evaluate(operations: Sequence[Operation], feeds: Mapping[Value, Array], wanted: Sequence[Value]) -> list[Array]:
    """Runs some operations with ONNX's reference evaluator.

    Args:
        operations: In order. What they read is fed, made by one of them, or constant.
        feeds: Contents of values.
        wanted: What to return, in this order.

    Raises:
        StepError: The evaluator failed.
    """
    from onnx import NodeProto, helper
    from onnx.reference import ReferenceEvaluator

    given = dict(feeds)
    made = {value for operation in operations for value in operation.outputs}
    for operation in operations:
        for value in operation.operands:
            if value.constant and value not in made:
                given.setdefault(value, value.read())
    names = {value: f"v{number}" for number, value in enumerate(dict.fromkeys([*given, *made]))}
    nodes, opsets = [], {"": 1}
    for operation in operations:
        node = NodeProto()
        node.CopyFrom(operation.proto)
        del node.input[:]
        node.input.extend(names[value] if value is not None else "" for value in operation.inputs)
        results = iter(operation.outputs)
        for place, name in enumerate(node.output):
            node.output[place] = names[next(results)] if name else ""
        nodes.append(node)
        opsets["" if node.domain == "ai.onnx" else node.domain] = operation.version
    unknown = [helper.make_empty_tensor_value_info(names[value]) for value in given]
    results_of = [helper.make_empty_tensor_value_info(names[value]) for value in wanted]
    graph = helper.make_graph(nodes, "part", unknown, results_of)
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(graph, opsets=opsets).run(None, {names[v]: a for v, a in given.items()})
    except Exception as error:  # the evaluator raises what it likes
        ops = ", ".join(sorted({operation.op for operation in operations}))
        raise StepError(f"could not be evaluated: {type(error).__name__}: {error}", where=ops) from error
    return [np.asarray(array) for array in found]
