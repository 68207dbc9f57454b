"""The worker's side: reads one request, shuts itself in, runs one task, and answers in JSON.

Two processes run this. The first (process 1 of the PID namespace, where there is one) starts the second, waits for it,
and takes what is left of its descendants along when it ends. The second runs the task. Neither outlives the bot: the
kernel is asked to kill them with their parent, and the first also watches the pipe that the bot holds open.

Run as `python -S -P child.py REQUEST_FD ANSWER_FD`.
"""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH100, PTH103, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import contextlib
import errno
import faulthandler
import importlib
import json
import resource
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from bot.isolation import kernel, seccomp

OUT_OF_MEMORY = 200
"""Exit status when the processes of a worker hold too much memory together."""

_CHUNK = 1 << 16
_WATCH_MILLISECONDS = 500


def main() -> NoReturn:
    """Read the request, shut this process in, and start the task's process."""
    requests, answers = int(sys.argv[1]), int(sys.argv[2])
    request = json.loads(_read_line(requests))
    kernel.die_with_parent(signal.SIGKILL)
    _end_if_left(requests)
    try:
        _shut_in(request)
    except OSError as error:
        _send(answers, {"setup": f"{error.filename or 'setting up'}: {error.strerror}"})
        os._exit(1)
    _end_if_left(requests)
    kernel.allow_tracing(False)
    if worker := os.fork():
        os.close(answers)
        _wait(worker, requests, request["limits"].get("RLIMIT_DATA"))
    os.close(requests)
    kernel.allow_tracing(True)
    kernel.die_with_parent(signal.SIGKILL)
    os.set_inheritable(answers, False)
    _work(request, answers)


def _shut_in(request: dict[str, Any]) -> None:
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
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, the kernel takes the worker first
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


def _wait(worker: int, requests: int, memory: int | None) -> NoReturn:
    """End as the worker ends, or at once when the bot is gone, and leave no descendant behind."""
    if os.getpid() != 1:
        signal.signal(signal.SIGTERM, _give_up)
        kernel.die_with_parent(signal.SIGTERM)
    events = select.poll()
    events.register(requests, select.POLLHUP)
    events.register(os.pidfd_open(worker), select.POLLIN)
    code = None
    while code is None:
        if any(descriptor == requests for descriptor, _ in events.poll(_WATCH_MILLISECONDS)):
            code = 1
            break
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == worker:
                    code = os.waitstatus_to_exitcode(found[1])
        if code is None and memory is not None and sum(map(_resident_bytes, _descendants())) > memory:
            code = OUT_OF_MEMORY
    _kill_descendants()
    os._exit(code if code >= 0 else 128 - code)


def _give_up(*_: object) -> NoReturn:
    _kill_descendants()
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


def _work(request: dict[str, Any], answers: int) -> NoReturn:
    faulthandler.enable()
    sys.path[:] = request["path"]
    sys.prefix, sys.exec_prefix = request["prefixes"]
    lock = threading.Lock()

    def progress(done: int, total: int, text: str) -> None:
        with lock:
            _send(answers, {"progress": [int(done), int(total), str(text)]})

    message: dict[str, Any]
    try:
        function = _find(request["task"])
        message = {"answer": function(request["arguments"], progress)}
        line = json.dumps(message, allow_nan=False).encode()
    except BaseException as error:  # whatever it is, it must be reported
        line = json.dumps({"error": _describe(error, request["writes"])}).encode()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with lock:
        _write(answers, line + b"\n")
    os._exit(0)  # no clean-up of libraries: it can crash or hang, and the answer is out


def _find(task: str) -> Callable[..., Any]:
    module, _, name = task.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def _describe(error: BaseException, writes: list[str]) -> dict[str, Any]:
    import traceback  # not at the top: most workers never need it

    details = "".join(traceback.format_exception(error))
    known = _known_class(error)
    if known is not None:
        parts = {name: str(getattr(error, name, "")) for name in ("what", "where", "remedy")}
        return {"class": known, **parts, "details": details}
    frames = traceback.extract_tb(error.__traceback__)
    line = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return {
        "type": type(error).__name__,
        "message": str(error),
        "line": line,
        "memory": isinstance(error, MemoryError),
        "full": _full_folder(error, writes),
        "details": details,
    }


def _known_class(error: BaseException) -> str | None:
    """Return the name of the nearest class of bot.errors that the error is of."""
    for kind in type(error).__mro__:
        if kind.__module__ == "bot.errors":
            return kind.__name__
    return None


def _full_folder(error: BaseException, writes: list[str]) -> str:
    """Return the folder that has no space left, if that is what the error is about."""
    number = getattr(error, "errno", None)
    if number not in (errno.ENOSPC, errno.EDQUOT) and "No space left on device" not in str(error):
        return ""
    path = getattr(error, "filename", None)
    if isinstance(path, str):
        return os.path.dirname(os.path.abspath(path))
    free = {}
    for folder in [*writes, os.environ["TMPDIR"], "/dev/shm"]:  # noqa: S108  only its free space is asked for
        with contextlib.suppress(OSError):
            status = os.statvfs(folder)
            free[folder] = status.f_bavail * status.f_frsize
    return min(free, key=free.__getitem__) if free else os.environ["TMPDIR"]


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


def _send(descriptor: int, message: dict[str, Any]) -> None:
    _write(descriptor, json.dumps(message).encode() + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    main()
