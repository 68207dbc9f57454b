"""Measures what fp16 has to hold: the largest magnitude on the residual stream of a source."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bot.errors import StepError
from bot.measure import providers
from bot.pipeline.answers import folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.records import Json, Measurement
from bot.work import code_digest, versions

LIMIT = 32
"""How many samples are run at most, evenly spread: what makes an activation massive does not depend on the sample."""


def residual_peaks(
    context: Context, prepared: Prepared, built: Sequence[Built], samples: Samples
) -> dict[str, list[Measurement]]:
    """The peak of each source's residual stream, where fp16 cannot hold it and an artifact of it uses fp16.

    Args:
        context: The surroundings.
        prepared: What was fetched.
        built: The artifacts.
        samples: What the sources are run on.

    Returns:
        Per artifact, the measurements of its source: they are told once, with the first artifact made from it.
    """
    found: dict[str, list[Measurement]] = {}
    for source, model in prepared.models.items():
        if model.is_module:
            continue  # it has no ONNX graph of its own to be looked into
        halves = [each for each in built if each.artifact.made_from == source and _uses_half(each)]
        if halves and samples.feeds[source]:
            found[halves[0].artifact.name] = _peak(context, prepared, source, samples)
    return found


def _uses_half(each: Built) -> bool:
    return bool(each.artifact.census.parameters.get("float16"))


def _peak(context: Context, prepared: Prepared, source: str, samples: Samples) -> list[Measurement]:
    model, feeds = prepared.source_files[source], samples.feeds[source]
    key = {
        "model": prepared.models[source].sha256,
        "samples": samples.digest,
        "limit": LIMIT,
        "code": code_digest("bot.graph"),
        "tools": versions(RUNTIMES),
    }

    def make(folder: Path) -> dict[str, Json]:
        scratch = folder / "scratch"
        scratch.mkdir()
        answer = context.call(
            "graph.ranges",
            {"model": str(model), "feeds": texts_of(feeds), "scratch": str(scratch), "top": 10, "limit": LIMIT},
            reads=folders_of(model, *feeds.values()),
            writes=[scratch],
        )
        shutil.rmtree(scratch)
        return answer

    try:
        _, ranges = context.work.entry("ranges", key, make)
    except StepError as error:
        context.reporter.warn(f"how large the tensors of {source} become was not measured: {error}")
        return []
    stream, massive = ranges["residual_stream"], ranges["massive_activation"]
    if stream is None or stream["scale"] == 1:
        return []
    common: dict[str, Any] = {
        "artifact": f"source:{source}",
        "provider": "cpu",
        "device": providers.device_name("cpu"),
        "runtime": ranges["runtime"],
        "batch": 1,
        "samples": ranges["samples"],
        "samples_digest": samples.digest,
    }
    peak = Measurement(
        subject="residual",
        metric="largest_magnitude",
        value=stream["peak"],
        method="The largest magnitude on the residual stream of the source, in float32, over the samples",
        **common,
    )
    if not massive or massive["channel"] is None:
        return [peak]
    channel = Measurement(
        subject="residual",
        metric="massive_channel",
        value=massive["channel"],
        method="The channel of the residual stream that carries the largest magnitude over the samples, from zero",
        **common,
    )
    return [peak, channel]
