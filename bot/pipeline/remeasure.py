"""Takes every figure of accuracy of a published release again, and holds it against the record.

A figure has to come out within the spread that the record gives beside it; see `bot.measure.spread`. Timings are not
taken again: they tell of a machine and an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bot.errors import StepError, UpstreamError
from bot.gates import EMULATION
from bot.measure import availability, providers
from bot.pipeline.again import Again
from bot.pipeline.answers import answers_of, compare
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.exported import SUBJECT as EXPORT
from bot.pipeline.findings import Finding
from bot.pipeline.half import emulate
from bot.pipeline.residual import residual_peaks
from bot.pipeline.samples import Samples
from bot.records import Artifact, Histogram, Measurement, Release

TIMINGS = ("latency", "speedup")

Key = tuple[str, str, str, str]
"""Artifact, subject, metric, provider."""


def remeasure(context: Context, release: Release, again: Again, files: dict[str, Path]) -> list[Finding]:
    """Takes the figures of a release again.

    Args:
        context: The surroundings.
        release: The record.
        again: Its upstream and samples.
        files: The published artifacts that are as they were released, by name.

    Returns:
        A finding for each figure, and one for the timings.
    """
    built = [Built(each, files[each.name]) for each in release.published if each.name in files]
    found: dict[Key, Measurement] = {}
    failed: dict[tuple[str, str], str] = {}
    if again.samples is not None:
        for each in built:
            context.reporter.stage("measure", each.artifact.file)
            found |= _take(context, release, again, again.samples, each, failed)
        found |= _peaks(context, again, again.samples, built)
    return list(_findings(release, again, found, failed, files))


def _take(
    context: Context,
    release: Release,
    again: Again,
    samples: Samples,
    each: Built,
    failed: dict[tuple[str, str], str],
) -> dict[Key, Measurement]:
    """The figures of one artifact, on every provider that the record has figures of and that runs here."""
    name, key = each.artifact.name, each.artifact.made_from
    if key not in again.prepared.models:
        return {}
    model, feeds = again.prepared.models[key], samples.feeds[key]
    wanted = {figure.provider for figure in release.measurements_of(name) if _is_accuracy(figure)}
    figures: list[Measurement] = []
    for provider in sorted(wanted):
        try:
            device = providers.device_name("cpu")
            reference = answers_of(context, model.path, model.sha256, feeds, "cpu", device, source=model)
            if provider == EMULATION:
                figures += emulate(context, again.prepared, each, samples, reference)[0]
            elif provider in availability.available():
                device = providers.device_name(provider)
                outputs = answers_of(context, each.path, each.artifact.digest, feeds, provider, device)
                figures += compare(context, again.prepared, each, samples, reference, outputs)
        except (StepError, UpstreamError) as error:
            failed[name, provider] = f"could not be measured here: {error.what}"
    return _by_key(figures)


def _peaks(context: Context, again: Again, samples: Samples, built: Sequence[Built]) -> dict[Key, Measurement]:
    """What the record says of the sources themselves."""
    peaks = residual_peaks(context, again.prepared, built, samples)
    return _by_key(figure for figures in peaks.values() for figure in figures)


def _by_key(figures: Iterable[Measurement]) -> dict[Key, Measurement]:
    return {_key(figure): figure for figure in figures}


def _key(figure: Measurement) -> Key:
    return (figure.artifact, figure.subject, figure.metric, figure.provider)


def _is_accuracy(figure: Measurement) -> bool:
    return figure.subject not in (*TIMINGS, EXPORT)


def _findings(
    release: Release,
    again: Again,
    found: dict[Key, Measurement],
    failed: dict[tuple[str, str], str],
    files: dict[str, Path],
) -> Iterator[Finding]:
    for recorded in release.measurements:
        if recorded.subject in TIMINGS:
            continue
        name = f"{recorded.artifact}: {recorded.key}" + (f" on {recorded.provider}" if recorded.provider else "")
        now = found.get(_key(recorded))
        if now is not None:
            yield _held(name, recorded, now)
        else:
            why = _why_not(release, again, recorded, failed, files)
            yield Finding("figure", name, "not checked", _value(recorded), reason=why)
    if count := sum(figure.subject in TIMINGS for figure in release.measurements):
        reason = "timings are not taken again: they depend on the machine and the hour"
        yield Finding("timing", f"all {count}", "not checked", reason=reason)


def _held(name: str, recorded: Measurement, now: Measurement) -> Finding:
    """A figure held against the record, with the spread that the record allows it."""
    if recorded.spread is None:
        why = "the record does not say how far it may be off"
        return Finding("figure", name, "not checked", _value(recorded), _value(now), why)
    within = abs(now.value - recorded.value) <= recorded.spread
    said, seen = f"{_value(recorded)} ± {recorded.spread:.2g}", _value(now)
    if within and now.samples == recorded.samples and not _same_shape(recorded.histogram, now.histogram):
        return Finding("figure", name, "differs", f"{said} with another histogram", seen)
    if not within or now.samples != recorded.samples:
        said, seen = (f"{text} over {each.samples} samples" for text, each in ((said, recorded), (seen, now)))
        return Finding("figure", name, "differs", said, seen, _machines(recorded, now))
    return Finding("figure", name, "ok", said, seen)


def _machines(recorded: Measurement, now: Measurement) -> str:
    """Where the two were taken, if that is not the same: another kind of processor may be the reason."""
    there, here = (", ".join(filter(None, (each.device, each.runtime))) for each in (recorded, now))
    return f"taken there on {there}, and here on {here}" if there != here else ""


def _value(figure: Measurement) -> str:
    return f"{figure.value:.6g} {figure.unit}".rstrip()


def _same_shape(recorded: Histogram | None, now: Histogram | None) -> bool:
    """Whether two histograms show the same differences: the samples in order of size, each at most a bin apart."""
    if recorded is None or now is None:
        return recorded is None and now is None
    whole = len(recorded.edges) == len(recorded.counts) + 1 and min(recorded.counts, default=-1) >= 0
    if not whole or sum(recorded.counts) != sum(now.counts):
        return False
    width = max(each.edges[-1] - each.edges[0] for each in (recorded, now)) / min(len(recorded.counts), len(now.counts))
    return all(abs(one - other) <= 1.01 * width for one, other in zip(_centres(recorded), _centres(now), strict=True))


def _centres(histogram: Histogram) -> Iterator[float]:
    for low, high, count in zip(histogram.edges[:-1], histogram.edges[1:], histogram.counts, strict=True):
        yield from [(low + high) / 2] * count


def _why_not(
    release: Release,
    again: Again,
    recorded: Measurement,
    failed: dict[tuple[str, str], str],
    files: dict[str, Path],
) -> str:
    """Why a figure was not taken again."""
    if recorded.subject == EXPORT:
        return "it was taken while the graph was exported; --rebuild does that again"
    if why := again.why_no_source or again.why_no_samples:
        return why
    artifact = next((each for each in release.artifacts if each.name == recorded.artifact), None)
    if artifact is not None and artifact.name not in files:
        return _why_no_file(release, artifact)
    if why := failed.get((recorded.artifact, recorded.provider), ""):
        return why
    key = artifact.made_from if artifact is not None else recorded.artifact.removeprefix("source:")
    if key not in again.prepared.models:
        return "its source is built by torch, and a copy of the recipe is needed for that"
    if recorded.provider not in ("", EMULATION, *availability.available()):
        return f"{recorded.provider} does not run on this machine"
    return "it did not come out of measuring again"


def _why_no_file(release: Release, artifact: Artifact) -> str:
    if artifact not in release.published:
        return f"{artifact.file} is withheld, so that it is not there"
    return f"{artifact.file} is not as it was released"
