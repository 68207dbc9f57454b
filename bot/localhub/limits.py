"""Rate limits as the Hub has them: fixed windows, one count per bearer and bucket. Off unless asked for."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass

from bot.localhub.errors import HubError, bad_request

BUCKETS = ("api", "resolvers", "pages")


@dataclass(frozen=True)
class Limit:
    """So many requests in so many seconds."""

    count: int
    seconds: int


def parse(text: str) -> tuple[str, Limit]:
    """Return bucket and limit of ``BUCKET=COUNT/SECONDS``.

    Raises:
        HubError: 400 for anything else.
    """
    match = re.fullmatch(r"(api|resolvers|pages)=([0-9]{1,9})/([1-9][0-9]{0,5})", text)
    if not match:
        raise bad_request(f"A rate limit reads api=500/300 (or resolvers=, pages=), not {text!r}")
    return match[1], Limit(int(match[2]), int(match[3]))


def bucket_of(path: str) -> str:
    """Return the bucket that a request counts against."""
    if "/resolve/" in path or "/raw/" in path or path.startswith("/cas/") or ".git/" in path:
        return "resolvers"
    return "api" if path.startswith("/api/") else "pages"


class Limiter:
    """Counts requests.

    Args:
        limits: By bucket; a bucket without one is free.
    """

    def __init__(self, limits: dict[str, Limit]) -> None:
        self._limits = limits
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def count(self, who: str, path: str) -> dict[str, str]:
        """Count a request and return the headers that tell what is left.

        Args:
            who: The bearer, or the address of somebody without a token.
            path: The request's path.

        Raises:
            HubError: 429 if nothing is left.
        """
        bucket = bucket_of(path)
        limit = self._limits.get(bucket)
        if limit is None:
            return {}
        now = time.time()
        window = int(now // limit.seconds)
        with self._lock:
            known, used = self._counts.get((who, bucket), (window, 0))
            used = used + 1 if known == window else 1
            self._counts[who, bucket] = (window, used)
        left = max(limit.count - used, 0)
        wait = int((window + 1) * limit.seconds - now) + 1
        headers = {
            "RateLimit": f'"{bucket}";r={left};t={wait}',
            "RateLimit-Policy": f'"fixed window";"{bucket}";q={limit.count};w={limit.seconds}',
        }
        if used > limit.count:
            raise HubError(429, "Too many requests; the header RateLimit says when to come back", headers=headers)
        return headers
