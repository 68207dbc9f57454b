"""Which tensors of a graph are half precision, without shapes and without looking at any weight.

Only element types are inferred, from the type variables of the operators' schemas: an output that shares its variable
with an input has that input's type. The operators whose output type comes from an attribute, a subgraph or a container
have a rule of their own. Declared types (`value_info`) are often stale in converted files, so they are believed only
where no rule says anything.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.measure.fp16_schemas import Formal, Schema, find_schema

HALF = 10
FLOAT = 1
STRING = 8
_BOOL = 9
_INT64 = 7


class UnknownTypeError(Exception):
    """Nothing tells whether an output is half precision."""


@dataclass(frozen=True)
class Type:
    """A tensor's element type, or a container of one.

    Attributes:
        element: The ONNX element type; 0 if it is known only that it is not half precision.
        containers: `sequence` and `optional`, the outermost first; empty for a tensor.
    """

    element: int
    containers: tuple[str, ...] = ()

    @property
    def half(self) -> bool:
        """Whether half-precision numbers are in it."""
        return self.element == HALF

    def inside(self) -> Type:
        """The type of what the outermost container holds."""
        return Type(self.element, self.containers[1:])

    def within(self, container: str) -> Type:
        """The type of a container of this."""
        return Type(self.element, (container, *self.containers))


OTHER = Type(0)
Scope = MutableMapping[str, Type]


def of_proto(proto: Any) -> Type | None:
    """The type that a `TypeProto` declares, or None if it declares none."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        element = getattr(proto, kind).elem_type
        return Type(element) if element else None
    if kind == "sequence_type" or kind == "optional_type":
        inner = of_proto(getattr(proto, kind).elem_type)
        return inner.within(kind.removesuffix("_type")) if inner else None
    return None if kind is None else OTHER


@dataclass
class GraphTypes:
    """The types of one graph's values, and those of the graphs in its nodes.

    Attributes:
        scope: Value name to type; names of the graphs around it are visible too.
        inner: Per node position and attribute name, the types of the subgraph there.
    """

    scope: ChainMap[str, Type]
    inner: dict[tuple[int, str], GraphTypes] = field(default_factory=dict)


def infer(graph: Any, opsets: Mapping[str, int]) -> GraphTypes:
    """Infer the element type of every value of a model's graph, subgraphs included.

    Args:
        graph: The main graph, its nodes in topological order and model-local functions inlined.
        opsets: Domain to version.

    Raises:
        UnknownTypeError: An output may be half precision or not, and nothing says which.
    """
    return _graph(graph, opsets, ChainMap(), [])


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    return {attribute.name: attribute for attribute in node.attribute}


def subgraphs(node: Any) -> Iterator[tuple[str, Any]]:
    """The graphs in a node's attributes, with the attribute's name."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g


def label(node: Any) -> str:
    """How an error names a node: its own name, or its first output where it has none."""
    name = node.name or next((output for output in node.output if output), "")
    return f"{node.op_type} node {name!r}"


def _graph(graph: Any, opsets: Mapping[str, int], outer: ChainMap[str, Type], given: Sequence[Type]) -> GraphTypes:
    found = GraphTypes(outer.new_child())
    scope = found.scope
    for index, value in enumerate(graph.input):
        known = given[index] if index < len(given) else None
        scope[value.name] = known or of_proto(value.type) or _unknown(f"graph input {value.name!r} has no type")
    for tensor in graph.initializer:
        scope[tensor.name] = Type(tensor.data_type)
    for sparse in graph.sparse_initializer:
        scope[sparse.values.name] = Type(sparse.values.data_type)
    declared = {value.name: of_proto(value.type) for value in (*graph.value_info, *graph.output)}
    for index, node in enumerate(graph.node):
        for name, kind in _outputs(node, index, opsets, found, declared).items():
            scope[name] = kind
    return found


def _unknown(what: str) -> Type:
    raise UnknownTypeError(what)


def _outputs(
    node: Any, index: int, opsets: Mapping[str, int], found: GraphTypes, declared: Mapping[str, Type | None]
) -> dict[str, Type]:
    scope = found.scope
    inputs = [scope.get(name) if name else None for name in node.input]
    for name, kind in zip(node.input, inputs, strict=True):
        if name and kind is None:
            raise UnknownTypeError(f"{label(node)} reads {name!r}, which nothing produces")

    def run(attribute: str, given: Sequence[Type]) -> list[Type]:
        graph = attributes(node)[attribute].g
        inner = _graph(graph, opsets, scope, given)
        found.inner[index, attribute] = inner
        return [inner.scope[value.name] for value in graph.output]

    if node.domain in ("", "ai.onnx") and (flow := _FLOW.get(node.op_type)):
        kinds: list[Type | None] = list(flow(node, inputs, run))
    else:
        kinds = _plain(node, inputs, opsets)
    result = {}
    for position, name in enumerate(node.output):
        if not name:
            continue
        kind = kinds[position] if position < len(kinds) else None
        kind = kind or declared.get(name)
        if kind is None:
            raise UnknownTypeError(f"nothing tells the type of output {name!r} of {label(node)}")
        result[name] = kind
    return result


# --- control flow: the types come out of the subgraphs ---------------------------------------------------------------

_Run = Callable[[str, Sequence[Type]], list[Type]]
_Inputs = Sequence[Type | None]


def _if(node: Any, inputs: _Inputs, run: _Run) -> list[Type]:
    other = run("else_branch", [])
    return [a if a.half else b for a, b in zip(run("then_branch", []), other, strict=True)]


def _loop(node: Any, inputs: _Inputs, run: _Run) -> list[Type]:
    carried = [kind or OTHER for kind in inputs[2:]]
    return run("body", [Type(_INT64), Type(_BOOL), *carried])[1:]


def _scan(node: Any, inputs: _Inputs, run: _Run) -> list[Type]:
    graph = attributes(node)["body"].g
    # Opset 8 puts an optional input for the sequence lengths in front.
    skip = len(inputs) - len(graph.input)
    return run("body", [kind or OTHER for kind in inputs[skip:]])


def _sequence_map(node: Any, inputs: _Inputs, run: _Run) -> list[Type]:
    kinds = [kind or OTHER for kind in inputs]
    given = [kind.inside() if kind.containers else kind for kind in kinds]
    return [kind.within("sequence") for kind in run("body", given)]


_FLOW: dict[str, Callable[[Any, _Inputs, _Run], list[Type]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}


# --- operators whose output type comes from an attribute or a container ---------------------------------------------


def _attribute_type(name: str, default: int | None) -> Callable[[Any, _Inputs], Type | None]:
    def rule(node: Any, inputs: _Inputs) -> Type | None:
        found = attributes(node).get(name)
        if found is not None and found.i:
            return Type(found.i)
        return Type(default) if default is not None else inputs[0]

    return rule


def _constant(node: Any, inputs: _Inputs) -> Type:
    found = attributes(node)
    if "value" in found:
        return Type(found["value"].t.data_type)
    if "sparse_value" in found:
        return Type(found["sparse_value"].sparse_tensor.values.data_type)
    return OTHER


def _constant_of_shape(node: Any, inputs: _Inputs) -> Type:
    found = attributes(node).get("value")
    return Type(found.t.data_type if found is not None else FLOAT)


def _dequantize(node: Any, inputs: _Inputs) -> Type | None:
    found = attributes(node).get("output_dtype")
    return Type(found.i) if found is not None and found.i else inputs[1]


def _optional(node: Any, inputs: _Inputs) -> Type | None:
    if inputs and inputs[0]:
        return inputs[0].within("optional")
    inner = of_proto(attributes(node)["type"].tp)
    return inner.within("optional") if inner else None


def _optional_element(node: Any, inputs: _Inputs) -> Type | None:
    kind = inputs[0]
    return kind.inside() if kind and kind.containers[:1] == ("optional",) else kind


def _contained(node: Any, inputs: _Inputs) -> Type | None:
    return inputs[0].inside() if inputs[0] else None


def _sequence_of_input(node: Any, inputs: _Inputs) -> Type | None:
    return inputs[0].within("sequence") if inputs[0] else None


def _sequence_empty(node: Any, inputs: _Inputs) -> Type:
    found = attributes(node).get("dtype")
    return Type(found.i if found is not None else FLOAT, ("sequence",))


_BY_ATTRIBUTE: dict[str, Callable[[Any, _Inputs], Type | None]] = {
    "Cast": _attribute_type("to", 0),
    "BitCast": _attribute_type("to", 0),
    "CastLike": lambda node, inputs: inputs[1],
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _attribute_type("dtype", None),
    "Bernoulli": _attribute_type("dtype", None),
    "RandomNormalLike": _attribute_type("dtype", None),
    "RandomUniformLike": _attribute_type("dtype", None),
    "RandomNormal": _attribute_type("dtype", FLOAT),
    "RandomUniform": _attribute_type("dtype", FLOAT),
    "HannWindow": _attribute_type("output_datatype", FLOAT),
    "HammingWindow": _attribute_type("output_datatype", FLOAT),
    "BlackmanWindow": _attribute_type("output_datatype", FLOAT),
    "MelWeightMatrix": _attribute_type("output_datatype", FLOAT),
    "DequantizeLinear": _dequantize,
    "Optional": _optional,
    "OptionalGetElement": _optional_element,
    "SequenceAt": _contained,
    "ConcatFromSequence": _contained,
    "SequenceConstruct": _sequence_of_input,
    "SplitToSequence": _sequence_of_input,
    "SequenceEmpty": _sequence_empty,
}

# Outputs that a schema leaves open and that are statistics in single precision in every implementation.
_STATISTICS = {("LayerNormalization", "Mean"), ("LayerNormalization", "InvStdDev")}


def _plain(node: Any, inputs: _Inputs, opsets: Mapping[str, int]) -> list[Type | None]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain == "" and (rule := _BY_ATTRIBUTE.get(node.op_type)):
        return [rule(node, inputs)]
    schema = find_schema(domain, node.op_type, opsets.get(domain) or opsets.get("ai.onnx", 1))
    if schema is None:
        return []
    bound = _bind(schema, inputs)
    return [
        _bound_output(schema.outputs[min(position, len(schema.outputs) - 1)], schema, bound, node.op_type)
        if schema.outputs
        else None
        for position in range(len(node.output))
    ]


def _bind(schema: Schema, inputs: _Inputs) -> dict[str, Type]:
    bound: dict[str, Type] = {}
    for position, kind in enumerate(inputs):
        if kind is None or not schema.inputs:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        # A heterogeneous variadic input may mix types; one that is half says more than one that is not.
        if formal.variable not in bound or kind.half:
            bound[formal.variable] = kind
    return bound


def _bound_output(formal: Formal, schema: Schema, bound: Mapping[str, Type], op: str) -> Type | None:
    if formal.variable in bound:
        return bound[formal.variable]
    if (op, formal.name) in _STATISTICS or not any("float16" in kind for kind in _allowed(formal, schema)):
        return OTHER
    return None


def _allowed(formal: Formal, schema: Schema) -> Sequence[str]:
    # "bfloat16" holds the letters of "float16" too, so it is taken out first.
    kinds = schema.allowed.get(formal.variable, (formal.variable,))
    return [kind for kind in kinds if "bfloat16" not in kind]
