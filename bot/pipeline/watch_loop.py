"""Polling again and again: what fails is tried again, sooner than the next poll is due, and the loop goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from bot.errors import BotError, HubError
from bot.hub.retry import HubUnavailable
from bot.pipeline.watching import Watcher
from bot.watch.findings import Row

FIRST_WAIT = 30.0
"""Seconds before a poll that failed is tried again; doubled from one failure to the next, up to the interval."""


def watch(
    watcher: Watcher,
    names: Iterable[str],
    every: float,
    on_rows: Callable[[list[Row]], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    polls: int | None = None,
) -> None:
    """Polls at an interval, for ever.

    Args:
        watcher: Polls.
        names: Recipes; none for all.
        every: Seconds from the beginning of a poll to that of the next.
        on_rows: Is given what each poll found.
        clock: Seconds that never go back.
        sleep: Waits.
        polls: Ends after so many polls that came to an end; None for never.

    Raises:
        BotError: The very first poll fails, and for another reason than a Hub that does not answer: the folder, a
            recipe's name or the token is wrong, and a person is there to correct it.
    """
    names = tuple(names)
    done, failures = 0, 0
    while polls is None or done < polls:
        began = clock()
        try:
            rows = watcher.poll(names)
        except BotError as error:
            if not done and not isinstance(error, HubUnavailable):
                raise
            failures += 1
            wait = min(every, FIRST_WAIT * 2.0 ** (failures - 1))
            lost = "the Hub does not answer" if isinstance(error, HubError) else "the poll failed"
            watcher.reporter.warn(f"{lost}: {error} Trying again in {wait:.0f} s")
            sleep(wait)
            continue
        done, failures = done + 1, 0
        on_rows(rows)
        if polls is None or done < polls:
            sleep(max(0.0, every - (clock() - began)))
