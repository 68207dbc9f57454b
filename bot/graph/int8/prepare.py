"""Makes a graph that ONNX Runtime's quantiser can work with: a newer opset, folded constants, types of all tensors.

Without it most of a graph stays float: the quantiser passes over tensors whose type it does not know, and over weights
that are computed from constants.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.functions import inline_functions
from bot.graph.inference import infer
from bot.graph.inspection import opsets_of
from bot.graph.model_file import Model, all_nodes, write_proto

if TYPE_CHECKING:
    from onnx import ModelProto

OLDEST_OPSET = 7
"""The oldest opset that is converted."""

PER_CHANNEL_OPSET = 13
"""From here on QuantizeLinear and DequantizeLinear have an axis."""

_FATAL = 4


def prepare(model: Model, scratch: Path) -> ModelProto:
    """The model with constants folded and a type for every tensor, in opset 13 or later.

    ONNX Runtime's own basic optimiser does the folding: it merges a batch normalisation into its convolution, drops
    what does nothing, and uses no operator but ONNX's own.

    Args:
        model: The model; it is read whole.
        scratch: A folder with room for it.

    Returns:
        Every node has a name of its own. Inputs, outputs and the model's own metadata are those of the source.

    Raises:
        StepError: It is quantised already, larger than protobuf holds, or cannot be converted or opened.
    """
    where = model.path.name
    refuse_quantized(model.proto, where)
    inline_functions(model)
    proto = in_newer_opset(model, PER_CHANNEL_OPSET).whole()
    folded = _fold(proto, scratch, where)
    _restore(folded, proto)
    name_nodes(folded)
    return infer(Model(folded, path=model.path), opsets_of(folded))


def refuse_quantized(proto: ModelProto, where: str) -> None:
    """Refuses a model that has quantised tensors already.

    Raises:
        StepError: It has.
    """
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in all_nodes(proto)):
        raise StepError("is quantised already.", where=where, remedy="Start from the float model.")


def in_newer_opset(model: Model, oldest: int) -> Model:
    """The model in this opset, or in its own if that is newer.

    Args:
        model: Only if its opset is older, it is read whole.
        oldest: The opset.

    Raises:
        StepError: It cannot be converted.
    """
    from onnx import version_converter

    where = model.path.name
    opset = opsets_of(model.proto).get("ai.onnx", 0)
    if opset >= oldest:
        return model
    remedy = f"Export it anew with opset {oldest} or later."
    if opset < OLDEST_OPSET:
        raise StepError(f"has opset {opset}, which is too old to be quantised.", where=where, remedy=remedy)
    try:
        converted: ModelProto = version_converter.convert_version(model.whole(), oldest)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise StepError(
            f"has opset {opset} and cannot be converted to {oldest}: {reason}.", where=where, remedy=remedy
        ) from error
    return Model(converted, path=model.path)


def _fold(proto: ModelProto, scratch: Path, where: str) -> ModelProto:
    import onnx
    import onnxruntime

    source, target = scratch / "to-fold.onnx", scratch / "folded.onnx"
    write_proto(proto, source)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.log_severity_level = _FATAL
    try:
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # The runtime raises classes of its own, which differ between its versions.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:400]
        raise StepError(f"cannot be opened: {reason}", where=where) from error
    folded = onnx.load(target)
    source.unlink()
    target.unlink()
    return folded


def _restore(folded: ModelProto, proto: ModelProto) -> None:
    """What the runtime writes of its own into a model goes; what the source said of itself comes back."""
    used = {node.domain or "ai.onnx" for node in all_nodes(folded)}
    kept = [entry for entry in folded.opset_import if (entry.domain or "ai.onnx") in used | {"ai.onnx"}]
    kept = [entry.__class__(domain=entry.domain, version=entry.version) for entry in kept]
    del folded.opset_import[:]
    folded.opset_import.extend(sorted(kept, key=lambda entry: entry.domain))
    folded.ir_version = proto.ir_version
    for name in ("producer_name", "producer_version", "domain", "doc_string"):
        setattr(folded, name, getattr(proto, name))
    folded.model_version = proto.model_version
    del folded.metadata_props[:]
    folded.metadata_props.extend(proto.metadata_props)
    folded.graph.name = proto.graph.name
    for kind in ("input", "output"):
        own, theirs = getattr(folded.graph, kind), {value.name: value for value in getattr(proto.graph, kind)}
        for value in own:
            if value.name in theirs:
                value.CopyFrom(theirs[value.name])


def name_nodes(proto: ModelProto) -> None:
    """Gives every node of the main graph a name of its own: nodes are kept and excluded by it."""
    taken = {node.name for node in proto.graph.node}
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        name, count = f"{node.op_type}_{index}", 0
        while name in taken or name in seen:
            count += 1
            name = f"{node.op_type}_{index}_{count}"
        node.name = name
        seen.add(name)
    for node in proto.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
