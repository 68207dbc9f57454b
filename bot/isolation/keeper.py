"""The process beside a task: waits for it, watches its memory, and leaves nothing behind when it ends."""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NoReturn

from bot.isolation import kernel

OUT_OF_MEMORY = 200
"""Exit status when the processes of a worker hold too much memory together."""

_WATCH_MILLISECONDS = 500


def keep(worker: int, requests: int, memory: int | None) -> NoReturn:
    """End as the worker ends, or at once when the bot is gone, and leave no descendant behind.

    Args:
        worker: The process that runs the task, a child of this one.
        requests: The pipe that the bot holds the other end of.
        memory: Bytes that this process's descendants may hold together.
    """
    if os.getpid() != 1:
        signal.signal(signal.SIGTERM, _give_up)
        kernel.die_with_parent(signal.SIGTERM)
    events = select.poll()
    events.register(requests, select.POLLHUP)
    events.register(os.pidfd_open(worker), select.POLLIN)
    code = None
    while code is None:
        if any(descriptor == requests for descriptor, _ in events.poll(_WATCH_MILLISECONDS)):
            _give_up()
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == worker:
                    code = os.waitstatus_to_exitcode(found[1])
        if code is None and memory is not None and sum(map(_resident_bytes, _descendants())) > memory:
            code = OUT_OF_MEMORY
    _kill_descendants()
    os._exit(code if code >= 0 else 128 - code)


def _give_up(*_: object) -> NoReturn:
    """End because the bot has ended, or wants it. A bot that was killed cannot remove the temporary folder."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _kill_descendants()
    if os.getpid() != 1:
        import shutil  # not at the top: almost never needed

        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
    os._exit(1)


def _kill_descendants() -> None:
    """Kill what the worker started. A PID namespace would do it too, but there may be none."""
    deadline = time.monotonic() + 5
    while (descendants := _descendants()) and time.monotonic() < deadline:
        for descendant in descendants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(descendant, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants() -> list[int]:
    """Return all processes below this one; orphans among them have this one for their parent."""
    parents = {}
    with contextlib.suppress(OSError):  # a room without /proc
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def _resident_bytes(process: int) -> int:
    """Return the memory that a process holds, mapped files not counted."""
    total = 0
    with contextlib.suppress(OSError), open(f"/proc/{process}/status", "rb") as file:
        for line in file:
            if line.startswith((b"RssAnon:", b"RssShmem:")):
                total += int(line.split()[1]) << 10
    return total
