"""What stands for an artifact on a provider that cannot run it.

A file with an operator that has no kernel on the CPU is still to be held against its source, and a CPU is what every
machine has. Some steps know a twin of such a form: the same arithmetic, written with operators that the CPU has. The
artifact's answers, its checks and its figures on the CPU are then the twin's. That it opens is not: only its own
provider tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.errors import StepError
from bot.graph import steps
from bot.measure import availability, runtimes
from bot.pipeline.building import Built, build_artifacts
from bot.pipeline.context import Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples, load_calibration
from bot.recipe import Recipe
from bot.recipe_plan import StepPlan
from bot.records import Json, Measurement

KERNELS_RULE = "kernels of the promised runtime"


def with_parameters(recipe: Recipe, artifact: str, parameters: Mapping[int, Mapping[str, Json]]) -> Recipe:
    """A recipe of one artifact, with other parameters for some of its steps, by their places."""
    plan = recipe.plan.artifacts[artifact]
    changed = tuple(
        StepPlan(name=step.name, parameters=dict(parameters.get(place, step.parameters)))
        for place, step in enumerate(plan.steps)
    )
    artifacts = {artifact: plan.model_copy(update={"steps": changed})}
    return replace(recipe, plan=recipe.plan.model_copy(update={"artifacts": artifacts}))


def stand_in(context: Context, prepared: Prepared, each: Built, samples: Samples, provider: str) -> Built | None:
    """What an artifact is measured as on a provider: itself, or its twin; None where it has neither there.

    Raises:
        StepError: The twin cannot be built.
    """
    if provider not in each.artifact.signature.not_on:
        return each
    twins = {
        place: twin
        for place, step in enumerate(each.artifact.steps)
        if step.name in steps.STEPS and (twin := steps.twin_of(step.name, step.parameters, provider)) is not None
    }
    if not twins:
        return None
    recipe = with_parameters(prepared.recipe, each.artifact.name, twins)
    calibration = load_calibration(context, prepared, samples)
    (built,) = build_artifacts(context, replace(prepared, recipe=recipe), samples.feeds, calibration=calibration)
    if provider in built.artifact.signature.not_on:
        raise StepError(f"the twin has no kernels on {provider} either", where=each.artifact.name)
    return built


def said_of(figures: list[Measurement], each: Built, measured: Built) -> list[Measurement]:
    """Figures that say so where a twin was measured."""
    if measured is each:
        return figures
    note = "measured on its twin, the same arithmetic with operators that this provider has"
    return [figure.model_copy(update={"method": f"{figure.method}; {note}"}) for figure in figures]


def opening_provider(each: Built) -> str | None:
    """The provider that a file is opened on: the CPU, or the first here that has kernels for it; None if none is."""
    lacking = each.artifact.signature.not_on
    return next((name for name in ("cpu", *availability.available()) if name not in lacking), None)


def kernels(prepared: Prepared, each: Built) -> list[dict[str, Json]]:
    """Whether the oldest runtime that the target promises has kernels that compute the file rightly, per provider."""
    promise = prepared.recipe.plan.target.runtime
    promised = tuple(int(part) for part in runtimes.oldest_version(promise).split("."))
    found: list[dict[str, Json]] = []
    for provider, oldest in each.artifact.signature.minimum_runtime_on.items():
        enough = tuple(int(part) for part in oldest.split(".")) <= promised
        reason = f"on {provider} its kernels compute rightly from ONNX Runtime {oldest} on; the target promises "
        found.append(
            {
                "rule": KERNELS_RULE,
                "status": "passed" if enough else "failed",
                "provider": provider,
                "reason": reason + promise,
                "required": True,
            }
        )
    return found
