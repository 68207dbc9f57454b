"""Judges half precision as hardware would compute it."""

from __future__ import annotations

import shutil
from pathlib import Path

from bot.gates import EMULATION
from bot.measure import runtimes
from bot.pipeline.answers import BATCH, Answers, as_answers, compare, folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import RUNTIMES, Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.samples import Samples
from bot.records import Json, Measurement
from bot.work import code_digest, versions

RULE = "safe in true fp16"


def emulate(
    context: Context, prepared: Prepared, each: Built, samples: Samples, reference: Answers
) -> tuple[list[Measurement], list[dict[str, Json]]]:
    """Judges a file that computes in half precision as the hardware would: the CPU provider does not."""
    census = each.artifact.census
    if "float16" not in census.parameters and not census.casts:
        return [], [{"rule": RULE, "status": "passed", "reason": "nothing in it is fp16", "required": True}]
    feeds = samples.feeds[each.artifact.made_from]
    # The oldest runtime that the target promises has the kernels that are hardest on half precision.
    runtime = f"cuda-{runtimes.oldest_version(prepared.recipe.plan.target.runtime)}"
    key = {
        "model": each.artifact.digest,
        "source": prepared.models[each.artifact.made_from].sha256,
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
                "feeds": texts_of(feeds),
                "batch": BATCH,
                "threads": context.threads,
                "out": str(folder),
                "scratch": str(scratch),
                "runtime": runtime,
                "reference": texts_of(reference.files),
            },
            reads=folders_of(each.path, *feeds.values(), *reference.files.values()),
            writes=[folder, scratch],
        )
        shutil.rmtree(scratch)
        return answer

    folder, answer = context.work.entry("emulations", key, make)
    verdict: dict[str, Json] = {"rule": RULE, "provider": EMULATION, "reason": answer["reason"], "required": True}
    if not answer["outputs"]:
        return [], [{**verdict, "status": "not measured"}]
    figures = compare(context, prepared, each, samples, reference, as_answers(folder, answer))
    return figures, [{**verdict, "status": "passed" if answer["ok"] else "failed"}]
