"""What a watcher finds of one recipe: its state, why, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from bot.errors import BotError
from bot.records import Due, Reason

State = Literal[
    "current",
    "due",
    "cooling down",
    "waiting for review",
    "withheld",
    "closed",
    "replaced",
    "unavailable",
    "broken",
]
"""`current`: the target holds the release that publishing would make. `due`: publishing would do something. `cooling
down`: it would, and the upstream commit has not settled yet. `waiting for review`: a pull request holds the release.
`withheld`: it failed a gate before. `closed`: its pull request was closed, which is respected. `replaced`: it was
published before, and something else took its place. `unavailable`: upstream or the target could not be read. `broken`:
the recipe is wrong."""

ATTENTION: tuple[State, ...] = ("broken", "unavailable")
"""States that make the exit code of `bot watch` another than 0."""


@dataclass(frozen=True)
class Finding:
    """What is to be done about a recipe.

    Attributes:
        state: See `State`.
        reasons: Why it is due, or would be.
        number: Of the pull request or discussion that it is about.
        until: When an upstream commit will have settled.
        by_bot: It was the bot itself that closed the pull request.
    """

    state: State
    reasons: tuple[Reason, ...] = ()
    number: int | None = None
    until: datetime | None = None
    by_bot: bool = False


@dataclass(frozen=True)
class Row:
    """One recipe, as a table shows it.

    Attributes:
        recipe: Its name.
        finding: Its state.
        upstream: `owner/name`, or an address; empty if the recipe cannot be read.
        target: `owner/name`; empty if the recipe cannot be read.
        runner: The label that the recipe asks for.
        identity: Of the release that publishing would make; empty if that was not worked out.
        published: The upstream commit that the target's release was made from; empty if it holds none.
        upstream_commit: The upstream's newest commit.
        since: When what it is about began, as far as anybody told: the upstream's last change, or the target's.
        url: Where a person reads on.
        error: Why it is broken or unavailable.
    """

    recipe: str
    finding: Finding
    upstream: str = ""
    target: str = ""
    runner: str = ""
    identity: str = ""
    published: str = ""
    upstream_commit: str = ""
    since: datetime | None = None
    url: str = ""
    error: BotError | None = None

    @property
    def state(self) -> State:
        """Its state."""
        return self.finding.state

    @property
    def next_step(self) -> str:
        """What comes next, and who does it, in words."""
        finding = self.finding
        match finding.state:
            case "current":
                return "nothing to do"
            case "due":
                return f"bot publish {self.recipe}"
            case "cooling down":
                return f"settles at {finding.until:%Y-%m-%d %H:%M} UTC" if finding.until else "settles"
            case "waiting for review":
                return f"a person reviews {self.url}"
            case "withheld":
                return f"change the recipe, or raise its retry: {self.url}"
            case "closed" if finding.by_bot:
                return f"the bot closed it after a failed check; raise its retry to try again: {self.url}"
            case "closed":
                return f"a person closed it, which is respected; raise its retry to try again: {self.url}"
            case "replaced":
                return f"published before and replaced since; to go back: bot publish {self.recipe} --reopen"
        return str(self.error) if self.error is not None else ""

    def failed(self, error: BotError, state: State = "unavailable") -> Row:
        """The same row of a recipe that nothing can be said of."""
        return replace(self, finding=Finding(state), error=error)

    def due(self) -> Due | None:
        """The record of what is to be done; None if nothing is."""
        if self.state != "due":
            return None
        return Due(
            recipe=self.recipe,
            target=self.target,
            upstream=self.upstream,
            commit=self.upstream_commit,
            identity=self.identity,
            reasons=self.finding.reasons,
            since=self.since.isoformat() if self.since else "",
            runner=self.runner,
        )
