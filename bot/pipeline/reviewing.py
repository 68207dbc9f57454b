"""The review of a release: made from what is laid out here or lies on a Hub, and said on its pull request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import write_atomically
from bot.card import card as cards
from bot.errors import BotError
from bot.pipeline.context import Context
from bot.pipeline.kept import published, published_at
from bot.work import disk_errors

if TYPE_CHECKING:
    from bot.hub.client import Hub
    from bot.hub.publish import Publication

MAIN = "main"


def what_is_published(hub: Hub, repo: str) -> cards.Published | None:
    """What a target holds now; None if there is no such repository, or nothing in it.

    Raises:
        HubError: The Hub could not be read.
    """
    from bot.hub.client import NotFound

    try:
        return published_at(hub, repo, MAIN)
    except NotFound:
        return None


def review_of(now: cards.Published, before: cards.Published | None) -> cards.Review:
    """The review of a release beside the one before it.

    Args:
        now: The release, which has a record.
        before: What the target holds; None if nothing. The same release again is not compared with itself.
    """
    release = now.require_release()
    if before is not None and before.release is not None and before.release.identity == release.identity:
        before = None
    return cards.Review(
        release=release,
        card=now.card,
        files=now.files,
        plots=cards.render_plots(release),
        before=before,
        merged=merge_edits(before, now.rendered),
    )


def merge_edits(before: cards.Published | None, card: str) -> cards.Merged | None:
    """The new card with a person's edits of the published one; None if there is nothing to merge.

    A README.md that no release of the bot brought is not merged: it is another text, not an edit of this one.
    """
    if before is None or before.release is None or not before.card or not before.rendered:
        return None
    return None if before.card == before.rendered else cards.merge_card(before.rendered, before.card, card)


def review_on_hub(hub: Hub, repo: str, revision: str) -> cards.Review:
    """The review of a release on a Hub, beside what the main branch holds.

    Raises:
        VerificationError: There is no release at that revision.
        HubError: The Hub could not be read.
    """
    return review_of(published(hub, repo, revision), what_is_published(hub, repo))


def write_review(review: cards.Review, folder: Path | None, work: Path) -> Path:
    """Writes the review page: beside the folder that the release is laid out in, or into the work folder."""
    root = folder.parent if folder is not None else work / "reviews" / review.release.identity
    page = root / "review.html"
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(page, cards.render_review(review).encode())
    return page


def say_review(context: Context, publication: Publication, review: cards.Review | None, repo: str) -> None:
    """Keeps the review on the pull request up to date; that it could not be said is no reason to fail.

    Args:
        context: The surroundings.
        publication: The pull request; anything else has no place for a comment.
        review: What to say; None to say it only if nothing is there yet, as after a run that was killed.
        repo: The target.
    """
    from bot.hub import comments

    if publication.kind != "pull-request" or publication.number is None:
        return
    number = publication.number
    try:
        if review is None:
            if comments.own_comments(context.hub, repo, number):
                return
            review = review_on_hub(context.hub, repo, publication.revision)
        done = comments.keep_comment(context.hub, repo, number, cards.render_comment(review))
        if done != "same":
            context.reporter.note(f"the review is {'said' if done == 'said' else 'brought up to date'} on #{number}")
    except BotError as error:
        context.reporter.warn(f"the review could not be said on #{number}: {error}")
