"""How many requests the bot allows itself, and when it waits so that the Hub never has to refuse one.

A Hub counts requests in windows of a few minutes, in one bucket for its API, one for files and one for pages, and says
with every answer what is left (`RateLimit`) out of how much (`RateLimit-Policy`). The budget is a share of that: when
as much is used, by whomever, the next request waits for the next window. What is left over belongs to whoever
publishes at the same time with the same account.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.errors import RecipeError

if TYPE_CHECKING:
    import httpx2

API, RESOLVERS, PAGES = "api", "resolvers", "pages"

DOCUMENTED = {API: 1_000, RESOLVERS: 5_000, PAGES: 200}
"""Requests in five minutes for a free account, as the Hub documents them: a guess until the Hub has said its own."""

_LEFT = re.compile(r'"(\w+)"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)')
_QUOTA = re.compile(r'"(\w+)"\s*;\s*q\s*=\s*(\d+)\s*;\s*w\s*=\s*(\d+)')
_SHARE = re.compile(r"(\d{1,3})\s*%")


def bucket_of(path: str) -> str:
    """The bucket that a request counts in, by its path."""
    if "/resolve/" in path or "/raw/" in path or ".git/" in path:
        return RESOLVERS
    return API if path.startswith("/api/") else PAGES


def parse_share(text: str) -> float:
    """`50%` as 0.5.

    Raises:
        RecipeError: It is no such share between 1 and 100 percent.
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None or not 1 <= int(match[1]) <= 100:
        raise RecipeError(f"--budget takes a share of the Hub's quota, 1% to 100%, found {text!r}", where="--budget")
    return int(match[1]) / 100


@dataclass
class Bucket:
    """What is known of one bucket.

    Attributes:
        calls: Requests that were sent.
        refused: Answers with status 429.
        waited: Seconds that were waited for a new window.
        quota: Requests in a window; None if the Hub has not said it.
        left: Of these, in this window; None if that is not known.
        resets: When the window ends, by the budget's clock.
    """

    calls: int = 0
    refused: int = 0
    waited: float = 0.0
    quota: int | None = None
    left: int | None = None
    resets: float = 0.0


class Budget:
    """Sees every request to one Hub (`bot.hub.session.observe`), counts it, and holds it back where it has to wait.

    Args:
        share: The part of each quota that may be used, by everybody together, 0 to 1.
        clock: Seconds that never go back.
        sleep: Waits.
        tell: Told of every wait.
    """

    def __init__(
        self,
        share: float = 0.5,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.share = share
        self.buckets = {name: Bucket() for name in (API, RESOLVERS, PAGES)}
        self._clock, self._sleep, self._tell = clock, sleep, tell

    def quota(self, name: str) -> int:
        """Requests in a window: what the Hub has said, or else what it documents."""
        return self.buckets[name].quota or DOCUMENTED[name]

    def spare(self, name: str) -> float:
        """How many requests may still be made in this window without waiting; infinite if the Hub counts none."""
        bucket = self.buckets[name]
        if bucket.left is None or bucket.quota is None or self._clock() >= bucket.resets:
            return math.inf if bucket.quota is None and bucket.calls else float(self.share * self.quota(name))
        return max(0.0, bucket.left - self._reserve(bucket.quota))

    def before(self, request: httpx2.Request) -> None:
        """Waits if the budget of this window is used up, and counts the request."""
        bucket = self.buckets[bucket_of(request.url.path)]
        now = self._clock()
        if bucket.left is not None and now >= bucket.resets:
            bucket.left = None
        if bucket.left is not None and bucket.quota is not None and bucket.left <= self._reserve(bucket.quota):
            wait = bucket.resets - now
            if self._tell:
                self._tell(f"the budget of this window is used up; waiting {wait:.0f} s for the next")
            self._sleep(wait)
            bucket.waited += wait
            bucket.left = None
        bucket.calls += 1
        if bucket.left is not None:
            bucket.left -= 1

    def after(self, response: httpx2.Response) -> None:
        """Reads what the Hub says is left."""
        headers = response.headers
        left, quota = _LEFT.search(headers.get("ratelimit", "")), _QUOTA.search(headers.get("ratelimit-policy", ""))
        if left is not None and left[1] in self.buckets:
            bucket = self.buckets[left[1]]
            bucket.left = int(left[2])
            # One second more, so that rounding never brings the next request into the old window.
            bucket.resets = self._clock() + int(left[3]) + 1.0
        if quota is not None and quota[1] in self.buckets:
            self.buckets[quota[1]].quota = int(quota[2])
        if response.status_code == 429:
            self.buckets[bucket_of(response.request.url.path)].refused += 1

    def _reserve(self, quota: int) -> int:
        """What is not ours of a window. One request is always left unused: the last is nobody's to lose."""
        return max(1, math.ceil(quota * (1.0 - self.share)))
