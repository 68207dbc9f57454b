"""The step `export_torch`: a torch module from upstream's weights, as an ONNX graph that answers as it does.

What the module is, an architecture says (`bot.graph.export`), built in or in the recipe's own recipe.py. The graph is
refused if it dropped an input, or answers otherwise than torch at any size that its signature allows.
"""

from __future__ import annotations

import importlib.util
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bot.errors import BotError, StepError
from bot.graph.export.interface import Architecture, Exportable, Files
from bot.graph.export.parameters import ExportTorchParameters
from bot.graph.export.registry import ARCHITECTURES, find_architecture
from bot.graph.steps import StepContext
from bot.records import Json

if TYPE_CHECKING:
    from bot.graph.export.truth import Truth


def export_torch(
    source: Path, output: Path, parameters: ExportTorchParameters, context: StepContext
) -> dict[str, Json]:
    """Exports a module.

    Args:
        source: The upstream file that the artifact is made from. It is among `context.files`, by its key.
        output: The .onnx to write.
        parameters: See `ExportTorchParameters`.
        context: `files`: every upstream file of the recipe; `code`: its recipe.py.

    Returns:
        `exporter`, `opset`, `seconds`, `nodes`, `python`; `truth`: a row per output and run against torch; `refused`:
        cases that the graph answers otherwise than torch, and must not be asked; `facts` and `axes` for the sidecar.

    Raises:
        UpstreamError: The weights or the configuration are not what the architecture reads.
        StepError: The module cannot be exported, or the graph does not answer as it does.
    """
    from bot.graph.export.tracing import export
    from bot.graph.export.truth import hold_against_torch

    context.progress(0, 3, "building the module")
    exportable = load_exportable(parameters.architecture, parameters.own, Files(context.files), context.code)
    context.progress(1, 3, "exporting")
    started = time.monotonic()
    chosen = exportable.exporter if parameters.exporter == "auto" else parameters.exporter
    model = export(exportable, output, opset=parameters.opset, exporter=chosen)
    seconds = time.monotonic() - started
    truth = hold_against_torch(exportable, output, tolerance=parameters.tolerance, progress=context.progress)
    return {
        "exporter": chosen,
        "opset": parameters.opset,
        "nodes": len(model.graph.node),
        "seconds": round(seconds, 1),
        "python": python_version(),
        "truth": [row.to_plain() for row in truth.rows],
        "refused": dict(truth.refused),
        **describe(exportable, truth),
    }


def describe(exportable: Exportable, truth: Truth) -> dict[str, Json]:
    """What a sidecar takes from an architecture and from how its graph was held against torch, as plain data."""
    facts = exportable.facts
    for case in exportable.cases:
        outcome = "refused" if case.name in truth.refused else "right"
        key = "partial" if case.hides == "part" else "whole"
        masks = [mask.model_copy(update={key: outcome}) if mask.input == case.mask else mask for mask in facts.masks]
        facts = facts.model_copy(update={"masks": tuple(masks)})
    return {
        "facts": facts.to_plain(),
        "axes": [
            {"name": axis.name, "minimum": axis.minimum, "maximum": axis.maximum, "multiple_of": axis.multiple_of}
            for axis in exportable.axes
        ],
    }


def load_exportable(name: str, own: dict[str, Json], files: Files, code: Path | None) -> Exportable:
    """Builds and describes a module. Runs in the worker only.

    Args:
        name: The architecture: one that the recipe's recipe.py defines, or a built-in one.
        own: What the recipe says beside the name.
        files: Upstream's, by the recipe's keys.
        code: The recipe's recipe.py.

    Raises:
        UpstreamError: A file is not what the architecture reads.
        StepError: There is no such architecture, it does not take these parameters, or it failed.
    """
    architecture = _from_code(name, code) if code is not None else None
    try:
        architecture = architecture or find_architecture(name)
        parameters = architecture.parameters.model_validate(own)
        return architecture.load(files, parameters)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StepError(f"{place}: {first['msg']}", where=f"architecture {name}") from error
    except BotError:
        raise
    except ModuleNotFoundError as error:
        raise StepError(
            f"needs the package {error.name}, which is not here",
            where=f"architecture {name}",
            remedy="Name it under `requires` in the recipe and run `bot lock NAME`; or install the extra `export`.",
        ) from error
    except Exception as error:
        raise StepError(f"failed: {type(error).__name__}: {error}", where=f"architecture {name}") from error


def packages_of(name: str) -> tuple[str, ...]:
    """The packages whose version can change the graph of a built-in architecture."""
    known = find_architecture(name).packages if name in ARCHITECTURES else ()
    return ("torch", "onnx", "onnxruntime", "numpy", *known)


def python_version() -> str:
    """Of the interpreter that the module was built in."""
    return platform.python_version()


def _from_code(name: str, code: Path) -> Architecture | None:
    """The architecture that a recipe.py defines under this name: a value of type `Architecture`."""
    specification = importlib.util.spec_from_file_location(f"recipe_{code.parent.name.replace('-', '_')}", code)
    if specification is None or specification.loader is None:
        raise StepError("cannot be loaded as Python.", where=str(code))
    module: Any = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise StepError(f"failed while it was loaded: {type(error).__name__}: {error}", where=str(code)) from error
    found = [value for value in vars(module).values() if isinstance(value, Architecture) and value.name == name]
    return found[0] if found else None
