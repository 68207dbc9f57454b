"""What an artifact is made from and held against: an ONNX file, or a torch module built from upstream's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import canonical_json, digest, file_sha256
from bot.environments import Environment, ensure_environment
from bot.graph.export.parameters import ExportTorchParameters
from bot.graph.export.registry import ARCHITECTURES
from bot.pipeline.context import Context
from bot.pipeline.identity import TOOLS
from bot.recipe import EXPORT, Recipe
from bot.records import Census, Inspection, Json, Signature, Source, TensorSignature
from bot.work import code_digest, versions

DESCRIPTION = "module.torch.json"

TORCH_TOOLS = ("torch", "transformers", "safetensors", "timm", "linmult")
"""Packages whose version can change what a module answers."""


@dataclass(frozen=True)
class SourceModel:
    """A source.

    Attributes:
        path: The .onnx; or the description of a torch module, which `bot.reference` reads.
        sha256: Of all that decides what it answers.
        reads: Files and folders that a worker must see to open it.
        files: The upstream files that a module is built from, by the recipe's keys; none for an ONNX file.
        environment: Where it is opened; None for an ONNX file.
    """

    path: Path
    sha256: str
    reads: tuple[Path, ...]
    files: Mapping[str, Path]
    environment: Environment | None = None

    @property
    def is_module(self) -> bool:
        """Whether it is a torch module."""
        return self.environment is not None

    def task(self, name: str) -> str:
        """The worker's task that takes this source where `measure.NAME` takes an ONNX file."""
        return f"reference.{name}" if self.is_module else f"measure.{name}"


def check_exports(recipe: Recipe, own: frozenset[str] = frozenset()) -> None:
    """Stops at an export that cannot be: not the first step, of an unknown architecture, or two that differ.

    Args:
        recipe: The recipe.
        own: Names at the top level of its recipe.py.

    Raises:
        RecipeError: There is one.
    """
    asked: dict[str, tuple[str, Any]] = {}
    for key, artifact in recipe.plan.artifacts.items():
        source = recipe.made_from(key)
        for index, step in enumerate(artifact.steps):
            place = ("artifacts", key, "steps", index)
            if step.name != EXPORT:
                if index == 0 and recipe.exported(source):
                    what = f"begins without {EXPORT}, and another artifact from {source!r} begins with it"
                    recipe.fail(place, what, "Name the upstream file a second time, under another key.")
                continue
            if index:
                recipe.fail(place, f"{EXPORT} makes a graph out of weights, and can only come first")
            parameters = ExportTorchParameters.model_validate(step.parameters)
            if parameters.architecture not in ARCHITECTURES and recipe.code is None:
                known = ", ".join(sorted(ARCHITECTURES))
                recipe.fail(place, f"there is no architecture {parameters.architecture!r}", f"There are: {known}.")
            wanted = (parameters.architecture, parameters.own)
            if asked.setdefault(source, wanted) != wanted:
                what = f"another artifact from {source!r} is exported as another module"
                recipe.fail(place, what, "Name the upstream file a second time, under another key.")


def open_sources(context: Context, recipe: Recipe, source: Source, files: Mapping[str, Path]) -> dict[str, SourceModel]:
    """The sources of all artifacts, by the key of the upstream file; for a module its environment is made ready.

    Raises:
        RecipeError: The recipe requires another Python, or packages that are not locked.
        StepError: The environment cannot be made.
    """
    found = {}
    for key in recipe.models:
        if recipe.exported(key):
            found[key] = _module(context, recipe, key, source, files)
        else:
            found[key] = onnx_source(key, source, files)
    return found


def onnx_source(key: str, source: Source, files: Mapping[str, Path]) -> SourceModel:
    """An upstream .onnx file; its weights may lie in other files that the recipe names."""
    path, sha256 = files[key], source.files[key].sha256
    beside = {name: record.sha256 for name, record in source.files.items() if not record.path.endswith(".onnx")}
    return SourceModel(path, digest({"graph": sha256, "beside": beside}) if beside else sha256, (path.parent,), {})


def _module(context: Context, recipe: Recipe, key: str, source: Source, files: Mapping[str, Path]) -> SourceModel:
    environment = ensure_environment(recipe, context.work.entry, context.reporter.update)
    step = next(artifact.steps[0] for name, artifact in recipe.plan.artifacts.items() if recipe.made_from(name) == key)
    parameters = ExportTorchParameters.model_validate(step.parameters)
    code = recipe.code
    description: dict[str, Json] = {
        "architecture": parameters.architecture,
        "parameters": parameters.own,
        "files": {name: str(path) for name, path in files.items()},
        "code": str(code) if code else None,
    }

    def make(folder: Path) -> dict[str, Json]:
        (folder / DESCRIPTION).write_bytes(canonical_json(description))
        return {}

    folder, _ = context.work.entry("modules", description, make)
    decides = {
        "architecture": parameters.architecture,
        "parameters": parameters.own,
        "files": {name: record.sha256 for name, record in source.files.items()},
        "recipe_code": file_sha256(code) if code else "",
        "code": code_digest("bot.graph.export"),
        "environment": environment.digest or versions(TORCH_TOOLS),
    }
    reads = (folder, *dict.fromkeys(path.parent for path in files.values()), *([code] if code else []))
    return SourceModel(folder / DESCRIPTION, digest(decides), reads, dict(files), environment)


def inspect_source(context: Context, model: SourceModel) -> Inspection:
    """Signature and census of a source, found in the worker.

    Of a module the signature has no versions, since there is no graph yet, and the census counts parameters only.
    """
    if model.environment is None:
        return inspect(context, model.path)
    environment = model.environment

    def make(_: Path) -> dict[str, Json]:
        return context.call(
            "reference.describe", {"model": str(model.path)}, reads=model.reads, environment=environment
        )

    _, found = context.work.entry("descriptions", {"module": model.sha256}, make)
    return Inspection(
        signature=Signature(
            inputs=tuple(TensorSignature.model_validate(port) for port in found["inputs"]),
            outputs=tuple(TensorSignature.model_validate(port) for port in found["outputs"]),
            opsets={},
            ir_version=0,
            minimum_runtime="",
        ),
        census=Census(nodes=0, by_op={}, casts=0, parameters=found["parameters"]),
        random_weights=bool(found["random_weights"]),
    )


def inspect(context: Context, model: Path) -> Inspection:
    """Looks at one model file, in the worker."""
    key = {"model": file_sha256(model), "code": code_digest("bot.graph"), "tools": versions(TOOLS)}
    _, found = context.work.entry(
        "inspections", key, lambda _: context.call("graph.inspect", {"model": str(model)}, reads=[model.parent])
    )
    return Inspection.model_validate(found)
