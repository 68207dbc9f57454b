"""The samples that everything is measured on, ready to be fed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
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
    """

    digest: str
    digests: list[str]
    feeds: dict[str, dict[str, Path]]
    skipped: dict[str, int]


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
