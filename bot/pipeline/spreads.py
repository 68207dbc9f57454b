"""Notes beside each figure of accuracy how far it may be off when somebody measures it again."""

from __future__ import annotations

from collections.abc import Iterable

from bot.errors import StepError
from bot.measure.spread import spread_of
from bot.pipeline.answers import Answers, comparison, folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.records import Measurement
from bot.work import code_digest, versions


def with_spreads(
    context: Context,
    prepared: Prepared,
    each: Built,
    samples: Samples,
    reference: Answers,
    outputs: Answers,
    figures: Iterable[Measurement],
) -> list[Measurement]:
    """The figures of an artifact's answers, with their spreads; where a repetition fails, without, and it is said.

    Args:
        context: The surroundings.
        prepared: Names the source.
        each: The artifact.
        samples: What it was run on.
        reference: The source's answers.
        outputs: The artifact's.
        figures: How the two compare.
    """
    source = prepared.models[each.artifact.made_from]
    feeds = samples.feeds[each.artifact.made_from]
    arguments = comparison(prepared, each, samples, reference, outputs)
    key = {
        "model": each.artifact.digest,
        "source": source.sha256,
        "arguments": {name: value for name, value in arguments.items() if name in ("plans", "samples")},
        "provider": outputs.provider,
        "device": outputs.device,
        "code": code_digest("bot.measure"),
        "tools": versions(RUNTIMES),
    }
    arguments |= {
        "source_model": "" if source.is_module else str(source.path),
        "candidate_model": str(each.path),
        "feeds": texts_of(feeds),
        "runs_on": outputs.provider,
    }
    reads = folders_of(source.path, each.path, *feeds.values(), *reference.files.values(), *outputs.files.values())
    try:
        _, answer = context.work.entry("spreads", key, lambda _: context.call("measure.spread", arguments, reads=reads))
    except StepError as error:
        context.reporter.warn(f"how far the figures of {each.artifact.name} may be off was not measured: {error}")
        return list(figures)
    changes: dict[str, float] = answer["changes"]
    half = outputs.provider != "cpu"
    return [
        figure.model_copy(update={"spread": spread_of(figure.value, change, half=half)})
        if (change := changes.get(f"{figure.subject}.{figure.metric}")) is not None
        else figure
        for figure in figures
    ]


def with_shares(figures: Iterable[Measurement], *, half: bool) -> list[Measurement]:
    """Figures whose run is not repeated, with the share of themselves that they may be off by."""
    return [figure.model_copy(update={"spread": spread_of(figure.value, 0.0, half=half)}) for figure in figures]
