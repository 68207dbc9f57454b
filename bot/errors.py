"""What can go wrong, one class per kind of failure, each with the exit code that a script can act on.

An error says three things: what happened, where, and what to do about it. The command line prints them and nothing
else; a traceback is for a fault of the bot itself.
"""

from __future__ import annotations

from typing import ClassVar


class BotError(Exception):
    """A failure that the bot understands.

    Args:
        what: What happened, as one sentence.
        where: The file and line, repository and path, or step that it happened in; empty if there is no place to name.
        remedy: What the reader can do about it; empty if nothing can be done.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.remedy))


def _rebuild(kind: type[BotError], what: str, where: str, remedy: str) -> BotError:
    return kind(what, where=where, remedy=remedy)


class RecipeError(BotError):
    """The recipe, or the way in which the command was called, is wrong."""

    exit_code = 2


class UpstreamError(BotError):
    """What the recipe reads cannot be had, or is not what the recipe says."""

    exit_code = 3


class StepError(BotError):
    """A step of the build, or a measurement, failed or was killed."""

    exit_code = 4


class WithheldError(BotError):
    """A gate did not pass, so the release is not published."""

    exit_code = 5


class OverwriteError(BotError):
    """Publishing would have changed something that must stay as it is."""

    exit_code = 6


class HubError(BotError):
    """The Hub did not do what was asked, retries included."""

    exit_code = 7


class VerificationError(BotError):
    """What the Hub holds is not what was published."""

    exit_code = 8


class LicenseChangedError(BotError):
    """The licence upstream is not the one that the recipe's author reviewed."""

    exit_code = 9
