"""ONNX Runtime's quantiser, called with what was decided, and what it writes put in order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bot.errors import StepError
from bot.graph.inference import infer
from bot.graph.inspection import opsets_of
from bot.graph.int8.calibrate import Calibration
from bot.graph.model_file import Model, all_nodes

if TYPE_CHECKING:
    from onnx import ModelProto

Integer = Literal["uint8", "int8"]

_INFERRED = "onnx.infer"
"""Under this name the quantiser looks for whether types were inferred."""


@dataclass(frozen=True)
class Settings:
    """How numbers are put on their grids.

    Attributes:
        activations: Type of the activations.
        weights: Type of the weights.
        per_channel: A scale for each output channel of a weight, instead of one for all of it.
    """

    activations: Integer = "uint8"
    weights: Integer = "int8"
    per_channel: bool = True


DEFAULTS = Settings()
"""What the kernels of x64 processors are written for, and loses least."""


def static_operators() -> list[str]:
    """The operators that ONNX Runtime's static quantiser knows, sorted."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted(set(QLinearOpsRegistry) | set(QDQRegistry))


def dynamic_operators() -> list[str]:
    """The operators that ONNX Runtime's dynamic quantiser knows, sorted."""
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    return sorted({*IntegerOpsRegistry, "Gemm"})


def unfuse(proto: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Takes every Gemm apart into the MatMul that the dynamic quantiser knows, and an addition.

    Returns:
        A copy, and the name of each MatMul by that of its Gemm. A Gemm that scales, or transposes what it reads, stays.
    """
    from onnx import ModelProto
    from onnxruntime.quantization.onnx_model import ONNXModel

    copy = ModelProto()
    copy.CopyFrom(proto)
    model = ONNXModel(copy)
    model.replace_gemm_with_matmul()
    there = {node.name for node in model.model.graph.node}
    gemms = [node.name for node in proto.graph.node if node.op_type == "Gemm"]
    made: ModelProto = model.model
    return made, {name: f"{name}_MatMul" for name in gemms if f"{name}_MatMul" in there and name not in there}


def quantize(
    proto: ModelProto, nodes: Collection[str], calibration: Calibration, settings: Settings, *, declare: bool = True
) -> ModelProto:
    """Puts QuantizeLinear and DequantizeLinear around some nodes of a model, and their weights into integers.

    Args:
        proto: A prepared model; it stays as it is.
        nodes: Names of the nodes to quantise.
        calibration: The ranges.
        settings: How.
        declare: Say in the model what type each tensor in it has. Of a candidate, which is run once and thrown away,
            nobody reads it.

    Returns:
        The model with the source's metadata, in an IR version that its opset asks for and no newer one.

    Raises:
        StepError: The quantiser fails.
    """
    import numpy as np
    from onnx import ModelProto
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    if not nodes:
        copy = ModelProto()
        copy.CopyFrom(proto)
        return finish(copy, proto, declare=declare)
    types = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
    ranges = {name: (np.float32(low), np.float32(high)) for name, (low, high) in calibration.ranges.items()}
    chosen = set(nodes)
    operators = sorted({node.op_type for node in proto.graph.node if node.name in chosen})
    others = [node.name for node in proto.graph.node if node.name not in chosen]
    working = ModelProto()
    working.CopyFrom(proto)
    working.metadata_props.add(key=_INFERRED, value="onnxruntime.quant")
    try:
        with _quiet():
            quantizer = QDQQuantizer(
                working,
                settings.per_channel,
                False,
                types[settings.weights],
                types[settings.activations],
                TensorsData(CalibrationMethod.MinMax, ranges),
                [],
                others,
                operators,
                {"ActivationSymmetric": settings.activations == "int8", "WeightSymmetric": settings.weights == "int8"},
            )
            quantizer.quantize_model()
            quantizer.model.topological_sort()
    except Exception as error:
        # The quantiser raises ValueError, KeyError, RuntimeError and others, with texts of its own.
        raise StepError(f"ONNX Runtime's quantiser fails: {type(error).__name__}: {str(error)[:300]}") from error
    return finish(quantizer.model.model, proto, declare=declare)


def quantize_dynamic(
    proto: ModelProto, nodes: Collection[str], settings: Settings, scratch: Path, operators: Collection[str]
) -> ModelProto:
    """Puts the weights of some nodes into integers; their activations are quantised at every run anew.

    Args:
        proto: A prepared model; it stays as it is.
        nodes: Names of the nodes to quantise.
        settings: How; activations are uint8 in any case, and one scale is taken over all of a tensor, its batch
            included.
        scratch: A folder with room for both models.
        operators: The operators of these nodes.

    Raises:
        StepError: The quantiser fails.
    """
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as onnxruntime_quantize

    types = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
    chosen = set(nodes)
    source, target = scratch / "to-quantize.onnx", scratch / "quantized.onnx"
    onnx.save(proto, source)
    try:
        with _quiet():
            onnxruntime_quantize(
                source,
                target,
                op_types_to_quantize=sorted(operators),
                per_channel=settings.per_channel,
                weight_type=types[settings.weights],
                nodes_to_exclude=[node.name for node in proto.graph.node if node.name not in chosen],
                # Outputs of the runtime's own operators have no type that ONNX could infer: they are float32.
                extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
            )
    except Exception as error:
        raise StepError(f"ONNX Runtime's quantiser fails: {type(error).__name__}: {str(error)[:300]}") from error
    quantized = onnx.load(target)
    source.unlink()
    target.unlink()
    return finish(quantized, proto)


def finish(proto: ModelProto, source: ModelProto, *, declare: bool = True) -> ModelProto:
    """Takes the quantiser's own marks out, and declares the oldest versions that the graph can do with.

    Args:
        proto: What the quantiser made; it is changed.
        source: Whose metadata it gets.
        declare: Declare the types of the tensors in it, too.
    """
    from onnx import helper

    used = {node.domain or "ai.onnx" for node in all_nodes(proto)}
    kept = [(entry.domain, entry.version) for entry in proto.opset_import]
    kept = [(domain, version) for domain, version in kept if (domain or "ai.onnx") in used | {"ai.onnx"}]
    del proto.opset_import[:]
    for domain, version in sorted(kept):
        proto.opset_import.add(domain=domain, version=version)
    known = [entry for entry in proto.opset_import if entry.domain in ("", "ai.onnx", "ai.onnx.ml")]
    proto.ir_version = max(source.ir_version, helper.find_min_ir_version_for(known))
    del proto.metadata_props[:]
    proto.metadata_props.extend(entry for entry in source.metadata_props if entry.key != _INFERRED)
    for name in ("producer_name", "producer_version", "domain", "doc_string"):
        setattr(proto, name, getattr(source, name))
    if not declare:
        return proto
    typed = infer(Model(proto), opsets_of(proto))
    declared = [value for value in typed.graph.value_info if value.type.tensor_type.HasField("shape")]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(sorted(declared, key=lambda value: value.name))
    for value, inferred in zip(proto.graph.output, typed.graph.output, strict=True):
        if not value.type.tensor_type.HasField("shape") and inferred.type.tensor_type.HasField("shape"):
            value.type.CopyFrom(inferred.type)
    return proto


@contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser logs every tensor that it passes over to the root logger."""
    root: Any = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)
