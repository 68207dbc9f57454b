"""What the isolated worker is asked to do, one function per task: plain data in, plain data out.

Files are named by the arguments; nothing else is read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from bot.errors import RecipeError, StepError
from bot.measure.arguments import read_arguments
from bot.records import Json, Record

if TYPE_CHECKING:
    from bot.measure.arrays import Array

Progress = Callable[[int, int, str], None]

Paths = dict[str, str]


class SamplesArguments(Record):
    """Arguments of `samples`."""

    loader: str
    files: Paths
    plan: dict[str, Json]
    inputs: dict[str, Json]
    out: str


class RunArguments(Record):
    """Arguments of `run`."""

    model: str
    feeds: Paths
    batch: int = Field(default=1, ge=1)
    provider: str = "cpu"
    threads: int = Field(default=0, ge=0)
    out: str


class CompareArguments(Record):
    """Arguments of `compare`."""

    source: Paths
    candidate: Paths
    plans: dict[str, Json] = Field(default_factory=dict)
    masks: Paths = Field(default_factory=dict)
    samples: tuple[str, ...]
    samples_digest: str = ""
    size: tuple[int, int] | None = None
    objects: tuple[tuple[dict[str, Json], ...], ...] | None = None
    artifact: str
    against: str = ""
    provider: str = ""
    device: str = ""
    runtime: str = ""
    batch: int | None = None
    threads: int | None = None


class ChecksArguments(Record):
    """Arguments of `checks`."""

    source_model: str
    candidate_model: str
    feeds: Paths
    source: Paths
    candidate: Paths
    provider: str = "cpu"
    threads: int = Field(default=0, ge=0)


class OpenArguments(Record):
    """Arguments of `open_model`."""

    model: str
    feeds: Paths
    expected: Paths | None = None
    provider: str = "cpu"


class LatencyArguments(Record):
    """Arguments of `latency`."""

    candidate: str
    baseline: str
    artifact: str
    against: str
    feeds: Paths
    batches: tuple[int, ...] = (1,)
    provider: str = "cpu"
    threads: int = Field(default=0, ge=0)
    seconds: float = Field(default=60.0, gt=0)
    runs: int = Field(default=100, ge=1)
    warmup: int = Field(default=5, ge=0)
    samples_digest: str = ""


def samples(arguments: dict[str, Json], progress: Progress) -> Json:
    """Takes samples out of a data set and writes what networks are fed; see `samples.collect`."""
    from bot.measure.loaders import parse_plan, required_files
    from bot.measure.samples.collect import collect
    from bot.measure.specs import parse_input_spec

    given = read_arguments(SamplesArguments, arguments)
    files = _paths(given.files)
    try:
        plan = parse_plan(given.loader, given.plan)
        wanted = required_files(given.loader, given.plan)
    except ValueError as error:
        raise RecipeError(str(error), where="measure.samples") from error
    if set(files) != set(wanted):
        raise StepError(f"the loader reads {sorted(wanted)} and was given {sorted(files)}", where=given.loader)
    specs = {key: parse_input_spec(key, spec) for key, spec in given.inputs.items()}
    return collect(given.loader, files, plan, specs, Path(given.out), progress)


def run(arguments: dict[str, Json], progress: Progress) -> Json:
    """Runs a model over all samples and writes its outputs; see `run.run_model`."""
    from bot.measure.run import run_model

    given = read_arguments(RunArguments, arguments)
    feeds = _paths(given.feeds)
    return run_model(Path(given.model), feeds, given.batch, given.provider, given.threads, Path(given.out), progress)


def compare(arguments: dict[str, Json], progress: Progress) -> Json:
    """Compares what two models answered; see `accuracy.compare`."""
    from bot.measure import accuracy
    from bot.measure.decode import parse_decision
    from bot.measure.detection.labels import read_truths

    given = read_arguments(CompareArguments, arguments)
    common = given.model_dump(
        include={"samples_digest", "artifact", "against", "provider", "device", "runtime", "batch", "threads"}
    )
    plans = {subject: parse_decision(subject, plan) for subject, plan in given.plans.items()}
    pairs = accuracy.pair_outputs(_arrays(given.source), _arrays(given.candidate))
    truths = read_truths(given.objects) if given.objects is not None else None
    context = accuracy.Context(given.samples, common, given.size, truths)
    measurements = accuracy.compare(pairs, plans, context, _arrays(given.masks))
    progress(1, 1, given.artifact)
    return {"measurements": [measurement.to_plain() for measurement in measurements]}


def checks(arguments: dict[str, Json], progress: Progress) -> Json:
    """The checks that every artifact passes through; see `checks.run_checks`."""
    from bot.measure.checks import run_checks

    given = read_arguments(ChecksArguments, arguments)
    found = run_checks(
        (Path(given.source_model), Path(given.candidate_model)),
        _paths(given.feeds),
        (_paths(given.source), _paths(given.candidate)),
        given.provider,
        given.threads,
        progress,
    )
    return {"checks": [{**check.to_plain(), "provider": given.provider} for check in found]}


def open_model(arguments: dict[str, Json], progress: Progress) -> Json:
    """Opens a published file in a fresh session; see `opening.open_model`."""
    from bot.measure import opening

    given = read_arguments(OpenArguments, arguments)
    expected = _paths(given.expected or {}) or None
    answer = opening.open_model(Path(given.model), _paths(given.feeds), expected, given.provider)
    progress(1, 1, Path(given.model).name)
    return answer


def latency(arguments: dict[str, Json], progress: Progress) -> Json:
    """Times a candidate against its baseline; see `latency.measure_latency`."""
    from bot.measure.latency import Timed, measure_latency

    given = read_arguments(LatencyArguments, arguments)
    timed = Timed(
        Path(given.candidate),
        Path(given.baseline),
        given.artifact,
        given.against,
        given.provider,
        given.threads,
        given.seconds,
        given.runs,
        given.warmup,
        given.samples_digest,
    )
    measurements = measure_latency(timed, _paths(given.feeds), given.batches, progress)
    return {"measurements": [measurement.to_plain() for measurement in measurements]}


def _paths(paths: Paths) -> dict[str, Path]:
    return {name: Path(path) for name, path in paths.items()}


def _arrays(paths: Paths) -> dict[str, Array]:
    from bot.measure.arrays import open_array

    return {name: open_array(path) for name, path in paths.items()}
