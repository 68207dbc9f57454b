"""The worker's side: reads one request, shuts itself in, runs one task, and answers in JSON.

Two processes run this. The first (process 1 of the PID namespace, where there is one) starts the second and looks after
it (`keeper`). The second runs the task (`task`). Neither outlives the bot: the kernel is asked to kill them with their
parent, and the first also watches the pipe that the bot holds open.

Run as `python -S -P child.py REQUEST_FD ANSWER_FD`.
"""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH100, PTH103, PTH120, PTH123

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import contextlib
import json
import resource
import select
import signal
from typing import Any, NoReturn

from bot.isolation import kernel, seccomp
from bot.isolation.keeper import keep
from bot.isolation.task import send, work

_CHUNK = 1 << 16


def main() -> NoReturn:
    """Read the request, shut this process in, and start the task's process."""
    requests, answers = int(sys.argv[1]), int(sys.argv[2])
    request = json.loads(_read_line(requests))
    kernel.die_with_parent(signal.SIGKILL)
    _end_if_left(requests)
    try:
        _shut_in(request)
    except OSError as error:
        send(answers, {"setup": f"{error.filename or 'setting up'}: {error.strerror}"})
        os._exit(1)
    _end_if_left(requests)
    kernel.allow_tracing(False)
    if worker := os.fork():
        os.close(answers)
        keep(worker, requests, request["limits"].get("RLIMIT_DATA"))
    os.close(requests)
    kernel.allow_tracing(True)
    kernel.die_with_parent(signal.SIGKILL)
    os.set_inheritable(answers, False)
    work(request, answers)


def _shut_in(request: dict[str, Any]) -> None:
    if request["kind"] != "bubblewrap":  # which has done it already, and has made /proc read-only
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the kernel takes the worker first
    if request["kind"] == "namespaces":
        from bot.isolation import namespaces

        namespaces.enter(request["room"])
    kernel.die_with_parent(signal.SIGKILL)  # again: a change of credentials makes the kernel forget it
    kernel.gain_no_privileges()
    kernel.drop_capabilities()
    kernel.forget_keyring()
    if os.getpid() != 1:
        kernel.adopt_orphans()
    os.makedirs(os.environ["HOME"], exist_ok=True)
    os.chdir(os.environ["TMPDIR"])
    for name, value in request["limits"].items():
        _limit(getattr(resource, name), value)
    if request["kind"] == "landlock":
        from bot.isolation import landlock

        landlock.enter(request["room"], os.environ["TMPDIR"])
        seccomp.install(company=True)
    elif request["kind"] != "none":
        with contextlib.suppress(OSError):  # a kernel without filters: the namespaces are wall enough
            seccomp.install()


def _limit(kind: int, value: int) -> None:
    _, most = resource.getrlimit(kind)
    if most != resource.RLIM_INFINITY:
        value = min(value, most)
    resource.setrlimit(kind, (value, value))


def _read_line(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = os.read(descriptor, _CHUNK)
        if not part:
            os._exit(1)  # the bot is gone
        parts.append(part)
    return b"".join(parts)


def _end_if_left(requests: int) -> None:
    events = select.poll()
    events.register(requests, select.POLLHUP)
    if events.poll(0):
        os._exit(1)


if __name__ == "__main__":
    main()
