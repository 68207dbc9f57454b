"""One comment of the bot's own on a pull request, kept up to date in place and never said twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.hub.client import Doubtful, Hub
from bot.hub.target import account_of

REVIEW = "hub-publishing-bot review"
"""What the comment with the review of a release is found again by."""

LARGEST = 60_000
"""Characters. A Hub refuses comments that are longer than about that."""

Done = Literal["said", "updated", "same"]


@dataclass(frozen=True)
class Comment:
    """A comment: its id on the Hub and its text."""

    id: str
    text: str


def keep_comment(hub: Hub, repo: str, number: int, text: str, *, mark: str = REVIEW) -> Done:
    """Makes sure that a pull request carries a comment of the bot's account with this text, and only one of its mark.

    Args:
        hub: Where it is, with the bot's token.
        repo: The target.
        number: The pull request.
        text: Markdown. A mark (an HTML comment) is put before it, by which it is found again. What others copy counts
            for nothing: only the bot's own comments are looked at and changed.
        mark: Tells one kind of comment from another.

    Raises:
        HubError: The Hub could not be read or written, retries included. Run it again: nothing is said twice.
    """
    wanted = f"{_begin(mark)}\n\n{_short(text)}"
    for attempt in range(1, hub.policy.attempts + 1):
        try:
            return _attempt(hub, repo, number, wanted, mark)
        except Doubtful as doubt:
            # The answer was lost: what is there says whether it was done.
            wait = doubt.wait if doubt.wait is not None else hub.policy.wait_after(attempt)
            if attempt == hub.policy.attempts or wait > hub.policy.longest_asked:
                raise
            hub.policy.pause(wait, doubt.where)
    raise AssertionError("a policy allows at least one attempt")


def _attempt(hub: Hub, repo: str, number: int, wanted: str, mark: str) -> Done:
    done: Done = "same"
    found = own_comments(hub, repo, number, mark=mark)
    if not found:
        hub.comment(repo, number, wanted)
        done = "said"
        found = own_comments(hub, repo, number, mark=mark)
    elif found[0].text.strip() != wanted.strip():
        hub.edit_comment(repo, number, found[0].id, wanted)
        done = "updated"
    for more in found[1:]:
        # Two runs may have said it at the same moment: the first one stays.
        hub.hide_comment(repo, number, more.id)
    return done


def own_comments(hub: Hub, repo: str, number: int, *, mark: str = REVIEW) -> list[Comment]:
    """The comments of the bot's own account with a mark, oldest first, but those that were hidden.

    Raises:
        HubError: The Hub could not be read, or gave an answer that makes no sense.
    """
    account = account_of(hub)
    answer = hub.get_json(f"/api/models/{repo}/discussions/{number}")
    found = []
    for event in answer.get("events", []) if isinstance(answer, dict) else []:
        data = event.get("data") or {}
        text = str((data.get("latest") or {}).get("raw", ""))
        author = (event.get("author") or {}).get("name")
        if event.get("type") == "comment" and author == account and not data.get("hidden") and _begin(mark) in text:
            found.append(Comment(str(event["id"]), text))
    return found


def _begin(mark: str) -> str:
    return f"<!-- {mark} -->"


def _short(text: str) -> str:
    """The text, cut between paragraphs if it is too long for a comment."""
    if len(text) <= LARGEST:
        return text
    return text[:LARGEST].rpartition("\n\n")[0] + "\n\nThe rest did not fit here: `bot review` shows it all.\n"
