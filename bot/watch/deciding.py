"""From a release that could be published, and what is on the Hub already, to what is to be done.

The rules are those by which `bot.hub.publish` decides, and a test holds the two together: what is said to be current is
what publishing would leave alone, and what is said to be due is what publishing would act on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from bot.records import Reason
from bot.watch.findings import Finding


@dataclass(frozen=True)
class Inputs:
    """What makes up a release, side by side with another's: digests, by what they are of.

    Attributes:
        identity: Of the release.
        commit: The upstream's commit that it was read from.
        upstream: sha256 of the model files and of the copies.
        samples: Of the data set.
        recipe_id: Of the recipe's side; empty in a record of an older bot.
        text: Of recipe.yaml.
        licences: Of the licences' texts, by file.
        tools: Versions of what builds it, if they make a release another one.
    """

    identity: str
    commit: str = ""
    upstream: Mapping[str, str] = field(default_factory=dict)
    samples: str = ""
    recipe_id: str = ""
    text: str = ""
    licences: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A pull request of the bot's own that carries a release.

    Attributes:
        number: Its number.
        status: `open`, `draft`, `closed` or `merged`.
        identity: Of the release.
        recipe: Whose it is.
        closed_as: Why the bot closed it; empty if it did not.
        has_commits: There is a commit in it.
    """

    number: int
    status: str
    identity: str
    recipe: str
    closed_as: str = ""
    has_commits: bool = True

    @property
    def is_open(self) -> bool:
        """Whether it can still be merged."""
        return self.status in ("open", "draft")


@dataclass(frozen=True)
class Situation:
    """What is on the Hub about a recipe.

    Attributes:
        recipe: Its name.
        mode: How it publishes.
        held: The identity of the release that the target holds; empty if it holds none.
        requests: The bot's own pull requests, oldest first.
        notice: Number of the discussion that says that this release was withheld; None if there is none.
        was_committed: Tells whether the bot committed this release before. It costs a request, and is asked last.
    """

    recipe: str
    mode: Literal["pull-request", "commit"]
    held: str = ""
    requests: Sequence[Request] = ()
    notice: int | None = None
    was_committed: Callable[[], bool] = lambda: False


def decide(identity: str, there: Situation) -> Finding:
    """What publishing a release would come to. The reasons why are `reasons_for`'s to tell.

    Args:
        identity: Of the release.
        there: What is on the Hub.
    """
    same = [request for request in there.requests if request.identity == identity]
    if there.held == identity:
        outdated = _leftovers(identity, there, None)
        return Finding("due", ("pull request outdated",)) if outdated and there.notice is None else Finding("current")
    still_open = [request for request in same if request.is_open]
    if still_open and there.mode == "pull-request":
        return _waiting(identity, there, still_open[0])
    if merged := [request for request in same if request.status == "merged"]:
        return Finding("replaced", number=merged[-1].number)
    closed = [request for request in same if request.status == "closed" and not _is_tidied(request)]
    if closed:
        return Finding("closed", number=closed[-1].number, by_bot=bool(closed[-1].closed_as))
    if there.mode == "commit" and there.was_committed():
        return Finding("replaced")
    if there.notice is not None:
        return Finding("withheld", number=there.notice)
    return Finding("due")


def _waiting(identity: str, there: Situation, first: Request) -> Finding:
    unfinished = not first.has_commits or bool(_leftovers(identity, there, first))
    if unfinished and there.notice is None:
        return Finding("due", ("pull request outdated",), first.number)
    return Finding("waiting for review", number=first.number)


def _is_tidied(request: Request) -> bool:
    """The bot closed it because another took its place, which says nothing of the release."""
    return request.closed_as in ("superseded", "rival")


def _leftovers(identity: str, there: Situation, kept: Request | None) -> list[Request]:
    """Open pull requests that publishing would close: rivals with the same release, and older ones of the recipe."""
    found = []
    for request in there.requests:
        if not request.is_open or request is kept:
            continue
        is_rival = request.identity == identity
        is_older = request.recipe == there.recipe and (kept is None or request.number < kept.number)
        if is_rival or is_older:
            found.append(request)
    return found


def reasons_for(now: Inputs, before: Inputs | None, *, outdated: bool, retried: bool) -> tuple[Reason, ...]:
    """Why a release is due.

    Args:
        now: What it would be made of.
        before: What the last one was made of, in the target or in an open pull request; None if there is none.
        outdated: That one is in a pull request.
        retried: The same was withheld or closed before, and the recipe asks for another attempt.
    """
    found: list[Reason] = []
    if before is None:
        found += [] if retried else ["new"]
    else:
        found += _differences(now, before)
    if outdated:
        found.append("pull request outdated")
    if retried:
        found.append("retry")
    return tuple(found) or ("recipe",)


def _differences(now: Inputs, before: Inputs) -> list[Reason]:
    found: list[Reason] = []
    if dict(now.upstream) != dict(before.upstream):
        found.append("upstream files")
    if now.samples != before.samples:
        found.append("samples")
    if now.recipe_id != before.recipe_id:
        found += _differences_of_recipes(now, before)
    return found


def _differences_of_recipes(now: Inputs, before: Inputs) -> list[Reason]:
    """What of the recipe's side differs: its licences, the tools, or else the recipe, its code, its words."""
    found: list[Reason] = []
    if dict(now.licences) != dict(before.licences):
        found.append("licence")
    if any(before.tools.get(name, version) != version for name, version in now.tools.items()):
        found.append("tools")
    if now.text != before.text or (not found and before.recipe_id):
        found.append("recipe")
    return found


def settles_at(committed: datetime, cooldown: int, now: datetime) -> datetime | None:
    """When an upstream commit will have settled; None if it has.

    Args:
        committed: Its date.
        cooldown: Seconds.
        now: The time of day.
    """
    until = committed + timedelta(seconds=cooldown)
    return until if now < until else None
