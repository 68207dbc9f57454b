"""What a verification finds of one thing that a release's record says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.errors import VerificationError

Status = Literal["ok", "differs", "not checked"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at again.

    Attributes:
        kind: `source`, `samples`, `figure`, `timing`, `licence`, `rebuilt file`.
        name: What it is about, such as `age-fp16: age.mean_absolute on cpu`.
        status: `ok`; `differs` from the record; `not checked`, for the reason that is given.
        recorded: What the record says; empty where there is nothing to say.
        found: What was found now.
        reason: Why it was not checked, or what may explain a difference.
    """

    kind: str
    name: str
    status: Status
    recorded: str = ""
    found: str = ""
    reason: str = ""

    def sentence(self) -> str:
        """A difference in words; what is not printable, which a record may hold on purpose, is replaced."""
        reason = f" ({self.reason})" if self.reason else ""
        return printable(f"{self.kind} {self.name}: {self.recorded} is recorded, and {self.found} was found{reason}")


def printable(text: str) -> str:
    """Text that cannot move a terminal's cursor: it comes from a repository that anybody may have written."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def require_same(findings: Iterable[Finding], where: str, *, strict: bool = False) -> None:
    """Stops if something differs.

    Args:
        findings: What was found.
        where: Of what.
        strict: What could not be checked stops as well, but for timings.

    Raises:
        VerificationError: Something does; the message names each with both values.
    """
    found = list(findings)
    if wrong := [finding.sentence() for finding in found if finding.status == "differs"]:
        raise VerificationError(
            f"does not come out as it was recorded: {'; '.join(wrong)}.",
            where=where,
            remedy="Do not rely on it. Ask whoever published it what it was made from and measured with.",
        )
    open_ = [each for each in found if each.status != "ok" and each.kind != "timing"]
    if strict and open_:
        left = [printable(f"{each.kind} {each.name} ({each.reason})") for each in open_]
        raise VerificationError(
            f"was not checked in full: {'; '.join(left)}.",
            where=where,
            remedy="Verify on a machine that has what is missing, or without --strict.",
        )
