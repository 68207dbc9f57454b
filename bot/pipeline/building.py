"""Builds the artifacts: each step in the worker, each finished step kept."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import file_sha256
from bot.errors import StepError
from bot.pipeline.context import Context
from bot.pipeline.identity import TOOLS
from bot.pipeline.prepare import Prepared, checked_steps, inspect
from bot.records import Artifact, Json, StepRecord
from bot.work import code_digest, versions

MODEL = "model.onnx"


@dataclass(frozen=True)
class Built:
    """An artifact and the file that it stands for."""

    artifact: Artifact
    path: Path


def build_artifacts(context: Context, prepared: Prepared, feeds: dict[str, dict[str, Path]]) -> list[Built]:
    """Builds every artifact of the recipe.

    Args:
        context: The surroundings.
        prepared: What was fetched.
        feeds: Per upstream file, the samples of each graph input, for steps that look at data.

    Raises:
        StepError: A step failed, naming the artifact and the step.
    """
    plans = checked_steps(prepared.recipe)
    built = []
    for key in prepared.recipe.plan.artifacts:
        context.reporter.stage("build", key)
        built.append(_build(context, prepared, key, plans[key], feeds[prepared.recipe.made_from(key)]))
    return built


def _build(
    context: Context,
    prepared: Prepared,
    key: str,
    plan: list[tuple[str, dict[str, Json]]],
    feeds: dict[str, Path],
) -> Built:
    recipe = prepared.recipe
    made_from = recipe.made_from(key)
    path, sha256 = prepared.source_files[made_from], prepared.source.files[made_from].sha256
    records = []
    tools: dict[str, str] = {}
    for index, (name, parameters) in enumerate(plan):
        try:
            path, result = run_step(context, name, parameters, path, sha256, feeds, recipe.code)
        except StepError as error:
            place = recipe.locate("artifacts", key, "steps", index)
            where = f"{place}: step {name} of {key}" + (f", {error.where}" if error.where else "")
            raise StepError(error.what, where=where, remedy=error.remedy) from error
        sha256 = result["sha256"]
        records.append(StepRecord(name=name, parameters=parameters, report=result["report"]))
        tools |= result["built_with"]
    inspection = inspect(context, path)
    artifact = Artifact(
        name=key,
        file=recipe.plan.artifacts[key].file,
        made_from=made_from,
        frozen=recipe.plan.artifacts[key].frozen,
        steps=tuple(records),
        bytes=path.stat().st_size,
        sha256=sha256,
        signature=inspection.signature,
        census=inspection.census,
        built_with=tools,
    )
    return Built(artifact, path)


def run_step(
    context: Context,
    name: str,
    parameters: dict[str, Json],
    source: Path,
    source_sha256: str,
    feeds: dict[str, Path],
    code: Path | None,
) -> tuple[Path, dict[str, Any]]:
    """Runs one step in the worker, unless it was run before on the same bytes by the same code and tools.

    Returns:
        The model file, and `sha256`, `report` and `built_with`.
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

    def make(folder: Path) -> dict[str, Json]:
        scratch = folder / "scratch"
        scratch.mkdir()
        answer = context.call(
            "graph.step",
            {
                "step": name,
                "source": str(source),
                "output": str(folder / MODEL),
                "parameters": parameters,
                "scratch": str(scratch),
                "feeds": {graph_input: str(path) for graph_input, path in feeds.items()},
                "code": str(code) if code else None,
            },
            reads=[source.parent, *{path.parent for path in feeds.values()}, *([code] if code else [])],
            writes=[folder],
        )
        shutil.rmtree(scratch)
        return {"sha256": file_sha256(folder / MODEL), "report": answer["report"], "built_with": answer["built_with"]}

    folder, result = context.work.entry("steps", key, make)
    return folder / MODEL, result
