"""Requests are counted by the Hub's buckets, and held back before the Hub refuses one."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx2
import pytest

from bot.errors import RecipeError
from bot.hub.budget import API, RESOLVERS, Budget, bucket_of, parse_share


@dataclass
class Window:
    """A Hub that counts requests in fixed windows, on a clock that moves only by sleeping."""

    quota: int
    seconds: int = 300
    at: float = 1_000.0
    used: dict[int, int] = field(default_factory=dict)
    refused: int = 0

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """What it answers, and how much it says is left."""
        window = int(self.at // self.seconds)
        self.used[window] = self.used.get(window, 0) + 1
        left = max(0, self.quota - self.used[window])
        headers = {
            "RateLimit": f'"api";r={left};t={int((window + 1) * self.seconds - self.at)}',
            "RateLimit-Policy": f'"fixed window";"api";q={self.quota};w={self.seconds}',
        }
        self.refused += self.used[window] > self.quota
        status = 429 if self.used[window] > self.quota else 200
        return httpx2.Response(status, headers=headers, request=request)

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.at += seconds


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_no_window_takes_more_than_its_share_and_nothing_is_refused(share: float) -> None:
    hub = Window(quota=40)
    told: list[str] = []
    budget = Budget(share, clock=lambda: hub.at, sleep=hub.sleep, tell=told.append)
    request = httpx2.Request("GET", "https://hub.example/api/models")
    for _ in range(150):
        budget.before(request)
        budget.after(hub.answer(request))
        hub.at += 0.25
    assert hub.refused == budget.buckets[API].refused == 0
    assert sum(hub.used.values()) == budget.buckets[API].calls == 150
    assert max(hub.used.values()) <= max(40 * share, 1)
    assert told and budget.buckets[API].waited > 0


def test_what_others_use_up_counts_too() -> None:
    hub = Window(quota=40)
    budget = Budget(0.5, clock=lambda: hub.at, sleep=hub.sleep)
    request = httpx2.Request("GET", "https://hub.example/api/models")
    budget.before(request)
    hub.used[int(hub.at // hub.seconds)] = 35
    budget.after(hub.answer(request))
    assert budget.spare(API) == 0
    first = int(hub.at // hub.seconds)
    budget.before(request)
    assert int(hub.at // hub.seconds) == first + 1


def test_buckets_are_apart() -> None:
    hub = Window(quota=10)
    budget = Budget(0.5, clock=lambda: hub.at, sleep=hub.sleep)
    api, files = (
        httpx2.Request("GET", f"https://hub.example{path}") for path in ("/api/models", "/a/b/resolve/main/x")
    )
    for _ in range(5):
        budget.before(api)
        budget.after(hub.answer(api))
    before = hub.at
    budget.before(files)
    assert hub.at == before and budget.buckets[RESOLVERS].calls == 1
    assert bucket_of("/api/models/a/b") == "api" and bucket_of("/a/b") == "pages"


def test_a_hub_that_counts_nothing_is_never_waited_for() -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    budget = Budget(0.01, sleep=sleep)
    request = httpx2.Request("GET", "https://hub.example/api/models")
    for _ in range(100):
        budget.before(request)
        budget.after(httpx2.Response(200, request=request))
    assert budget.spare(API) == float("inf")


@pytest.mark.parametrize("text", ["0%", "101%", "half", "50", "", "-5%"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="--budget"):
        parse_share(text)
    assert parse_share("50%") == 0.5 and parse_share("100 %") == 1.0
