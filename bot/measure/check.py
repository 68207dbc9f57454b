"""What one check says: a rule, whether it holds, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bot.records import Json, Status


@dataclass(frozen=True)
class Check:
    """One rule that every artifact is held to, whatever its recipe says.

    Attributes:
        rule: Its name.
        status: Passed, failed or not measured.
        reason: In words, for people.
        value: The figure behind it, if there is one.
    """

    rule: str
    status: Status
    reason: str
    value: float | None = None

    def to_plain(self) -> dict[str, Json]:
        """As plain JSON data. A figure that JSON cannot hold is left out."""
        value = self.value if self.value is not None and math.isfinite(self.value) else None
        return {"rule": self.rule, "status": self.status, "reason": self.reason, "value": value}


def passed(rule: str, reason: str, value: float | None = None) -> Check:
    """The rule holds."""
    return Check(rule, "passed", reason, value)


def failed(rule: str, reason: str, value: float | None = None) -> Check:
    """The rule does not hold."""
    return Check(rule, "failed", reason, value)


def not_measured(rule: str, reason: str) -> Check:
    """Whether the rule holds could not be found out."""
    return Check(rule, "not measured", reason)
