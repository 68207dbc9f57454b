"""A bot whose worker has started processes of its own, and which is then interrupted or killed by the test.

Run as `python bot_that_stops.py KIND LOCK`. Prints "started" once the worker is busy.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from kinds import ALL, HOSTILE, TASKS

from bot.worker import Worker


def main() -> None:
    """Run a task that never ends."""
    lock = Path(sys.argv[2])
    Worker(tasks=TASKS, isolation=ALL[sys.argv[1]]).call(
        "stay",
        {"lock": str(lock), "processes": 3, "answers": False},
        writes=[lock.parent],
        on_progress=lambda _done, _total, text: print(text, flush=True),
        extra_path=[HOSTILE],
    )


if __name__ == "__main__":
    # What a shell starts in the background inherits that Ctrl-C is ignored; a bot of a person's does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
