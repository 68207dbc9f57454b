"""One open discussion in the target that says why a release is withheld.

It is the memory of a failure as well: while it stands, or if a person closed it, the same release is not attempted
again by itself. A later release that is withheld too is said in the same discussion; one that passes closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from bot.errors import HubError
from bot.hub.attempts import until_clear
from bot.hub.client import Conversation, Hub, NotFound
from bot.hub.target import account_of
from bot.hub.trailers import CLOSED, IDENTITY, RECIPE, STOPPED, trailers_of, with_trailers
from bot.records import Release


@dataclass(frozen=True)
class Notice:
    """The discussion about a recipe's withheld release.

    Attributes:
        number: Of the discussion.
        url: Where a person reads it.
        identity: The release that its newest word is about.
        action: What was done now: `opened`, `updated`, or `found` if it said all of it already.
        is_open: Whether it is open.
    """

    number: int
    url: str
    identity: str
    action: Literal["opened", "updated", "found"]
    is_open: bool


def find_notice(hub: Hub, repo: str, identity: str) -> Notice | None:
    """The discussion that says that this release is withheld, also if a person closed it; None if there is none.

    Raises:
        HubError: The Hub could not be read.
    """
    for conversation in reversed(_conversations(hub, repo)):
        newest = newest_word(conversation)
        if newest.get(IDENTITY) == identity and not newest.get(CLOSED):
            return _notice(hub, repo, conversation, identity, "found")
    return None


def report_withheld(
    hub: Hub, release: Release, *, title: str, text: str, on_step: Callable[[str], None] | None = None
) -> Notice | None:
    """Says in the target why a release is withheld, in one discussion per recipe.

    Args:
        hub: Where the target is.
        release: The release.
        title: Of a new discussion.
        text: The reason and the figures, in Markdown.
        on_step: Told what happens.

    Returns:
        The discussion; None if the target does not exist: no repository is created to hold a complaint alone.

    Raises:
        HubError: The Hub did not do it, retries included.
    """
    return report_stopped(
        hub,
        release.target,
        recipe=release.recipe,
        identity=release.identity,
        title=title,
        text=text,
        on_step=on_step,
    )


def report_stopped(
    hub: Hub,
    repo: str,
    *,
    recipe: str,
    identity: str,
    title: str,
    text: str,
    stopped: str = "",
    on_step: Callable[[str], None] | None = None,
) -> Notice | None:
    """Says in a target why a recipe publishes nothing, before there is a release to speak of; as `report_withheld`.

    Args:
        hub: Where the target is.
        repo: The target.
        recipe: Whose release it would be.
        identity: Of the reason: the same reason is said once.
        title: Of a new discussion.
        text: The reason, in Markdown.
        stopped: The recipe's side of an identity, if the reason holds for any release of this very recipe.
        on_step: Told what happens.

    Raises:
        HubError: The Hub did not do it, retries included.
    """
    say = on_step or (lambda _: None)
    trailers = {IDENTITY: identity, RECIPE: recipe, **({STOPPED: stopped} if stopped else {})}
    return until_clear(hub, lambda: _report(hub, repo, trailers, title, text, say), say)


def close_notices(hub: Hub, release: Release, by: str, say: Callable[[str], None]) -> None:
    """Closes the discussion of a recipe, now that a release of it has passed.

    Args:
        hub: Where the target is.
        release: The release that passed.
        by: The address of its publication.
        say: Told what happens.

    Raises:
        HubError: The Hub did not do it, retries included.
    """

    _close_passed(hub, release.target, release.recipe, "", by, say)


def close_outdated(hub: Hub, repo: str, recipe: str, identity: str, by: str, say: Callable[[str], None]) -> None:
    """Closes the discussion of a recipe about an older release, where the run that published this one could not.

    Args:
        hub: Where the target is.
        repo: The target.
        recipe: Whose release is published.
        identity: Of that release; a discussion about the part of it that was withheld stays.
        by: The address of its publication.
        say: Told what happens.

    Raises:
        HubError: The Hub did not do it, retries included.
    """
    _close_passed(hub, repo, recipe, identity, by, say)


def _close_passed(hub: Hub, repo: str, recipe: str, but: str, by: str, say: Callable[[str], None]) -> None:
    """Closes the open discussions of a recipe, but those whose newest word is about one release."""

    def attempt() -> None:
        for conversation in _conversations(hub, repo):
            word = newest_word(conversation)
            outdated = word.get(RECIPE) == recipe and word.get(IDENTITY) != but
            if conversation.pull_request.is_open and outdated:
                number = conversation.pull_request.number
                say(f"closing #{number}: a release has passed")
                _close(hub, repo, number, with_trailers(f"A later release has passed: {by}", {CLOSED: "passed"}))

    until_clear(hub, attempt, say)


def _report(
    hub: Hub, repo: str, trailers: dict[str, str], title: str, text: str, say: Callable[[str], None]
) -> Notice | None:
    identity, body = trailers[IDENTITY], with_trailers(text, trailers)
    try:
        known = find_notice(hub, repo, identity)
        mine = [item for item in _conversations(hub, repo) if newest_word(item).get(RECIPE) == trailers[RECIPE]]
    except NotFound:
        return None
    if known is not None:
        same = [newest_word(item) for item in mine if item.pull_request.number == known.number]
        if not trailers.get(STOPPED) or trailers[STOPPED] in [word.get(STOPPED) for word in same]:
            return known
        say(f"saying in #{known.number} that it holds for the recipe as it is now, too")
        hub.comment(repo, known.number, body)
        return replace(known, action="updated")
    still_open = [item for item in mine if item.pull_request.is_open]
    if still_open:
        first = still_open[0]
        say(f"saying in #{first.pull_request.number} why the release is withheld")
        hub.comment(repo, first.pull_request.number, body)
        return _notice(hub, repo, first, identity, "updated")
    say(f"opening a discussion in {repo}: the release is withheld")
    number = hub.open_discussion(repo, title, body)
    return _notice(hub, repo, hub.conversation(repo, number), identity, "opened")


def _conversations(hub: Hub, repo: str) -> list[Conversation]:
    """The discussions that the bot's account opened, oldest first, with what was said in them."""
    account = account_of(hub)
    listed = hub.discussions(repo, author=account)
    return [hub.conversation(repo, item.number, author=account) for item in listed]


def newest_word(conversation: Conversation) -> dict[str, str]:
    """The trailers of the last comment by the bot that has any; what others say in it counts for nothing."""
    author = conversation.pull_request.author
    for remark in reversed(conversation.remarks):
        trailers = trailers_of(remark.text) if remark.kind == "comment" and remark.author == author else {}
        if IDENTITY in trailers or CLOSED in trailers:
            return trailers
    return {}


def _close(hub: Hub, repo: str, number: int, text: str) -> None:
    try:
        hub.set_status(repo, number, "closed", comment=text)
    except HubError:
        if hub.conversation(repo, number).pull_request.is_open:
            raise


def _notice(
    hub: Hub,
    repo: str,
    conversation: Conversation,
    identity: str,
    action: Literal["opened", "updated", "found"],
) -> Notice:
    item = conversation.pull_request
    return Notice(item.number, f"{hub.endpoint}/{repo}/discussions/{item.number}", identity, action, item.is_open)
