"""What a model answers to all samples, kept by what went in, and how two such answers compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.pipeline.building import Built
from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.pipeline.searching import geometry
from bot.pipeline.sources import SourceModel
from bot.records import Json, Measurement
from bot.work import code_digest, versions

BATCH = 8
"""Samples per run where accuracy is measured."""


@dataclass(frozen=True)
class Answers:
    """What a model answered to all samples: output name to .npy, and where that was computed."""

    files: dict[str, Path]
    provider: str
    device: str
    runtime: str


def answers_of(
    context: Context,
    model: Path,
    sha256: str,
    feeds: dict[str, Path],
    provider: str,
    device: str,
    *,
    source: SourceModel | None = None,
) -> Answers:
    """Runs a model over all samples in the worker, unless that was done before on the same device and runtime.

    Args:
        context: The surroundings.
        model: The file.
        sha256: Of all that decides what it answers.
        feeds: Graph input to .npy.
        provider: What it runs on.
        device: Its name.
        source: The model as a source, which may be a torch module; None for an artifact.
    """
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
            source.task("run") if source else "measure.run",
            {
                "model": str(model),
                "feeds": texts_of(feeds),
                "batch": BATCH,
                "provider": provider,
                "threads": context.threads,
                "out": str(folder),
            },
            reads=[*(source.reads if source else [model.parent]), *folders_of(*feeds.values())],
            writes=[folder],
            environment=source.environment if source else None,
        )

    folder, answer = context.work.entry("runs", key, make)
    return as_answers(folder, answer)


def as_answers(folder: Path, answer: dict[str, Any]) -> Answers:
    """What a task that ran a model answered, its files found in the folder that they were kept in."""
    files = {name: folder / Path(each["file"]).name for name, each in answer["outputs"].items()}
    return Answers(files, answer["provider"], answer.get("device", ""), answer["runtime"])


def compare(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Answers, outputs: Answers
) -> list[Measurement]:
    """The figures of an artifact's answers against its source's, per output and per decision that the recipe names."""
    arguments = comparison(prepared, each, samples, reference, outputs)
    masks = masks_of(prepared, each, samples)
    reads = folders_of(*reference.files.values(), *outputs.files.values(), *masks.values())
    answer = context.call("measure.compare", arguments, reads=reads)
    return [Measurement.model_validate(measurement) for measurement in answer["measurements"]]  # type: ignore[union-attr]


def comparison(
    prepared: Prepared, each: Built, samples: Samples, reference: Answers, outputs: Answers
) -> dict[str, Json]:
    """What the worker is told about two answers that it is to compare."""
    source = each.artifact.made_from
    plans: dict[str, Json] = {
        subject: plan.model_dump(mode="json", by_alias=True)
        for subject, plan in prepared.recipe.accuracy_of(source).items()
    }
    return {
        "source": texts_of(reference.files),
        "candidate": texts_of(outputs.files),
        "plans": plans,
        "masks": texts_of(masks_of(prepared, each, samples)),
        "samples": list(samples.digests),
        "samples_digest": samples.digest,
        **geometry(prepared.recipe, source, samples),
        "artifact": each.artifact.name,
        "against": f"source:{source}",
        "provider": outputs.provider,
        "device": outputs.device,
        "runtime": outputs.runtime,
    }


def masks_of(prepared: Prepared, each: Built, samples: Samples) -> dict[str, Path]:
    """What was fed into the inputs that an artifact's decisions name as their masks, by the input."""
    source = each.artifact.made_from
    names = {plan.mask for plan in prepared.recipe.accuracy_of(source).values() if plan.mask}
    return {name: samples.feeds[source][name] for name in sorted(names)}


def folders_of(*paths: Path) -> list[Path]:
    """The folders that a task has to see to read these files."""
    return list(dict.fromkeys(path.parent for path in paths))


def texts_of(paths: dict[str, Path]) -> dict[str, Json]:
    """Paths as a task is given them."""
    return {name: str(path) for name, path in paths.items()}
