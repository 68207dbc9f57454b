"""Finds out, by trying it, how far this system lets a worker be shut in."""

from __future__ import annotations

import compileall
import functools
import shutil
import socket
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.errors import StepError
from bot.isolation import environment
from bot.isolation.bubblewrap import command as bubblewrap_command
from bot.isolation.exchange import Outcome, Progress, StartError, converse
from bot.isolation.room import HOME, Interpreter, Room, plan, python_path

Kind = Literal["bubblewrap", "namespaces", "landlock", "none"]

_CHILD = str(Path(__file__).with_name("child.py"))
_PROBE_SECONDS = 20.0
_MEANS = {
    "bubblewrap": "bubblewrap is installed",
    "namespaces": "the kernel allows user namespaces",
    "landlock": "the kernel has Landlock",
}


@dataclass(frozen=True)
class Isolation:
    """How workers are shut in.

    Attributes:
        kind: With bubblewrap, with namespaces of our own, with Landlock, or not at all.
        reason: Why it is that kind, as a sentence.
        fresh_proc: Whether the worker gets a /proc of its own; else it gets none.
    """

    kind: Kind
    reason: str
    fresh_proc: bool = True


@functools.lru_cache(maxsize=1)
def isolation() -> Isolation:
    """Return what this system allows, found by trying it, once per process."""
    if not sys.platform.startswith("linux"):
        return Isolation("none", f"Isolation needs Linux; this is {sys.platform}.")
    refusals: list[str] = []
    for kind, fresh_proc in _candidates():
        refusal = why_not(Isolation(kind, "", fresh_proc))
        if not refusal:
            means = _MEANS[kind] if fresh_proc else f"{_MEANS[kind]}, but no /proc of its own"
            return Isolation(kind, "; ".join([means, *refusals]), fresh_proc)
        if (line := f"{kind}: {refusal}") not in refusals:
            refusals.append(line)
    return Isolation("none", "; ".join(refusals))


def _candidates() -> list[tuple[Kind, bool]]:
    kinds: list[Kind] = ["bubblewrap", "namespaces"] if shutil.which("bwrap") else ["namespaces"]
    return [(kind, fresh_proc) for fresh_proc in (True, False) for kind in kinds] + [("landlock", True)]


def why_not(wanted: Isolation) -> str:
    """Start a worker that tries to get out, and return why this isolation does not hold here; empty if it does."""
    with tempfile.NamedTemporaryFile() as file, socket.socket() as listener:
        arguments = {"file": file.name, "port": _listen(listener)}
        try:
            room = plan(fresh_proc=wanted.fresh_proc)
            outcome = start(wanted, room, "bot.isolation.selfcheck:look", arguments, seconds=_PROBE_SECONDS)
        except (StartError, StepError) as error:
            return str(error)
    if not outcome.answers:
        said = outcome.setup or outcome.output.strip().rpartition("\n")[2] or f"exit status {outcome.code}"
        return said if not outcome.fault else f"the trial was ended ({outcome.fault})"
    seen = [name for name, value in outcome.answers[0].items() if value]
    return f"a worker still reaches: {', '.join(seen)}" if seen else ""


def _listen(listener: socket.socket) -> int:
    """Return the port of a new listener on loopback; 0 where the bot itself has no network."""
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
    except OSError:
        return 0
    return int(listener.getsockname()[1])


@functools.lru_cache(maxsize=1)
def _compile_own_code() -> None:
    """Keep the bot's own modules as byte code, once per process: workers cannot write it, and would compile anew."""
    if not sys.dont_write_bytecode:
        compileall.compile_dir(Path(__file__).parent.parent, quiet=2)


def start(
    how: Isolation,
    room: Room,
    function: str,
    arguments: object,
    *,
    limits: dict[str, int] | None = None,
    seconds: float | None = None,
    extra_path: tuple[Path, ...] = (),
    on_progress: Progress | None = None,
    interpreter: Interpreter | None = None,
) -> Outcome:
    """Run one function in a worker.

    Args:
        how: How to shut it in.
        room: What it may see. Without isolation it sees all that the bot does.
        function: "module:function".
        arguments: Its arguments, as JSON.
        limits: Resource limits: name in the `resource` module to number.
        seconds: How long it may take.
        extra_path: Folders to look for packages in first.
        on_progress: Called for each report of progress.
        interpreter: The Python that it runs in; None for the bot's own.

    Raises:
        StartError: The program cannot be started.
    """
    _compile_own_code()
    outside = how.kind in ("landlock", "none")
    scratch = tempfile.TemporaryDirectory(prefix="bot-worker-") if outside else nullcontext(str(Path(HOME).parent))
    with scratch as temporary:
        request = {
            "kind": how.kind,
            "room": room.to_json() if how.kind in ("namespaces", "landlock") else None,
            "task": function,
            "arguments": arguments,
            "path": python_path(extra_path, interpreter),
            "prefixes": [interpreter.prefix] * 2 if interpreter else [sys.prefix, sys.exec_prefix],
            "limits": limits or {},
            "writes": [place for _, place, writable in room.mounts if writable],
        }

        def command(requests: int, answers: int) -> list[str]:
            python = interpreter.program if interpreter else sys.executable
            inner = [python, "-S", "-P", _CHILD, str(requests), str(answers)]
            if how.kind != "bubblewrap":
                return inner
            program = shutil.which("bwrap")
            if program is None:
                raise FileNotFoundError(2, "bubblewrap is not installed", "bwrap")
            return bubblewrap_command(program, room, inner)

        variables = environment.build(str(Path(temporary, Path(HOME).name)), temporary)
        return converse(command, variables, request, seconds=seconds, on_progress=on_progress)
