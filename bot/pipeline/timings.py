"""Times every artifact against its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bot.pipeline.answers import folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.pipeline.sources import SourceModel
from bot.records import Json, Measurement
from bot.work import code_digest, versions


def timings(
    context: Context,
    prepared: Prepared,
    each: Built,
    built: Sequence[Built],
    samples: Samples,
    machine: dict[str, str],
) -> list[Measurement]:
    """Candidate and baseline in turns, on every provider of the recipe that is here."""
    plan = prepared.recipe.plan.measure.timings
    source = each.artifact.made_from
    against, baseline = _baseline(prepared, each, built)
    feeds = samples.feeds[source]
    found: list[Measurement] = []
    for provider, device in machine.items():
        if provider not in plan.providers:
            continue
        if any(provider in other.artifact.signature.not_on for other in _compared(each, built, against)):
            context.reporter.warn(f"nothing was timed on {provider}: it has no kernels for {each.artifact.name}")
            continue
        if baseline.is_module and provider != "cpu":
            context.reporter.warn(f"nothing was timed on {provider}: the baseline, a torch module, runs on cpu only")
            continue
        key = {
            "candidate": each.artifact.digest,
            "baseline": baseline.sha256,
            "against": against,
            "artifact": each.artifact.name,
            "batches": list(plan.batches),
            "provider": provider,
            "device": device,
            "threads": context.threads,
            "seconds": context.timing_seconds,
            "samples": samples.digest,
            "code": code_digest("bot.measure"),
            "tools": versions(RUNTIMES),
        }

        def make(_: Path, provider: str = provider) -> dict[str, Json]:
            return context.call(
                baseline.task("latency"),
                {
                    "candidate": str(each.path),
                    "baseline": str(baseline.path),
                    "feeds": texts_of(feeds),
                    "batches": list(plan.batches),
                    "provider": provider,
                    "threads": context.threads,
                    "seconds": context.timing_seconds,
                    "artifact": each.artifact.name,
                    "against": against,
                    "samples_digest": samples.digest,
                },
                reads=[*baseline.reads, *folders_of(each.path, *feeds.values())],
                environment=baseline.environment,
            )

        _, answer = context.work.entry("timings", key, make)
        found += [Measurement.model_validate(measurement) for measurement in answer["measurements"]]
    return found


def _compared(each: Built, built: Sequence[Built], against: str) -> list[Built]:
    """The artifacts that take part in a comparison: the candidate, and its baseline where that is one."""
    return [each, *(other for other in built if other.artifact.name == against)]


def _baseline(prepared: Prepared, each: Built, built: Sequence[Built]) -> tuple[str, SourceModel]:
    """What an artifact's timings are compared with; the baseline itself is compared with its source."""
    source = each.artifact.made_from
    name = prepared.recipe.plan.measure.timings.baseline
    if name not in ("source", each.artifact.name):
        other = next(candidate for candidate in built if candidate.artifact.name == name)
        return name, SourceModel(other.path, other.artifact.digest, (other.path.parent,), {})
    return f"source:{source}", prepared.models[source]
