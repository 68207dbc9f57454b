"""Measures every artifact against its source: accuracy, true-fp16 safety, timings, and whether old runtimes open it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.errors import BotError, StepError
from bot.gates import EMULATION
from bot.measure import providers, runtimes
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.prepare import Prepared
from bot.records import Json, Measurement
from bot.work import code_digest, versions

BATCH = 8
"""Samples per run where accuracy is measured."""

RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "numpy", "pillow")


@dataclass(frozen=True)
class Samples:
    """The samples, ready to be fed.

    Attributes:
        digest: Of the list of samples.
        digests: Of each sample, in order.
        feeds: Per upstream file: graph input to .npy.
        skipped: How many were left out, by reason.
    """

    digest: str
    digests: list[str]
    feeds: dict[str, dict[str, Path]]
    skipped: dict[str, int]


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


def load_samples(context: Context, prepared: Prepared) -> Samples:
    """Turns the data set into what the graphs read, in the worker.

    Raises:
        UpstreamError: Too few samples are left.
    """
    recipe = prepared.recipe
    ((name, plan),) = recipe.plan.measure.samples.items()
    specs = {key: image.model_dump(mode="json") for key, image in _images(prepared).items()}
    key = {
        "files": {name: record.sha256 for name, record in prepared.samples.files.items()},
        "plan": plan.selection(),
        "inputs": specs,
        "code": code_digest("bot.measure"),
        "tools": versions(RUNTIMES),
    }

    def make(folder: Path) -> dict[str, Json]:
        return context.call(
            "measure.samples",
            {
                "loader": plan.loader or name,
                "files": {key: str(path) for key, path in prepared.sample_files.items()},
                "plan": plan.selection(),
                "inputs": specs,
                "out": str(folder),
            },
            reads=list(prepared.sample_files.values()),
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
            for source in prepared.source_files
        },
        skipped=answer["skipped"],
    )


def _images(prepared: Prepared) -> dict[str, Any]:
    return {key: image for source in prepared.source_files for key, image in prepared.recipe.inputs_of(source).values()}


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
    return found


def _machine(context: Context, prepared: Prepared) -> dict[str, str]:
    """The devices to measure on, by provider.

    Raises:
        StepError: A required provider does not run here; the CPU never stands in for it.
    """
    usable = providers.available()
    wanted = dict(prepared.recipe.plan.measure.timings.providers)
    for provider in context.require - set(wanted):
        what = f"the provider {provider!r} is required by --require and not among those of the recipe"
        prepared.recipe.fail(("measure", "timings", "providers"), what)
    for provider, need in wanted.items():
        if provider in usable:
            continue
        if need == "required" or provider in context.require:
            providers.require(provider)
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
    original, sha256 = prepared.source_files[source], prepared.source.files[source].sha256
    reference = _outputs(context, original, sha256, feeds, "cpu", machine["cpu"])
    measurements: list[Measurement] = []
    checks: list[dict[str, Json]] = []
    for provider, device in machine.items():
        outputs = _outputs(context, each.path, each.artifact.sha256, feeds, provider, device)
        measurements += _compare(context, prepared, each, samples, reference, outputs)
        checks += _checks(context, prepared, each, samples, reference, outputs)
    emulated, verdict = _emulate(context, prepared, each, samples, reference)
    measurements += emulated
    checks += verdict
    checks.append(_valid(context, each))
    checks += _opens(context, prepared, each, feeds)
    measurements += _timings(context, prepared, each, built, samples, machine)
    answers = _outputs(context, each.path, each.artifact.sha256, feeds, "cpu", machine["cpu"])
    return Figures(tuple(measurements), tuple(checks), answers.files)


def _reads(*paths: Path) -> list[Path]:
    return list(dict.fromkeys(path.parent for path in paths))


def _texts(paths: dict[str, Path]) -> dict[str, Json]:
    return {name: str(path) for name, path in paths.items()}


@dataclass(frozen=True)
class Outputs:
    """What a model answered to all samples: output name to .npy, and where that was computed."""

    files: dict[str, Path]
    provider: str
    device: str
    runtime: str


def _outputs(context: Context, model: Path, sha256: str, feeds: dict[str, Path], provider: str, device: str) -> Outputs:
    key = {
        "model": sha256,
        "feeds": {name: str(path.relative_to(context.work.root)) for name, path in feeds.items()},
        "provider": provider,
        "device": device,
        "threads": context.threads,
        "code": code_digest("bot.measure"),
        "tools": versions(RUNTIMES),
    }

    def make(folder: Path) -> dict[str, Json]:
        return context.call(
            "measure.run",
            {
                "model": str(model),
                "feeds": _texts(feeds),
                "batch": BATCH,
                "provider": provider,
                "threads": context.threads,
                "out": str(folder),
            },
            reads=_reads(model, *feeds.values()),
            writes=[folder],
        )

    folder, answer = context.work.entry("runs", key, make)
    return _as_outputs(folder, answer)


def _as_outputs(folder: Path, answer: dict[str, Any]) -> Outputs:
    files = {name: folder / Path(each["file"]).name for name, each in answer["outputs"].items()}
    return Outputs(files, answer["provider"], answer.get("device", ""), answer["runtime"])


def _compare(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Outputs, outputs: Outputs
) -> list[Measurement]:
    source = each.artifact.made_from
    plans: dict[str, Json] = {
        subject: plan.model_dump(mode="json", by_alias=True)
        for subject, plan in prepared.recipe.accuracy_of(source).items()
    }
    answer = context.call(
        "measure.compare",
        {
            "source": _texts(reference.files),
            "candidate": _texts(outputs.files),
            "plans": plans,
            "samples": list(samples.digests),
            "samples_digest": samples.digest,
            "artifact": each.artifact.name,
            "against": f"source:{source}",
            "provider": outputs.provider,
            "device": outputs.device,
            "runtime": outputs.runtime,
        },
        reads=_reads(*reference.files.values(), *outputs.files.values()),
    )
    return [Measurement.model_validate(measurement) for measurement in answer["measurements"]]  # type: ignore[union-attr]


def _checks(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Outputs, outputs: Outputs
) -> list[dict[str, Json]]:
    source = each.artifact.made_from
    model = prepared.source_files[source]
    feeds = samples.feeds[source]
    answer = context.call(
        "measure.checks",
        {
            "source_model": str(model),
            "candidate_model": str(each.path),
            "feeds": _texts(feeds),
            "source": _texts(reference.files),
            "candidate": _texts(outputs.files),
            "provider": outputs.provider,
            "threads": context.threads,
        },
        reads=_reads(model, each.path, *feeds.values(), *reference.files.values(), *outputs.files.values()),
    )
    return list(answer["checks"])  # type: ignore[arg-type]


def _emulate(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Outputs
) -> tuple[list[Measurement], list[dict[str, Json]]]:
    """Judges a file that computes in half precision as the hardware would: the CPU provider does not."""
    rule = "safe in true fp16"
    census = each.artifact.census
    if "float16" not in census.parameters and not census.casts:
        return [], [{"rule": rule, "status": "passed", "reason": "nothing in it is fp16", "required": True}]
    feeds = samples.feeds[each.artifact.made_from]
    # The oldest runtime that the target promises has the kernels that are hardest on half precision.
    runtime = f"cuda-{runtimes.oldest_version(prepared.recipe.plan.target.runtime)}"
    key = {
        "model": each.artifact.sha256,
        "source": prepared.source.files[each.artifact.made_from].sha256,
        "feeds": {name: str(path.relative_to(context.work.root)) for name, path in feeds.items()},
        "runtime": runtime,
        "code": code_digest("bot.measure"),
        "tools": versions(RUNTIMES),
    }

    def make(folder: Path) -> dict[str, Json]:
        scratch = folder / "scratch"
        answer = context.call(
            "measure.emulated_run",
            {
                "model": str(each.path),
                "feeds": _texts(feeds),
                "batch": BATCH,
                "threads": context.threads,
                "out": str(folder),
                "scratch": str(scratch),
                "runtime": runtime,
                "reference": _texts(reference.files),
            },
            reads=_reads(each.path, *feeds.values(), *reference.files.values()),
            writes=[folder, scratch],
        )
        shutil.rmtree(scratch)
        return answer

    folder, answer = context.work.entry("emulations", key, make)
    verdict: dict[str, Json] = {"rule": rule, "provider": EMULATION, "reason": answer["reason"], "required": True}
    if not answer["outputs"]:
        return [], [{**verdict, "status": "not measured"}]
    figures = _compare(context, prepared, each, samples, reference, _as_outputs(folder, answer))
    return figures, [{**verdict, "status": "passed" if answer["ok"] else "failed"}]


def _valid(context: Context, each: Built) -> dict[str, Json]:
    answer = context.call("graph.check", {"model": str(each.path)}, reads=_reads(each.path))
    return {
        "rule": "valid ONNX",
        "status": "passed" if answer["ok"] else "failed",
        "reason": answer["reason"] or "the full check of the ONNX library passes",
        "required": True,
    }


def _opens(context: Context, prepared: Prepared, each: Built, feeds: dict[str, Path]) -> list[dict[str, Json]]:
    """A fresh session opens the file and runs a sample, in this runtime and in the oldest that the target promises."""
    found = [opens(context, each.path, feeds)]
    promised = prepared.recipe.plan.target.runtime
    rule = f"opens in {promised.replace('>=', ' ')}"
    try:
        folder = runtimes.ensure_runtime(promised, context.work.runtimes)
    except BotError as error:
        return [*found, {"rule": rule, "status": "not measured", "reason": str(error), "required": True}]
    return [*found, opens(context, each.path, feeds, rule=rule, runtime=folder)]


def opens(
    context: Context,
    model: Path,
    feeds: dict[str, Path],
    *,
    expected: dict[str, Path] | None = None,
    rule: str = "opens",
    runtime: Path | None = None,
) -> dict[str, Json]:
    """Whether a fresh session opens a file and runs one sample through it.

    Args:
        context: The surroundings.
        model: The file.
        feeds: Graph input to .npy.
        expected: What it must answer: output to .npy.
        rule: What to call this check.
        runtime: A folder with another version of the runtime.
    """
    try:
        answer = context.call(
            "measure.open",
            {"model": str(model), "feeds": _texts(feeds), "expected": _texts(expected or {}) or None},
            reads=_reads(model, *feeds.values(), *(expected or {}).values()),
            extra_path=[runtime] if runtime else [],
        )
    except StepError as error:
        return {"rule": rule, "status": "failed", "reason": error.what, "required": True}
    status = "passed" if answer["ok"] else "failed"
    return {"rule": rule, "status": status, "reason": answer["reason"] or str(answer["runtime"]), "required": True}


def _timings(
    context: Context,
    prepared: Prepared,
    each: Built,
    built: Sequence[Built],
    samples: Samples,
    machine: dict[str, str],
) -> list[Measurement]:
    plan = prepared.recipe.plan.measure.timings
    source = each.artifact.made_from
    against, baseline, baseline_sha256 = _baseline(prepared, each, built)
    feeds = samples.feeds[source]
    found: list[Measurement] = []
    for provider, device in machine.items():
        if provider not in plan.providers:
            continue
        key = {
            "candidate": each.artifact.sha256,
            "baseline": baseline_sha256,
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
                "measure.latency",
                {
                    "candidate": str(each.path),
                    "baseline": str(baseline),
                    "feeds": _texts(feeds),
                    "batches": list(plan.batches),
                    "provider": provider,
                    "threads": context.threads,
                    "seconds": context.timing_seconds,
                    "artifact": each.artifact.name,
                    "against": against,
                    "samples_digest": samples.digest,
                },
                reads=_reads(each.path, baseline, *feeds.values()),
            )

        _, answer = context.work.entry("timings", key, make)
        found += [Measurement.model_validate(measurement) for measurement in answer["measurements"]]
    return found


def _baseline(prepared: Prepared, each: Built, built: Sequence[Built]) -> tuple[str, Path, str]:
    """What an artifact's timings are compared with; the baseline itself is compared with its source."""
    source = each.artifact.made_from
    name = prepared.recipe.plan.measure.timings.baseline
    if name not in ("source", each.artifact.name):
        other = next(candidate for candidate in built if candidate.artifact.name == name)
        return name, other.path, other.artifact.sha256
    return f"source:{source}", prepared.source_files[source], prepared.source.files[source].sha256
