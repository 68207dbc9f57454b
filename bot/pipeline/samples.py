"""The samples that everything is measured on, ready to be fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.recipe_plan import InputPlan
from bot.records import Json
from bot.work import code_digest, versions


@dataclass(frozen=True)
class Samples:
    """The samples, ready to be fed.

    Attributes:
        digest: Of the list of samples.
        digests: Of each sample, in order.
        feeds: Per upstream file: graph input to .npy.
        skipped: How many were left out, by reason.
        objects: Per sample, the boxes that the data set says are in it, by the recipe's keys of inputs; empty where it
            says nothing of it.
    """

    digest: str
    digests: list[str]
    feeds: dict[str, dict[str, Path]]
    skipped: dict[str, int]
    objects: list[dict[str, Any]] = field(default_factory=list)

    def objects_of(self, key: str) -> list[Any] | None:
        """Per sample, the boxes in the pixels of one input; None where the data set names none at all."""
        found = [each.get(key) for each in self.objects]
        return [each or [] for each in found] if any(each is not None for each in found) else None


def load_samples(context: Context, prepared: Prepared) -> Samples:
    """Turns the data set into what the graphs read, in the worker.

    Raises:
        UpstreamError: Too few samples are left.
    """
    ((_, plan),) = prepared.recipe.plan.measure.samples.items()
    return _load(context, prepared, plan.selection())


def load_calibration(context: Context, prepared: Prepared, judged: Samples) -> Samples | None:
    """The samples that steps look at; None where the recipe names none.

    Args:
        context: The surroundings.
        prepared: What was fetched.
        judged: The samples that are judged.

    Raises:
        RecipeError: A picture is among both, though the recipe keeps them apart: it is there under two names.
        UpstreamError: Too few samples are left.
    """
    recipe = prepared.recipe
    calibration = recipe.plan.calibration
    if calibration is None or calibration.judged:
        return None if calibration is None else judged
    ((_, plan),) = recipe.plan.measure.samples.items()
    found = _load(context, prepared, calibration.selection(plan))
    if both := set(found.digests) & set(judged.digests):
        what = f"{len(both)} samples are among the judged ones too, such as {min(both)[:12]}"
        recipe.fail(("calibration",), what, "The data set has a picture twice: leave one out, or say judged: true.")
    return found


def _load(context: Context, prepared: Prepared, selection: dict[str, Json]) -> Samples:
    recipe = prepared.recipe
    ((name, plan),) = recipe.plan.measure.samples.items()
    plans = _inputs(prepared)
    tokenizers = {given.text.tokenizer for given in plans.values() if given.text is not None}
    specs: dict[str, Json] = {key: _spec(given, prepared.source_files) for key, given in plans.items()}
    key = {
        "files": {name: record.sha256 for name, record in prepared.samples.files.items()},
        "plan": selection,
        "inputs": {key: given.model_dump(mode="json") for key, given in plans.items()},
        "tokenizers": {name: prepared.source.files[name].sha256 for name in tokenizers},
        "code": code_digest("bot.measure"),
        "tools": versions(RUNTIMES),
    }

    def make(folder: Path) -> dict[str, Json]:
        return context.call(
            "measure.samples",
            {
                "loader": plan.loader or name,
                "files": {key: str(path) for key, path in prepared.sample_files.items()},
                "plan": selection,
                "inputs": specs,
                "out": str(folder),
            },
            reads=[*prepared.sample_files.values(), *(prepared.source_files[name] for name in tokenizers)],
            writes=[folder],
        )

    folder, answer = context.work.entry("samples", key, make)
    return Samples(
        digest=answer["digest"],
        digests=[sample["digest"] for sample in answer["samples"]],
        feeds={
            source: {
                graph_input: folder / f"{key.replace('/', '__')}.npy"
                for graph_input, (key, _) in recipe.inputs_of(source).items()
            }
            for source in prepared.models
        },
        skipped=answer["skipped"],
        objects=[sample.get("objects", {}) for sample in answer["samples"]],
    )


def _inputs(prepared: Prepared) -> dict[str, InputPlan]:
    return {key: given for source in prepared.models for key, given in prepared.recipe.inputs_of(source).values()}


def _spec(given: InputPlan, files: Mapping[str, Path]) -> dict[str, Any]:
    """What the recipe says of an input, with the path of a tokenizer in place of its key."""
    spec: dict[str, Any] = given.model_dump(mode="json")
    if given.text is not None:
        spec["text"]["tokenizer"] = str(files[given.text.tokenizer])
    return spec
