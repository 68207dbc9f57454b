"""Judges a half-precision model as half-precision hardware would run it, on ONNX Runtime's CPU provider.

That provider computes most half-precision nodes in single precision and drops the casts between them, so a file that
overflows on a GPU looks perfect on it. Here the graph is rewritten first: every half-precision value is rounded to half
between nodes, while a kernel computes in single precision inside, as real ones do, unless it stands in the table of
those that do not (`fp16_kernels.HALF_KERNELS`).

What this does not know: fusions that a GPU provider makes when it loads a file (an addition and a layer normalisation
become one kernel, which on CUDA before 1.27 sums in half); the order of additions inside a kernel; kernels that round a
step on the way without summing, such as FastGelu and RotaryEmbedding, whose error is a few units in the last place
larger than here; attention kernels that hold their scores in half where the hardware has no fused one.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bot.errors import StepError
from bot.measure.fp16_kernels import NotEmulatedError, parse_runtime
from bot.measure.fp16_rewrite import SMALL, Rewritten, rewrite

DEFAULT_RUNTIME = "cuda-1.27+"


@dataclass(frozen=True)
class EmulationReport:
    """What became of a model.

    Attributes:
        status: `emulated`, or `not measured` if something in the model cannot be emulated; then no file was written.
        reason: What cannot be emulated, by name; empty if all can.
        runtime: Whose kernels are emulated.
        nodes: Nodes of the model's main graph.
        rounded: Values that are rounded to half.
        half_kernels: Operator in the model whose kernel holds intermediate results in half, to what these are and how
            that is known.
    """

    status: Literal["emulated", "not measured"]
    reason: str
    runtime: str
    nodes: int = 0
    rounded: int = 0
    half_kernels: dict[str, str] = field(default_factory=dict)


def emulate(model: Path, output: Path, *, runtime: str = DEFAULT_RUNTIME) -> EmulationReport:
    """Write a model that computes in single precision what a half-precision model computes on hardware.

    Inputs and outputs keep their names and types. Run it with graph optimisations off.

    Args:
        model: An ONNX file; its external data lie beside it.
        output: Where the emulated model goes; its external data are linked or copied beside it.
        runtime: `cuda-1.22`, `cuda-1.27+` (that version and later), or `cuda-1.22-strict` for the provider option
            `enable_skip_layer_norm_strict_mode`.

    Returns:
        What was done, or what cannot be emulated.

    Raises:
        RecipeError: The runtime is not known.
        StepError: The file is no ONNX model, or its external data are not beside it.
    """
    proto = load(model)
    nodes = len(proto.graph.node)
    try:
        done = prepare(proto, runtime)
    except NotEmulatedError as refusal:
        return EmulationReport("not measured", str(refusal), runtime, nodes)
    save(proto, model, output)
    return EmulationReport("emulated", "", runtime, nodes, done.rounded, dict(done.half_kernels))


def load(path: Path) -> Any:
    """Read a model and leave its external data where they are.

    Raises:
        StepError: It is no ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.load(path, load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise StepError(f"cannot be read as an ONNX model: {error}", where=str(path)) from error
    if not proto.HasField("graph"):
        raise StepError("holds no graph", where=str(path), remedy="Is it an ONNX model, and whole?")
    return proto


def prepare(proto: Any, runtime: str) -> Rewritten:
    """Rewrite a loaded model in place.

    Raises:
        NotEmulatedError: Something in it cannot be emulated.
        RecipeError: The runtime is not known.
    """
    kernels = parse_runtime(runtime)
    if proto.functions:
        _inline(proto)
    return rewrite(proto, kernels)


def _inline(proto: Any) -> None:
    """Put the bodies of model-local functions where they are called; the large weights are set aside meanwhile."""
    import onnx.inliner

    weights = {}
    for tensor in proto.graph.initializer:
        if tensor.ByteSize() > SMALL and tensor.data_location != tensor.EXTERNAL:
            weights[tensor.name] = tensor.raw_data
            tensor.ClearField("raw_data")
            if not weights[tensor.name]:
                raise NotEmulatedError(f"constant {tensor.name!r} is not stored as raw bytes in a model with functions")
    try:
        inlined = onnx.inliner.inline_local_functions(proto)
    except Exception as error:  # the library raises what it likes
        raise NotEmulatedError(f"the model's functions cannot be inlined: {error}") from error
    proto.CopyFrom(inlined)
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = weights.pop(tensor.name)
    if weights:
        raise NotEmulatedError(f"constant {next(iter(weights))!r} was lost when the model's functions were inlined")


def save(proto: Any, model: Path, output: Path) -> None:
    """Write a rewritten model, with the external data of the model that it comes from beside it.

    Raises:
        StepError: A name of external data leads out of the model's folder, or it is not there.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    for location in sorted(_locations(proto.graph)):
        source = (model.parent / location).resolve()
        if not source.is_relative_to(model.parent.resolve()) or not source.is_file():
            raise StepError(f"external data {location!r} are not beside the model", where=str(model))
        target = output.parent / location
        if target.exists() and target.samefile(source):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    with output.open("wb") as stream:
        stream.write(proto.SerializeToString())


def _locations(graph: Any) -> set[str]:
    found = set()
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            if attribute.HasField("g"):
                found |= _locations(attribute.g)
    for tensor in tensors:
        if tensor.data_location == tensor.EXTERNAL:
            found |= {entry.value for entry in tensor.external_data if entry.key == "location"}
    return found
