"""Brings an assembled release to the Hub: what is there already, what was withheld before, publishing, what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import BotError, WithheldError
from bot.pipeline.assembling import Assembled
from bot.pipeline.context import Context
from bot.pipeline.reviewing import say_review
from bot.recipe import Recipe
from bot.records import Release

if TYPE_CHECKING:
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


def outcome_of(assembled: Assembled) -> Outcome:
    """What a run came to that has published nothing yet."""
    return Outcome(
        identity=assembled.release.identity,
        release=assembled.release,
        folder=assembled.folder,
        card=assembled.folder / "README.md",
        review=assembled.page,
    )


def nothing_left(
    context: Context, recipe: Recipe, identity: str, *, dry_run: bool = False, reopen: bool = False
) -> Outcome | None:
    """What is there already of a release, if nothing is left to do; None if it has to be published.

    What an earlier run could not say any more is said now.

    Args:
        context: The surroundings.
        recipe: The recipe.
        identity: Of the release.
        dry_run: Write nothing to the Hub.
        reopen: Do not respect that a person closed it.

    Raises:
        HubError: The Hub could not be read.
    """
    from bot.hub import publish as publishing

    repo = recipe.plan.target.repo
    there = publishing.find(context.hub, repo, identity, mode=recipe.plan.target.open, reopen=reopen)
    if there is None:
        return None
    context.reporter.note(there.reason)
    if there.merged is not None and not dry_run:
        _post_pins(context, repo, there.merged)
    if not dry_run:
        say_review(context, there, None, repo)
        _close_outdated(context, recipe, identity, there)
    return Outcome(identity=identity, publication=replace(there, kind="nothing"))


def respect_withheld(context: Context, recipe: Recipe, identity: str) -> None:
    """A release that was withheld is not attempted again by itself: its discussion on the target remembers it.

    Raises:
        WithheldError: It was.
    """
    from bot.hub import withheld as withholding
    from bot.hub.client import NotFound

    if context.hub.account is None:
        return
    try:
        notice = withholding.find_notice(context.hub, recipe.plan.target.repo, identity)
    except NotFound:
        return
    if notice is not None:
        raise WithheldError(
            f"this release was withheld before; #{notice.number} says why, and nothing that decides it has changed",
            where=notice.url,
            remedy="Change the recipe, or try the same again with --retry.",
        )


def send(
    context: Context,
    recipe: Recipe,
    assembled: Assembled,
    verify: Callable[[Publication], None],
    *,
    dry_run: bool = False,
    reopen: bool = False,
) -> Outcome:
    """Publishes what was assembled, verifies it, and says on the Hub what came of it.

    Args:
        context: The surroundings.
        recipe: The recipe.
        assembled: The release and its files.
        verify: Holds what was published against the release; only then does it count as published.
        dry_run: Write nothing to the Hub.
        reopen: Publish again what a person closed.

    Raises:
        BotError: It could not be published, or does not verify.
        WithheldError: Nothing is left to publish.
    """
    from bot.hub import publish as publishing
    from bot.hub import withheld as withholding

    outcome = outcome_of(assembled)
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
        mode=recipe.plan.target.open,
        title=assembled.title,
        description=assembled.description,
        on_step=context.reporter.note,
        reopen=reopen,
    )
    verify(publication)
    say_review(context, publication, assembled.review, assembled.release.target)
    if not assembled.release.withheld:
        withholding.close_notices(context.hub, assembled.release, publication.url, context.reporter.note)
    return replace(outcome, publication=publication)


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


def _say_withheld(context: Context, assembled: Assembled) -> None:
    from bot.hub import withheld as withholding

    release = assembled.release
    title = f"Withheld: {', '.join(release.withheld)} of release {release.short_identity}"
    notice = withholding.report_withheld(
        context.hub, release, title=title, text=assembled.description, on_step=context.reporter.note
    )
    if notice is not None:
        context.reporter.note(f"{notice.url} says why {', '.join(release.withheld)} is withheld")
