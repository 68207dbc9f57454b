"""`bot build` and `bot publish`: the stages in their order."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import BotError, HubError, VerificationError, WithheldError
from bot.pipeline.assembling import Assembled, assemble, make_release
from bot.pipeline.building import Built, build_artifacts
from bot.pipeline.context import Context
from bot.pipeline.measuring import Figures, measure
from bot.pipeline.opening import opens
from bot.pipeline.prepare import Prepared, prepare
from bot.pipeline.reviewing import say_review, what_is_published
from bot.pipeline.samples import Samples, load_samples
from bot.recipe import Recipe
from bot.records import Release

if TYPE_CHECKING:
    from bot.card.published import Published
    from bot.hub.publish import Publication


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        release: The record; None if there was nothing to do and so nothing was built.
        publication: What happened on the Hub; None for a build or a dry run.
        folder: All that was, or would be, published.
        card: The card as rendered.
        review: The review page.
        identity: Of the release.
    """

    identity: str
    release: Release | None = None
    publication: Publication | None = None
    folder: Path | None = None
    card: Path | None = None
    review: Path | None = None

    def require_complete(self) -> None:
        """Raises a `WithheldError` that names each withheld artifact with its figure and its limit."""
        if self.release is None or not self.release.withheld:
            return
        lines = [
            f"{verdict.artifact}: {verdict.reason or verdict.rule}"
            for verdict in self.release.verdicts
            if verdict.withholds
        ]
        others = "Nothing was published." if not self.release.published else "The others went on without it."
        raise WithheldError(
            f"withheld: {', '.join(self.release.withheld)}. {'; '.join(lines)}. {others}",
            where=f"recipes/{self.release.recipe}",
            remedy="Improve the artifact's steps, or have the recipe's limit changed by somebody who answers for it.",
        )


def build(context: Context, recipe: Recipe) -> Outcome:
    """Fetches, builds, measures, judges and renders, and publishes nothing.

    Raises:
        BotError: A stage failed.
    """
    prepared = prepare(context, recipe)
    return _outcome(prepared, _make(context, prepared, _what_is_published(context, recipe)).assembled)


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
    from bot.hub import publish as publishing
    from bot.hub import withheld as withholding

    prepared = prepare(context, recipe)
    if prepared.random_weights:
        publishing.require_embedded(context.hub, recipe.plan.target.repo)
    mode = recipe.plan.target.open
    there = publishing.find(context.hub, recipe.plan.target.repo, prepared.identity, mode=mode, reopen=reopen)
    if there is not None:
        context.reporter.note(there.reason)
        if there.merged is not None and not dry_run:
            _post_pins(context, recipe.plan.target.repo, there.merged)
        if not dry_run:
            say_review(context, there, None, recipe.plan.target.repo)
            _close_outdated(context, recipe, prepared.identity, there)
        return Outcome(identity=prepared.identity, publication=replace(there, kind="nothing"))
    if not retry:
        _respect_withheld(context, prepared)
    previous = what_is_published(context.hub, recipe.plan.target.repo)
    made = _make(context, prepared, previous)
    assembled, outcome = made.assembled, _outcome(prepared, made.assembled)
    if assembled.release.withheld and not dry_run and context.hub.account:
        _say_withheld(context, assembled)
    if not assembled.release.published:
        outcome.require_complete()
    if dry_run:
        return outcome
    context.reporter.stage("publish", recipe.plan.target.repo)
    publication = publishing.publish(
        context.hub,
        assembled.release,
        assembled.folder,
        mode=mode,
        title=assembled.title,
        description=assembled.description,
        on_step=context.reporter.note,
        reopen=reopen,
    )
    _verify(context, made, publication)
    say_review(context, publication, assembled.review, assembled.release.target)
    if not assembled.release.withheld:
        withholding.close_notices(context.hub, assembled.release, publication.url, context.reporter.note)
    return replace(outcome, publication=publication)


def _what_is_published(context: Context, recipe: Recipe) -> Published | None:
    """What the target holds, for the review; a build needs no target, and goes on if it cannot be read."""
    try:
        return what_is_published(context.hub, recipe.plan.target.repo)
    except HubError as error:
        context.reporter.warn(f"the review compares with nothing, since the target could not be read: {error}")
        return None


@dataclass(frozen=True)
class _Made:
    """A release that was built and measured, and what it was measured with."""

    assembled: Assembled
    built: list[Built]
    samples: Samples
    figures: dict[str, Figures]


def _make(context: Context, prepared: Prepared, previous: Published | None) -> _Made:
    context.work.clean()
    samples = load_samples(context, prepared)
    built = build_artifacts(context, prepared, samples.feeds)
    figures = measure(context, prepared, built, samples)
    context.reporter.stage("gate", prepared.recipe.name)
    release = make_release(context, prepared, built, samples, figures)
    return _Made(assemble(context, prepared, release, built, previous), built, samples, figures)


def _outcome(prepared: Prepared, assembled: Assembled) -> Outcome:
    return Outcome(
        identity=prepared.identity,
        release=assembled.release,
        folder=assembled.folder,
        card=assembled.folder / "README.md",
        review=assembled.page,
    )


def _close_outdated(context: Context, recipe: Recipe, identity: str, there: Publication) -> None:
    """Closes what an earlier run could not; that this one cannot either is no reason to fail."""
    from bot.hub.withheld import close_outdated

    if not context.hub.account:
        return
    try:
        repo = recipe.plan.target.repo
        close_outdated(context.hub, repo, recipe.name, identity, there.url, context.reporter.note)
    except BotError as error:
        context.reporter.warn(f"the discussion of a withheld release could not be closed: {error}")


def _post_pins(context: Context, repo: str, number: int) -> None:
    """Says the pins on the pull request that was merged; that it could not be said is no reason to fail."""
    from bot.hub.pins import post_pins

    try:
        if post_pins(context.hub, repo, number):
            context.reporter.note(f"said the pins on #{number}")
    except BotError as error:
        context.reporter.warn(f"the pins could not be said on #{number}: {error}")


def _respect_withheld(context: Context, prepared: Prepared) -> None:
    """A release that was withheld is not attempted again by itself: its discussion on the target remembers it.

    Raises:
        WithheldError: It was.
    """
    from bot.hub import withheld as withholding
    from bot.hub.client import NotFound

    if context.hub.account is None:
        return
    try:
        notice = withholding.find_notice(context.hub, prepared.recipe.plan.target.repo, prepared.identity)
    except NotFound:
        return
    if notice is not None:
        raise WithheldError(
            f"this release was withheld before; #{notice.number} says why, and nothing that decides it has changed",
            where=notice.url,
            remedy="Change the recipe, or try the same again with --retry.",
        )


def _say_withheld(context: Context, assembled: Assembled) -> None:
    from bot.hub import withheld as withholding

    release = assembled.release
    title = f"Withheld: {', '.join(release.withheld)} of release {release.short_identity}"
    notice = withholding.report_withheld(
        context.hub, release, title=title, text=assembled.description, on_step=context.reporter.note
    )
    if notice is not None:
        context.reporter.note(f"{notice.url} says why {', '.join(release.withheld)} is withheld")


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
            found = opens(context, path, feeds, expected=made.figures[each.artifact.name].outputs)
            if found["status"] != "passed":
                raise VerificationError(
                    f"was downloaded whole and does not answer as it did when it was measured: {found['reason']}",
                    where=f"{target}@{publication.revision}/{each.artifact.file}",
                    remedy="Close the pull request and report this with the bot's log.",
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
