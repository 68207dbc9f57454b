"""`bot build` and `bot publish`: the stages in their order."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import HubError, VerificationError
from bot.pipeline import handover
from bot.pipeline.assembling import Assembled, assemble, make_release
from bot.pipeline.building import Built, build_artifacts
from bot.pipeline.context import Context
from bot.pipeline.licensing import saying_stops
from bot.pipeline.measuring import Figures, measure
from bot.pipeline.opening import opens
from bot.pipeline.placing import Standing, placed, take_over, what_is_there
from bot.pipeline.prepare import Prepared, prepare
from bot.pipeline.releasing import Outcome, nothing_left, outcome_of, respect_withheld, send
from bot.pipeline.samples import Samples, load_calibration, load_samples
from bot.pipeline.twins import opening_provider
from bot.recipe import Recipe
from bot.records import short

if TYPE_CHECKING:
    from bot.hub.publish import Publication


def build(context: Context, recipe: Recipe, *, out: Path | None = None) -> Outcome:
    """Fetches, builds, measures, judges and renders, and publishes nothing.

    Args:
        context: The surroundings.
        recipe: What to do.
        out: A new folder for the hand-over; None for none.

    Raises:
        BotError: A stage failed.
    """
    if out is not None:
        handover.require_new(out)
    prepared = prepare(context, recipe)
    made = _make(context, prepared, _what_is_there(context, recipe))
    if out is not None:
        handover.write(out, made.assembled.release, made.built)
    return outcome_of(made.assembled)


def publish(
    context: Context, recipe: Recipe, *, dry_run: bool = False, reopen: bool = False, retry: bool = False
) -> Outcome:
    """Does the whole job for one recipe: from upstream to a verified pull request or commit.

    Args:
        context: The surroundings.
        recipe: What to do.
        dry_run: Do everything but write to the Hub.
        reopen: Publish again what a person closed.
        retry: Try again what was withheld before.

    Raises:
        BotError: A stage failed.
        WithheldError: Nothing is left to publish: every artifact failed a gate, or one did and the recipe says all
            or nothing. Where some are published, call `Outcome.require_complete` afterwards.
    """
    from bot.hub.publish import require_embedded

    with saying_stops(context, recipe, dry_run=dry_run):
        prepared = prepare(context, recipe)
        prepared.licensing.require_reviewed(recipe)
    if prepared.random_weights:
        require_embedded(context.hub, recipe.plan.target.repo)
    done = nothing_left(context, recipe, prepared.identity, dry_run=dry_run, reopen=reopen)
    if done is not None:
        return done
    if not retry:
        respect_withheld(context, recipe, prepared.identity)
    made = _make(context, prepared, what_is_there(context.hub, recipe.plan.target.repo))
    return send(
        context,
        recipe,
        made.assembled,
        lambda publication: _verify(context, made, publication),
        dry_run=dry_run,
        reopen=reopen,
    )


def _what_is_there(context: Context, recipe: Recipe) -> Standing:
    """What the target holds, for names and review; a build needs no target, and goes on if it cannot be read."""
    try:
        return what_is_there(context.hub, recipe.plan.target.repo)
    except HubError as error:
        context.reporter.warn(f"the target could not be read: nothing is compared, nothing gets a new name ({error})")
        return Standing()


@dataclass(frozen=True)
class _Made:
    """A release that was built and measured, and what it was measured with."""

    assembled: Assembled
    built: list[Built]
    samples: Samples
    figures: dict[str, Figures]


def _make(context: Context, prepared: Prepared, there: Standing) -> _Made:
    context.work.clean()
    recipe = prepared.recipe
    taken_over = take_over(context, recipe)
    samples = load_samples(context, prepared)
    calibration = load_calibration(context, prepared, samples)
    built = build_artifacts(context, prepared, samples.feeds, taken_over, calibration)
    built = placed(recipe, short(prepared.identity), there.target, built)
    figures = measure(context, prepared, built, samples)
    context.reporter.stage("gate", recipe.name)
    release = make_release(context, prepared, built, samples, figures)
    return _Made(assemble(context, prepared, release, built, there.published), built, samples, figures)


def _verify(context: Context, made: _Made, publication: Publication) -> None:
    """Downloads what was published, opens it and asks it one sample: only then does it count as published."""
    from bot.hub import verify as verifying

    if publication.kind == "nothing":
        return
    release, target = made.assembled.release, made.assembled.release.target
    context.reporter.stage("verify", f"{target}@{publication.revision}")
    folder = context.work.temporary(context.work.root / "verify")
    try:
        verification = verifying.confirm(context.hub, release, publication, folder, progress=context.reporter.update)
        for each in made.built:
            path = verification.folder / each.artifact.file
            if not path.is_file():
                continue
            feeds = made.samples.feeds[each.artifact.made_from]
            expected = made.figures[each.artifact.name].outputs
            found = opens(context, path, feeds, expected=expected, provider=opening_provider(each) or "cpu")
            if found["status"] != "passed":
                raise VerificationError(
                    f"was downloaded whole and does not answer as it did when it was measured: {found['reason']}",
                    where=f"{target}@{publication.revision}/{each.artifact.file}",
                    remedy="Close the pull request and report this with the bot's log.",
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
