"""Whether a file opens and answers: in this runtime, and in the oldest that the target promises."""

from __future__ import annotations

from pathlib import Path

from bot.errors import BotError, StepError
from bot.measure import runtimes
from bot.pipeline.answers import folders_of, texts_of
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.prepare import Prepared
from bot.pipeline.twins import opening_provider
from bot.records import Json

OPENS_RULE = "opens"


def opens_in(runtime: str) -> str:
    """The name of the check in the runtime that a target promises: `opens in onnxruntime 1.22`."""
    return f"opens in {runtime.replace('>=', ' ')}"


def opens_everywhere(
    context: Context, prepared: Prepared, each: Built, feeds: dict[str, Path]
) -> list[dict[str, Json]]:
    """A fresh session opens the file and runs a sample, in this runtime and in the oldest that the target promises."""
    promised = prepared.recipe.plan.target.runtime
    rule = opens_in(promised)
    provider = opening_provider(each)
    if provider is None:
        return [nowhere_to_open(each, name) for name in (OPENS_RULE, rule)]
    found = [opens(context, each.path, feeds, provider=provider)]
    try:
        folder = runtimes.ensure_runtime(promised, context.work.runtimes, provider)
    except BotError as error:
        return [*found, {"rule": rule, "status": "not measured", "reason": str(error), "required": True}]
    return [*found, opens(context, each.path, feeds, rule=rule, runtime=folder, provider=provider)]


def nowhere_to_open(each: Built, rule: str) -> dict[str, Json]:
    """The check of a file that no provider here has kernels for: it is not published, for nobody has opened it."""
    lacking = " and ".join(each.artifact.signature.not_on)
    reason = f"there is no kernel on {lacking} for something in it, and no other provider runs on this machine"
    return {"rule": rule, "status": "not measured", "reason": reason, "required": True}


def opens(
    context: Context,
    model: Path,
    feeds: dict[str, Path],
    *,
    expected: dict[str, Path] | None = None,
    rule: str = OPENS_RULE,
    runtime: Path | None = None,
    provider: str = "cpu",
) -> dict[str, Json]:
    """Whether a fresh session opens a file and runs one sample through it.

    Args:
        context: The surroundings.
        model: The file.
        feeds: Graph input to .npy.
        expected: What it must answer: output to .npy.
        rule: What to call this check.
        runtime: A folder with another version of the runtime.
        provider: What it is opened on.
    """
    arguments: dict[str, Json] = {"model": str(model), "feeds": texts_of(feeds), "provider": provider}
    arguments["expected"] = texts_of(expected or {}) or None
    try:
        answer = context.call(
            "measure.open",
            arguments,
            reads=folders_of(model, *feeds.values(), *(expected or {}).values()),
            extra_path=[runtime] if runtime else [],
        )
    except StepError as error:
        return {"rule": rule, "status": "failed", "reason": error.what, "required": True}
    status = "passed" if answer["ok"] else "failed"
    return {"rule": rule, "status": status, "reason": answer["reason"] or str(answer["runtime"]), "required": True}
