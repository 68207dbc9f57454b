"""What a look at a model file tells without running it: the versions, the interface, and what it consists of.

The weights are not read, so that a look at a large model takes no longer than one at a small model.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bot.graph.kernels import minimum_runtime_on, not_on
from bot.graph.model_file import Model, all_graphs, all_nodes, read_model
from bot.graph.runtimes import CONTRIB_DOMAIN, minimum_runtime
from bot.graph.tensors import dtype_name
from bot.records import Census, Inspection, Signature, TensorSignature

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, ValueInfoProto

RANDOM_WEIGHTS = "random_weights"
"""Metadata key by which a model says of itself that its weights are random."""

_DENIALS = frozenset({"", "0", "false", "no"})


def inspect_model(path: Path) -> Inspection:
    """Looks at a model file.

    Args:
        path: The .onnx file.

    Raises:
        UpstreamError: It is not there, not a model, damaged, or points outside its folder.
    """
    return inspection_of(read_model(path))


def inspection_of(model: Model) -> Inspection:
    """Looks at a model that was opened already."""
    metadata = {entry.key: entry.value for entry in model.proto.metadata_props}
    return Inspection(
        signature=signature_of(model),
        census=census_of(model.proto),
        metadata=metadata,
        random_weights=metadata.get(RANDOM_WEIGHTS, "").strip().lower() not in _DENIALS,
    )


def signature_of(model: Model) -> Signature:
    """What a consumer must know to open the file and to run it.

    An input with an initializer of the same name is a weight with a default, as runtimes see it, and is left out.
    """
    proto = model.proto
    weights = {tensor.name for tensor in proto.graph.initializer}
    weights |= {sparse.values.name for sparse in proto.graph.sparse_initializer}
    opsets = opsets_of(proto)
    contrib = {node.op_type for node in all_nodes(proto) if node.domain == CONTRIB_DOMAIN}
    return Signature(
        inputs=tuple(_tensor(value) for value in proto.graph.input if value.name not in weights),
        outputs=tuple(_tensor(value) for value in proto.graph.output),
        opsets=opsets,
        ir_version=proto.ir_version,
        minimum_runtime=minimum_runtime(proto.ir_version, opsets, contrib),
        external_files=model.external_files,
        minimum_runtime_on=minimum_runtime_on(proto),
        not_on=not_on(proto),
    )


def opsets_of(proto: ModelProto) -> dict[str, int]:
    """Version per operator domain. ONNX's own domain, which files write as the empty string, is `ai.onnx`."""
    return {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}


def census_of(proto: ModelProto) -> Census:
    """Counts nodes and parameters, those of subgraphs and of model-local functions included; a function's body once."""
    operators = Counter(qualified_op(node) for node in all_nodes(proto))
    parameters: Counter[str] = Counter()
    for graph in all_graphs(proto):
        for tensor in graph.initializer:
            parameters[dtype_name(tensor.data_type)] += _elements(tensor)
        for sparse in graph.sparse_initializer:
            parameters[dtype_name(sparse.values.data_type)] += _elements(sparse.values)
    for node in all_nodes(proto):
        if qualified_op(node) == "Constant":
            parameters.update(_constant(node))
    return Census(
        nodes=operators.total(),
        by_op=dict(sorted(operators.items())),
        casts=operators["Cast"],
        parameters={dtype: count for dtype, count in sorted(parameters.items()) if count},
    )


def qualified_op(node: NodeProto) -> str:
    """An operator's name; of another domain than ONNX's own, `domain:Op`."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"


def _constant(node: NodeProto) -> dict[str, int]:
    """Elements of a Constant node, whichever of its attributes holds them."""
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            return {dtype_name(attribute.t.data_type): _elements(attribute.t)}
        if attribute.name == "sparse_value":
            return _sparse(attribute.sparse_tensor)
        lengths = {
            "value_float": ("float32", 1),
            "value_floats": ("float32", len(attribute.floats)),
            "value_int": ("int64", 1),
            "value_ints": ("int64", len(attribute.ints)),
            "value_string": ("string", 1),
            "value_strings": ("string", len(attribute.strings)),
        }
        if attribute.name in lengths:
            dtype, count = lengths[attribute.name]
            return {dtype: count}
    return {}


def _sparse(sparse: SparseTensorProto) -> dict[str, int]:
    """A sparse tensor counts by the values that it stores."""
    return {dtype_name(sparse.values.data_type): _elements(sparse.values)}


def _elements(tensor: TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _tensor(value: ValueInfoProto) -> TensorSignature:
    kind = value.type.WhichOneof("value")
    if kind == "tensor_type":
        return TensorSignature(
            name=value.name, dtype=dtype_name(value.type.tensor_type.elem_type), shape=_shape(value.type)
        )
    return TensorSignature(name=value.name, dtype=_type_name(value.type), shape=None)


def _shape(kind: TypeProto) -> tuple[int | str | None, ...] | None:
    if not kind.tensor_type.HasField("shape"):
        return None
    sizes: list[int | str | None] = []
    for axis in kind.tensor_type.shape.dim:
        which = axis.WhichOneof("value")
        sizes.append(axis.dim_value if which == "dim_value" else (axis.dim_param or None) if which else None)
    return tuple(sizes)


def _type_name(kind: TypeProto) -> str:
    """A type that is no tensor, in words: `sequence(float32)`, `map(int64, float32)`."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return dtype_name(kind.tensor_type.elem_type)
    if which == "sparse_tensor_type":
        return f"sparse({dtype_name(kind.sparse_tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"sequence({_type_name(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({_type_name(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({dtype_name(kind.map_type.key_type)}, {_type_name(kind.map_type.value_type)})"
    return "undefined"
