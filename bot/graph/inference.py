"""The types of a graph's tensors, from inference rather than from what the file says of them.

What a file says of its intermediate tensors may be stale: tools that edit graphs often leave it as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.model_file import Model, graphs_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnx.defs import OpSchema


def schema_of(node: NodeProto, opsets: dict[str, int]) -> OpSchema | None:
    """ONNX's own definition of a node's operator, in the version that the model uses; None where ONNX has none.

    Args:
        node: Any node.
        opsets: Version per domain, the default one being `ai.onnx`.
    """
    from onnx import defs

    version = opsets.get(node.domain or "ai.onnx")
    if version is None:
        return None
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return defs.get_schema(node.op_type, version, domain)
    except defs.SchemaError:
        return None


def infer(model: Model, opsets: dict[str, int]) -> ModelProto:
    """A copy of the model in which every tensor that ONNX can tell the type of has its type.

    Declarations of intermediate tensors are dropped first. Only outputs of operators that ONNX does not know keep
    what the file declares of them: there is no other source for it.

    Args:
        model: The model; it stays as it is.
        opsets: Version per domain.

    Raises:
        StepError: Inference found a contradiction.
    """
    from onnx import ModelProto, shape_inference

    proto = ModelProto()
    proto.CopyFrom(model.proto)
    for graph in graphs_of(proto):
        _forget_types(graph, opsets)
    try:
        return shape_inference.infer_shapes(proto, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise StepError(f"types do not fit together: {error}", where=model.path.name) from error


def _forget_types(graph: GraphProto, opsets: dict[str, int]) -> None:
    foreign = {name for node in graph.node if schema_of(node, opsets) is None for name in node.output if name}
    kept = [value for value in graph.value_info if value.name in foreign]
    del graph.value_info[:]
    graph.value_info.extend(kept)
