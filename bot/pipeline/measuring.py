"""Measures every artifact against its source: accuracy, true-fp16 safety, timings, and whether it opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.measure import availability, providers
from bot.pipeline import half
from bot.pipeline.answers import Answers, answers_of, compare, folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.exported import exported_figures
from bot.pipeline.half import emulate
from bot.pipeline.opening import OPENS_RULE, opens_everywhere, opens_in
from bot.pipeline.prepare import Prepared
from bot.pipeline.residual import residual_peaks
from bot.pipeline.samples import Samples
from bot.pipeline.spreads import with_shares, with_spreads
from bot.pipeline.timings import timings
from bot.pipeline.twins import kernels, said_of, stand_in
from bot.recipe import Recipe
from bot.records import Json, Measurement

VALID_RULE = "valid ONNX"


@dataclass(frozen=True)
class Figures:
    """What is known of one artifact after measuring.

    Attributes:
        measurements: Every figure.
        checks: What the gates of its own accord said.
        outputs: What it answered on the CPU: output to .npy.
    """

    measurements: tuple[Measurement, ...]
    checks: tuple[dict[str, Json], ...]
    outputs: dict[str, Path]


def measure(context: Context, prepared: Prepared, built: Sequence[Built], samples: Samples) -> dict[str, Figures]:
    """Measures every artifact.

    Returns:
        Per artifact, what was found.

    Raises:
        StepError: A measurement failed, or a required provider is not here.
    """
    machine = _machine(context, prepared)
    found = {}
    for each in built:
        context.reporter.stage("measure", each.artifact.name)
        found[each.artifact.name] = _measure_one(context, prepared, each, built, samples, machine)
    for name, peaks in residual_peaks(context, prepared, built, samples).items():
        found[name] = replace(found[name], measurements=(*found[name].measurements, *with_shares(peaks, half=False)))
    return found


def required_rules(recipe: Recipe) -> tuple[str, ...]:
    """The checks that every artifact is held against, whatever its recipe says."""
    from bot.measure import batch_invariance, checks, dead_outputs, dynamic_axes, interface

    return (
        interface.RULE,
        checks.FINITE_RULE,
        dead_outputs.RULE,
        dynamic_axes.RULE,
        batch_invariance.RULE,
        half.RULE,
        VALID_RULE,
        OPENS_RULE,
        opens_in(recipe.plan.target.runtime),
    )


def _machine(context: Context, prepared: Prepared) -> dict[str, str]:
    """The devices to measure on, by provider.

    Raises:
        StepError: A required provider does not run here; the CPU never stands in for it.
    """
    usable = availability.available()
    wanted = dict(prepared.recipe.plan.measure.timings.providers)
    for provider in context.require - set(wanted):
        what = f"the provider {provider!r} is required by --require and not among those of the recipe"
        prepared.recipe.fail(("measure", "timings", "providers"), what)
    for provider, need in wanted.items():
        if provider in usable:
            continue
        if need == "required" or provider in context.require:
            availability.require(provider)
        context.reporter.warn(f"nothing was measured on {provider}: it does not run on this machine")
    return {provider: providers.device_name(provider) for provider in ["cpu", *wanted] if provider in usable}


def _measure_one(
    context: Context,
    prepared: Prepared,
    each: Built,
    built: Sequence[Built],
    samples: Samples,
    machine: dict[str, str],
) -> Figures:
    source = each.artifact.made_from
    feeds = samples.feeds[source]
    model = prepared.models[source]
    reference = answers_of(context, model.path, model.sha256, feeds, "cpu", machine["cpu"], source=model)
    measurements = exported_figures(prepared, each, machine["cpu"])
    checks: list[dict[str, Json]] = []
    for provider, device in machine.items():
        here = stand_in(context, prepared, each, samples, provider)
        if here is None:
            context.reporter.warn(f"nothing was measured on {provider}: it has no kernels for {each.artifact.name}")
            continue
        outputs = answers_of(context, here.path, here.artifact.digest, feeds, provider, device)
        figures = compare(context, prepared, here, samples, reference, outputs)
        figures = with_spreads(context, prepared, here, samples, reference, outputs, figures)
        measurements += said_of(figures, each, here)
        if provider != "cpu" and model.environment is not None and model.environment.interpreter is not None:
            context.reporter.warn(f"the checks beside torch ran on cpu only: its environment has no {provider}")
            continue
        checks += _checks(context, prepared, here, samples, reference, outputs)
    emulated, verdict = emulate(context, prepared, each, samples, reference)
    measurements += with_shares(emulated, half=True)
    checks += verdict
    checks.append(_valid(context, each))
    checks += opens_everywhere(context, prepared, each, feeds)
    checks += kernels(prepared, each)
    measurements += timings(context, prepared, each, built, samples, machine)
    shown = stand_in(context, prepared, each, samples, "cpu")
    if shown is None:
        return Figures(tuple(measurements), tuple(checks), {})
    answers = answers_of(context, shown.path, shown.artifact.digest, feeds, "cpu", machine["cpu"])
    return Figures(tuple(measurements), tuple(checks), answers.files)


def _checks(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Answers, outputs: Answers
) -> list[dict[str, Json]]:
    source = each.artifact.made_from
    model = prepared.models[source]
    feeds = samples.feeds[source]
    answer = context.call(
        model.task("checks"),
        {
            "source_model": str(model.path),
            "candidate_model": str(each.path),
            "feeds": texts_of(feeds),
            "source": texts_of(reference.files),
            "candidate": texts_of(outputs.files),
            "provider": outputs.provider,
            "threads": context.threads,
        },
        reads=[
            *model.reads,
            *folders_of(each.path, *feeds.values(), *reference.files.values(), *outputs.files.values()),
        ],
        environment=model.environment,
    )
    return list(answer["checks"])  # type: ignore[arg-type]


def _valid(context: Context, each: Built) -> dict[str, Json]:
    answer = context.call("graph.check", {"model": str(each.path)}, reads=folders_of(each.path))
    return {
        "rule": VALID_RULE,
        "status": "passed" if answer["ok"] else "failed",
        "reason": answer["reason"] or "the full check of the ONNX library passes",
        "required": True,
    }
