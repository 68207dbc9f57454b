"""Small ONNX graphs for the tests, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, FLOAT16, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL

Shape = Sequence[int | str] | None


def value(name: str, shape: Shape, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, array: Any, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    name: str = "g",
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(initializers))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 18,
    ir: int = 10,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*item) for item in (domains or {}).items())]
    made = helper.make_model(
        graph(nodes, inputs, outputs, initializers), opset_imports=imports, functions=list(functions), ir_version=ir
    )
    made.producer_name = "test"
    return made


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def run(source: Path | onnx.ModelProto, feeds: Mapping[str, np.ndarray], optimise: bool = True) -> list[np.ndarray]:
    """What ONNX Runtime's CPU provider answers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = str(source) if isinstance(source, Path) else source.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def reference(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's reference evaluator answers: elementwise operators, casts and products in true float16."""
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(proto).run(None, dict(feeds)))
