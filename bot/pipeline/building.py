"""Builds the artifacts: each step in the worker, each finished step kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import digest, file_sha256
from bot.errors import StepError
from bot.graph import steps
from bot.pipeline.context import Context
from bot.pipeline.identity import TOOLS
from bot.pipeline.prepare import Prepared, checked_steps
from bot.pipeline.samples import Samples
from bot.pipeline.searching import TASK, Searching, searching
from bot.pipeline.sidecars import with_sidecar
from bot.pipeline.sources import SourceModel, inspect
from bot.recipe import EXPORT
from bot.records import Artifact, FileRecord, Json, StepRecord
from bot.work import code_digest, versions

MODEL = "model.onnx"


@dataclass(frozen=True)
class Built:
    """An artifact and the file that it stands for.

    Attributes:
        artifact: Its record.
        path: Where its graph lies; the files with its weights lie beside it under the names that the graph gives them.
        random_weights: The file says of itself that its weights are random.
    """

    artifact: Artifact
    path: Path
    random_weights: bool = False

    def files(self) -> dict[str, Path]:
        """Where each of its files lies, by its path in the target."""
        names = zip(self.artifact.weights, self.artifact.signature.external_files, strict=True)
        return {self.artifact.file: self.path} | {record.path: self.path.parent / name for record, name in names}


def build_artifacts(
    context: Context,
    prepared: Prepared,
    feeds: dict[str, dict[str, Path]],
    taken_over: Mapping[str, Built] | None = None,
    calibration: Samples | None = None,
) -> list[Built]:
    """Builds every artifact of the recipe, but those that lie in the target already.

    Args:
        context: The surroundings.
        prepared: What was fetched.
        feeds: Per upstream file, the samples of each graph input, for steps that look at data.
        taken_over: The artifacts that lie in the target; those that are missing here are left out.
        calibration: Samples that are not judged, for steps that calibrate.

    Raises:
        StepError: A step failed, naming the artifact and the step.
    """
    plans = checked_steps(prepared.recipe)
    built = []
    for key, artifact in prepared.recipe.plan.artifacts.items():
        if artifact.taken_over:
            built += [taken_over[key]] if taken_over and key in taken_over else []
            continue
        context.reporter.stage("build", key)
        search = searching(prepared, key, calibration)
        built.append(_build(context, prepared, key, plans[key], feeds[prepared.recipe.made_from(key)], search))
    return built


def _build(
    context: Context,
    prepared: Prepared,
    key: str,
    plan: list[tuple[str, dict[str, Json]]],
    feeds: dict[str, Path],
    search: Searching | None,
) -> Built:
    recipe = prepared.recipe
    made_from = recipe.made_from(key)
    path, sha256 = prepared.source_files[made_from], prepared.source.files[made_from].sha256
    content = sha256 if recipe.exported(made_from) else prepared.models[made_from].sha256
    records = []
    tools: dict[str, str] = {}
    for index, (name, parameters) in enumerate(plan):
        try:
            model = prepared.models[made_from] if name == EXPORT else None
            path, result = run_step(context, name, parameters, path, content, feeds, recipe.code, model, search)
        except StepError as error:
            place = recipe.locate("artifacts", key, "steps", index)
            where = f"{place}: step {name} of {key}" + (f", {error.where}" if error.where else "")
            raise StepError(error.what, where=where, remedy=error.remedy) from error
        sha256, content = result["sha256"], result.get("content", result["sha256"])
        records.append(StepRecord(name=name, parameters=parameters, report=result["report"]))
        tools |= result["built_with"]
    inspection = inspect(context, path)
    plan_of = recipe.plan.artifacts[key]
    artifact = Artifact(
        name=key,
        file=plan_of.file,
        made_from=made_from,
        frozen=bool(plan_of.frozen),
        on_change=recipe.on_change(key),
        steps=tuple(records),
        bytes=path.stat().st_size,
        sha256=sha256,
        weights=_weights(path, plan_of.file, inspection.signature.external_files),
        signature=inspection.signature,
        census=inspection.census,
        built_with=tools,
    )
    return Built(with_sidecar(recipe, prepared.source, artifact), path, inspection.random_weights)


def _weights(path: Path, file: str, names: Sequence[str]) -> tuple[FileRecord, ...]:
    """The records of the files that hold a graph's weights, by their paths in the target."""
    from bot.hub.bundle import beside

    files = {name: path.parent / name for name in names}
    return tuple(
        FileRecord(path=beside(file, name), bytes=each.stat().st_size, sha256=file_sha256(each))
        for name, each in files.items()
    )


def run_step(
    context: Context,
    name: str,
    parameters: dict[str, Json],
    source: Path,
    source_sha256: str,
    feeds: dict[str, Path],
    code: Path | None,
    model: SourceModel | None = None,
    search: Searching | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Runs one step in the worker, unless it was run before on the same bytes by the same code and tools.

    Args:
        context: The surroundings.
        name: The step.
        parameters: All of them.
        source: The model file that it reads.
        source_sha256: Of that file; or a digest of it and of the files with its weights.
        feeds: The samples of each graph input.
        code: The recipe's recipe.py.
        model: The torch module that it exports, for a step that does.
        search: Calibration samples and limits, for a step that looks at them.

    Returns:
        The model file, and `sha256` (of it), `content` (of it and of the files beside it), `report` and `built_with`.
    """
    key = {
        "step": name,
        "parameters": parameters,
        "model": source_sha256,
        "feeds": {graph_input: path.parent.name for graph_input, path in sorted(feeds.items())},
        "code": code_digest("bot.graph"),
        "recipe_code": file_sha256(code) if code else "",
        "tools": versions(TOOLS),
    }
    if model is not None:
        key |= {"module": model.sha256, "feeds": {}}  # an export reads no samples
        feeds = {}
    environment = model.environment if model else None
    spec = steps.STEPS.get(name)
    looks = search if search is not None and (spec is None or spec.calibrates) else None
    if looks is not None:
        key |= {"search": looks.key()}

    def make(folder: Path) -> dict[str, Json]:
        scratch = folder / "scratch"
        scratch.mkdir()
        answer = context.call(
            TASK if looks else "graph.step",
            {
                "step": name,
                "source": str(source),
                "output": str(folder / MODEL),
                "parameters": parameters,
                "scratch": str(scratch),
                "feeds": {graph_input: str(path) for graph_input, path in feeds.items()},
                "code": str(code) if code else None,
                "files": {name: str(path) for name, path in model.files.items()} if model else {},
                **(looks.arguments() if looks else {}),
            },
            reads=[
                source.parent,
                *{path.parent for path in feeds.values()},
                *([code] if code else []),
                *(model.reads if model else ()),
                *(looks.reads() if looks else ()),
            ],
            writes=[folder],
            environment=environment,
        )
        shutil.rmtree(scratch)
        report, tools = answer["report"], answer["built_with"]
        if environment is not None and isinstance(report, dict):
            report["environment"] = environment.name
        written = {
            each.relative_to(folder).as_posix(): file_sha256(each) for each in folder.rglob("*") if each.is_file()
        }
        sha256 = written[MODEL]
        content = digest(written) if len(written) > 1 else sha256  # a graph is the same whatever its weights are
        return {"sha256": sha256, "content": content, "report": report, "built_with": tools}

    folder, result = context.work.entry("steps", key, make)
    return folder / MODEL, result
