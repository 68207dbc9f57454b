"""Runs one task in the worker's process, and writes its answer or its error as one line of JSON."""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH100, PTH119, PTH120

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn


def work(request: dict[str, Any], answers: int) -> NoReturn:
    """Run the task of a request, answer, and end the process.

    Args:
        request: `task` ("module:function"), `arguments`, `path` (for sys.path), `prefixes` (for sys.prefix and
            sys.exec_prefix), `writes` (folders that may be full when writing fails).
        answers: The pipe to write to.
    """
    faulthandler.enable()
    sys.path[:] = request["path"]
    sys.prefix, sys.exec_prefix = request["prefixes"]
    lock = threading.Lock()

    def progress(done: int, total: int, text: str) -> None:
        with lock:
            send(answers, {"progress": [int(done), int(total), str(text)]})

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


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one message as a line of JSON."""
    _write(descriptor, json.dumps(message).encode() + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
