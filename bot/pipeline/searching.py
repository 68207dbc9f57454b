"""What a step that calibrates is given: samples that are not judged, and what candidates are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.graph import steps
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.recipe import Recipe
from bot.records import Json
from bot.work import code_digest

TASK = "graph.search_step"


@dataclass(frozen=True)
class Searching:
    """Samples and limits for the steps of one artifact.

    Attributes:
        feeds: Graph input to .npy with calibration samples.
        inputs: Per graph input of pictures, how the recipe prepares them.
        judge: What candidates are judged by; None where the artifact has no limit on a decision.
        reference_sha256: Of the source's model file.
    """

    feeds: Mapping[str, Path]
    inputs: dict[str, Json]
    judge: dict[str, Json] | None
    reference_sha256: str

    def key(self) -> dict[str, Json]:
        """What of it decides what a step makes."""
        judge = {name: value for name, value in (self.judge or {}).items() if name != "reference"}
        return {
            "calibration": {name: path.parent.name for name, path in sorted(self.feeds.items())},
            "inputs": self.inputs,
            "judge": {**judge, "reference": self.reference_sha256} if self.judge else None,
            "measure": code_digest("bot.measure"),
        }

    def arguments(self) -> dict[str, Json]:
        """What the task is given besides a step's own arguments."""
        calibration: dict[str, Json] = {name: str(path) for name, path in self.feeds.items()}
        return {"calibration": calibration, "inputs": self.inputs, "judge": self.judge}

    def reads(self) -> list[Path]:
        """The folders that the task has to see."""
        judged = [Path(str(self.judge["reference"])).parent] if self.judge else []
        return [*dict.fromkeys([path.parent for path in self.feeds.values()] + judged)]


def calibrates(recipe: Recipe, artifact: str) -> bool:
    """Whether some step of an artifact looks at calibration samples. A recipe's own step may."""
    planned = recipe.plan.artifacts[artifact].steps
    return any(step.name not in steps.STEPS or steps.STEPS[step.name].calibrates for step in planned)


def searching(prepared: Prepared, artifact: str, calibration: Samples | None) -> Searching | None:
    """What the steps of an artifact are given; None where the recipe has no calibration samples for them.

    Args:
        prepared: What was fetched.
        artifact: Its key.
        calibration: The samples.
    """
    recipe = prepared.recipe
    if calibration is None or not calibrates(recipe, artifact):
        return None
    source = recipe.made_from(artifact)
    inputs: dict[str, Json] = {
        name: given.image.model_dump(mode="json")
        for name, (_, given) in recipe.inputs_of(source).items()
        if given.image is not None
    }
    return Searching(
        feeds=calibration.feeds[source],
        inputs=inputs,
        judge=_judge(prepared, artifact, source, calibration),
        reference_sha256=prepared.models[source].sha256,
    )


def _judge(prepared: Prepared, artifact: str, source: str, calibration: Samples) -> dict[str, Json] | None:
    recipe = prepared.recipe
    plans = recipe.accuracy_of(source)
    gates = {
        rule: gate.model_dump(mode="json")
        for rule, gate in recipe.plan.gates.get(artifact, {}).items()
        if rule.split(".")[0] in plans
    }
    reference = prepared.source_files.get(source)
    if not gates or reference is None or reference.suffix != ".onnx":
        return None  # a torch module has no graph before its export, which candidates could be held against
    return {
        "reference": str(reference),
        "plans": {subject: plan.model_dump(mode="json", by_alias=True) for subject, plan in plans.items()},
        "gates": gates,
        "samples": [*calibration.digests],
        **geometry(recipe, source, calibration),
    }


def geometry(recipe: Recipe, source: str, samples: Samples) -> dict[str, Any]:
    """The size of the picture that goes into a graph, and the boxes that the data set says are in each.

    Both are None where what goes in is not one picture.
    """
    pictures = [(key, given.image) for key, given in recipe.inputs_of(source).values() if given.image is not None]
    if len(pictures) != 1 or len(recipe.inputs_of(source)) != 1:
        return {"size": None, "objects": None}
    ((key, image),) = pictures
    return {"size": list(image.size), "objects": samples.objects_of(key)}
