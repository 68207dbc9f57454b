"""When a call to a Hub is tried again, and how long the bot waits before that.

Only what may be repeated without harm is repeated here. A write whose answer is doubtful is never sent again by itself:
its caller reads the Hub first, and decides from what is there.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bot.errors import HubError


class HubUnavailable(HubError):
    """The Hub gave no usable answer, retries included."""


TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that say that the same request may succeed later."""

_RATE_LIMIT = re.compile(r'"(\w+)"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)')
_SPREAD = random.SystemRandom()


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Policy:
    """How patient the bot is. All durations are seconds.

    Attributes:
        attempts: How often a call is made at most.
        first_wait: Before the second attempt; it doubles from one attempt to the next.
        longest_wait: Limit of that doubling.
        longest_asked: The longest wait that a Hub may ask for. If it asks for more, the call fails at once.
        connect: Time-out for the connection.
        answer: Time-out for each read and write.
        commit_answer: The same for the call that makes a commit, which is slow when the commit is large.
        whole_answer: Time-out for a whole answer that is not a download.
        stall: A download that does not move by `stall_bytes` in this time is given up and resumed.
        stall_bytes: See `stall`.
        sleep: Waits; a test passes its own.
        clock: A clock that never goes back.
        now: The time of day, for headers that name one.
        tell: Called with one sentence before every wait.
    """

    attempts: int = 6
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_asked: float = 900.0
    connect: float = 10.0
    answer: float = 60.0
    commit_answer: float = 300.0
    whole_answer: float = 600.0
    stall: float = 60.0
    stall_bytes: int = 64 * 1024
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    now: Callable[[], datetime] = field(default=_now, repr=False)
    tell: Callable[[str], None] | None = field(default=None, repr=False)

    def hurried(self, scale: float) -> Policy:
        """The same policy with every wait multiplied by `scale`, for tests."""
        sleep = self.sleep
        return replace(self, sleep=lambda seconds: sleep(seconds * scale))

    def wait_after(self, attempt: int, status: int | None = None, headers: Mapping[str, str] | None = None) -> float:
        """How long to wait after a failed attempt.

        What the Hub asks for counts; otherwise the wait doubles with each attempt, shortened by chance by up to a
        fifth so that two bots that failed together do not come back together.

        Args:
            attempt: Number of the attempt that failed, from 1.
            status: Its HTTP status; None if there was no answer.
            headers: Of its answer.

        Returns:
            Seconds; more than `longest_asked` if the Hub asks for that.
        """
        asked = self.asked_wait(status, headers or {})
        if asked is not None:
            return asked
        wait = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        return wait * (1.0 - 0.2 * _SPREAD.random())

    def asked_wait(self, status: int | None, headers: Mapping[str, str]) -> float | None:
        """The wait that an answer asks for: `RateLimit` of a 429, else `Retry-After` in seconds or as a date.

        Returns:
            Seconds, with one added so that rounding never brings the bot back too early; None if nothing is asked.
        """
        lower = {name.lower(): value for name, value in headers.items()}
        if status == 429 and (match := _RATE_LIMIT.search(lower.get("ratelimit", ""))) and int(match[2]) == 0:
            return float(match[3]) + 1.0
        asked = lower.get("retry-after", "").strip()
        if asked.isascii() and asked.isdigit():
            return float(asked) + 1.0
        if not asked:
            return None
        try:
            until = parsedate_to_datetime(asked)
        except ValueError:
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - self.now()).total_seconds()) + 1.0

    def pause(self, seconds: float, why: str) -> None:
        """Says why, and waits."""
        if self.tell:
            self.tell(f"{why}; waiting {seconds:.0f} s")
        self.sleep(seconds)
