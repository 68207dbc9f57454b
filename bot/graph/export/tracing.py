"""From a torch module to an ONNX file: torch's own exporters, and their traces of this machine taken out again."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import StepError
from bot.graph.export.interface import Exportable, Exporter, Port
from bot.graph.inspection import RANDOM_WEIGHTS

if TYPE_CHECKING:
    import onnx

IR_VERSION = 10
"""The newest that ONNX Runtime 1.22 reads; the library writes a newer one by default."""

SEED = 0


def export(exportable: Exportable, output: Path, *, opset: int, exporter: Exporter | None = None) -> onnx.ModelProto:
    """Exports a module.

    Args:
        exportable: The module.
        output: The .onnx to write.
        opset: Of ONNX's own operators.
        exporter: Another one than the architecture's.

    Returns:
        What was written.

    Raises:
        StepError: The exporter failed, wrote another opset, or left out an input.
    """
    import numpy as np
    import torch

    chosen = exporter or exportable.exporter
    feeds = exportable.example(exportable.traced, np.random.default_rng(SEED))
    arguments = tuple(torch.from_numpy(feeds[port.name]) for port in exportable.inputs)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(exportable, arguments, output, opset, chosen)
    except Exception as error:
        # Exporters fail with classes of their own, and with whatever the module raises.
        raise StepError(
            f"the exporter {chosen} failed: {type(error).__name__}: {_first_line(error)}",
            where="export_torch",
            remedy=f"Try `exporter: {'dynamo' if chosen == 'torchscript' else 'torchscript'}`, or another opset.",
        ) from error
    return _tidy(exportable, output, opset, chosen)


def _run(exportable: Exportable, arguments: tuple[Any, ...], output: Path, opset: int, exporter: Exporter) -> None:
    import torch

    common: dict[str, Any] = {
        "dynamo": exporter == "dynamo",
        "input_names": [port.name for port in exportable.inputs],
        "output_names": [port.name for port in exportable.outputs],
        "opset_version": opset,
    }
    if exporter == "torchscript":
        axes = {port.name: _dynamic(port) for port in (*exportable.inputs, *exportable.outputs)}
        torch.onnx.export(
            exportable.module,
            arguments,
            str(output),
            dynamic_axes=axes,
            **common,
        )
        return
    limits = {axis.name: axis for axis in exportable.axes}
    sizes = {name: torch.export.Dim(name, min=axis.minimum, max=axis.maximum) for name, axis in limits.items()}
    each = tuple({place: sizes[name] for place, name in _dynamic(port).items()} for port in exportable.inputs)
    # A forward(*inputs) has one parameter, which is a tuple.
    parameters = inspect.signature(exportable.module.forward).parameters.values()
    shapes = (each,) if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters) else each
    torch.onnx.export(exportable.module, arguments, str(output), external_data=False, dynamic_shapes=shapes, **common)


def _dynamic(port: Port) -> dict[int, str]:
    return {place: size for place, size in enumerate(port.shape) if isinstance(size, str)}


def _tidy(exportable: Exportable, output: Path, opset: int, exporter: Exporter) -> onnx.ModelProto:
    """Takes out what tells of this machine, and makes names and versions what the recipe and the runtime want."""
    import onnx

    model = onnx.load(str(output))
    _require_opset(model, opset, exporter)
    _strip(model)
    model.ir_version = min(model.ir_version, IR_VERSION)
    for value, port in zip(model.graph.input, exportable.inputs, strict=False):
        _name_axes(value, port)
    for value, port in zip(model.graph.output, exportable.outputs, strict=False):
        _name_axes(value, port)
    if exportable.random_weights:
        onnx.helper.set_model_props(model, {RANDOM_WEIGHTS: "true"})
    _require_inputs(model, exportable)
    output.write_bytes(model.SerializeToString(deterministic=True))
    return model


def _require_opset(model: onnx.ModelProto, opset: int, exporter: Exporter) -> None:
    found = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if found != opset:
        raise StepError(
            f"the exporter {exporter} wrote opset {found} where {opset} was asked for",
            where="export_torch",
            remedy=f"Write `opset: {found}`, or take another exporter.",
        )


def _strip(model: onnx.ModelProto) -> None:
    """Stack traces with absolute paths, module names, documentation: bytes that differ between machines."""
    from bot.graph.model_file import all_graphs, all_nodes

    for part in (model, model.graph, *all_graphs(model), *all_nodes(model), *model.functions):
        del part.metadata_props[:]
        part.doc_string = ""
    for graph in all_graphs(model):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.doc_string = ""
            del value.metadata_props[:]
    model.producer_version = ""
    model.graph.name = "main"


def _name_axes(value: onnx.ValueInfoProto, port: Port) -> None:
    """Gives the axes the names and sizes that the architecture declares."""
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for size in port.shape:
        axis = shape.dim.add()
        if isinstance(size, str):
            axis.dim_param = size
        else:
            axis.dim_value = size


def _require_inputs(model: onnx.ModelProto, exportable: Exportable) -> None:
    """Every declared input is one of the graph's, and some output depends on it."""
    found = [value.name for value in model.graph.input]
    reached = _reaching(model)
    for port in exportable.inputs:
        if port.name in found and port.name in reached:
            continue
        how = "was dropped by" if port.name not in found else "leads nowhere in the graph of"
        raise StepError(
            f"the input {port.name} {how} the exporter: no answer depends on it",
            where="export_torch",
            remedy="The module ignores it, or a branch on its content was decided while it was traced. Compute with it "
            "in forward(), try the other exporter, or do not declare the input.",
        )
    declared = [port.name for port in exportable.inputs]
    if found != declared:
        raise StepError(
            f"the graph has the inputs {', '.join(found)} where {', '.join(declared)} were declared",
            where="export_torch",
        )


def _reaching(model: onnx.ModelProto) -> set[str]:
    """The names of all values that some output of the graph depends on, through subgraphs too."""
    makers = {name: node for node in model.graph.node for name in node.output}
    wanted = [value.name for value in model.graph.output]
    reached: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in makers:
            wanted += _read_by(makers[name])
    return reached


def _read_by(node: onnx.NodeProto) -> list[str]:
    names = list(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names += _read_by(inner)
            names += [value.name for value in graph.output]
    return names


def _first_line(error: BaseException) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return lines[0][:400] if lines else ""
