"""Doing something that ends in one write: read, decide, write once, and after a doubtful answer read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bot.errors import HubError
from bot.hub.client import Doubtful, Hub

Result = TypeVar("Result")


def until_clear(hub: Hub, attempt: Callable[[], Result], say: Callable[[str], None]) -> Result:
    """Makes attempts until one of them ends without doubt.

    Args:
        hub: Whose patience counts.
        attempt: Reads what the Hub holds, decides from that alone, and makes at most one write that matters, so that
            another attempt after a write that has landed finds it and does not repeat it.
        say: Told of every doubt.

    Raises:
        HubError: The last attempt that the policy allows was in doubt too.
    """
    policy = hub.policy
    number = 1
    while True:
        try:
            return attempt()
        except Doubtful as doubt:
            wait = doubt.wait if doubt.wait is not None else policy.wait_after(number)
            if number >= policy.attempts or wait > policy.longest_asked:
                tried = "once" if number == 1 else f"{number} times"
                raise HubError(
                    f"{doubt.what} Tried {tried}.",
                    where=doubt.where,
                    remedy="Run the same command again later: what has landed is found, and nothing is done twice.",
                ) from doubt
            say(f"{doubt} Looking at what the Hub holds")
            policy.pause(wait, doubt.where)
        number += 1
