"""How much work a model is: floating-point operations of its products, and the bytes that it cannot do without.

Both are counted from the float32 source, for all files that are made of it: what a rebuilt graph leaves out (a last
block for one token only) is a gain and not less work. A multiplication and an addition are two operations. Elementwise
operators, norms and softmax are left out: in a transformer they are less than a hundredth.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import onnx


def operations(model: onnx.ModelProto, batch: int) -> int:
    """Floating-point operations of all products at one batch size.

    Args:
        model: Of ONNX's own operators; its first axes are the batch wherever an input leaves them open.
        batch: Samples in one run.

    Raises:
        ValueError: The shape of a product is not known, or products lie within If, Loop or Scan.
    """
    shapes = _shapes(model, batch)
    total = 0
    for node in model.graph.node:
        if any(attribute.HasField("g") and _has_products(attribute.g) for attribute in node.attribute):
            raise ValueError(f"{node.op_type} {node.name!r} has products inside, which are not counted")
        if node.op_type in _PRODUCTS:
            total += _PRODUCTS[node.op_type](node, shapes)
    return total


def _shapes(model: onnx.ModelProto, batch: int) -> dict[str, list[int]]:
    """The shape of every value, the open axes of the inputs being the batch."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for value in light.graph.input:
        for axis in value.type.tensor_type.shape.dim:
            if not axis.HasField("dim_value"):
                axis.Clear()
                axis.dim_value = batch
    for value in light.graph.output:
        value.type.tensor_type.ClearField("shape")
    del light.graph.value_info[:]
    found = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    shapes = {tensor.name: list(tensor.dims) for tensor in light.graph.initializer}
    for value in (*found.input, *found.value_info, *found.output):
        axes = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(axis.HasField("dim_value") for axis in axes):
            shapes[value.name] = [axis.dim_value for axis in axes]
    return shapes


def _has_products(graph: Any) -> bool:
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return any(node.op_type in _PRODUCTS for node in graph.node) or any(_has_products(each) for each in inner)


def _shape(name: str, node: Any, shapes: dict[str, list[int]]) -> list[int]:
    if name not in shapes:
        raise ValueError(f"the shape of {name!r} at {node.op_type} {node.name!r} is not known")
    return shapes[name]


def _matmul(node: Any, shapes: dict[str, list[int]]) -> int:
    return 2 * prod(_shape(node.output[0], node, shapes)) * _shape(node.input[0], node, shapes)[-1]


def _gemm(node: Any, shapes: dict[str, list[int]]) -> int:
    turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    depth = _shape(node.input[0], node, shapes)[0 if turned else 1]
    return 2 * prod(_shape(node.output[0], node, shapes)) * depth


def _convolution(node: Any, shapes: dict[str, list[int]]) -> int:
    # A weight has the shape (out, in of one group, kernel): every result is a sum over all but the first.
    return 2 * prod(_shape(node.output[0], node, shapes)) * prod(_shape(node.input[1], node, shapes)[1:])


_PRODUCTS = {"MatMul": _matmul, "Gemm": _gemm, "Conv": _convolution}


def least_bytes(path: Path, feeds: dict[str, Any], answers: dict[str, Any]) -> int:
    """What one run has to move at least: all weights once, the inputs and the outputs.

    Args:
        path: The file whose weights are read.
        feeds: The inputs of one run.
        answers: Its outputs.
    """
    from bot.graph.inspection import inspect_model

    inspection = inspect_model(path)
    weights = path.stat().st_size + sum(
        (path.parent / name).stat().st_size for name in inspection.signature.external_files
    )
    return weights + sum(array.nbytes for array in (*feeds.values(), *answers.values()))
