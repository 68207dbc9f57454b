"""The bot's side of the pipes to a worker: sends one request, reads progress and one answer, bounds everything.

What arrives was written by a process that may be under a stranger's control. It is read as JSON and nothing else; its
size, its shape and the characters in its texts are checked before anybody sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ANSWER_BYTES = 64 << 20
OUTPUT_BYTES = 64 << 10
_CHUNK = 1 << 18
_ENDING_SECONDS = 5.0
_KILLING_SECONDS = 2.0
_POLL_SECONDS = 0.25

Progress = Callable[[int, int, str], None]


class StartError(Exception):
    """The program of a worker cannot be started at all."""


@dataclass
class Outcome:
    """What came of one worker.

    Attributes:
        answers: The answer, in a list that is empty if there was none.
        error: The worker's description of the exception that ended the task.
        setup: What the system refused while the worker shut itself in.
        fault: Why the bot ended the worker: "time", "size", "ending", or a sentence on a malformed message.
        code: Exit status of the process; above 128, the number of a signal plus 128.
        output: The last part of what the worker printed.
    """

    answers: list[Any] = field(default_factory=list)
    error: dict[str, Any] | None = None
    setup: str = ""
    fault: str = ""
    code: int = 0
    output: str = ""


def converse(
    command: Callable[[int, int], Sequence[str]],
    environment: Mapping[str, str],
    request: Mapping[str, Any],
    *,
    seconds: float | None,
    on_progress: Progress | None = None,
) -> Outcome:
    """Run a worker until it ends, is ended, or the caller's callback raises; it is dead when this returns.

    Args:
        command: Gives the command line, from the numbers of the request pipe and the answer pipe.
        environment: All of its environment variables.
        request: What it is asked, as JSON.
        seconds: How long it may take.
        on_progress: Called with (done, total, text) for each report of progress.

    Raises:
        StartError: The program cannot be started.
    """
    line = json.dumps(request, allow_nan=False).encode() + b"\n"
    with _Child(command, environment) as child:
        return _Talk(child, line, on_progress).run(seconds)


class _Child:
    """A process with its pipes. It is dead once the block is left, whatever the reason."""

    def __init__(self, command: Callable[[int, int], Sequence[str]], environment: Mapping[str, str]) -> None:
        theirs_in, self.requests = os.pipe()
        self.answers, theirs_out = os.pipe()
        try:
            self.process = subprocess.Popen(
                command(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(theirs_in, theirs_out),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(self.requests)
            os.close(self.answers)
            raise StartError(f"{error.filename}: {error.strerror}") from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        assert self.process.stdout is not None  # noqa: S101  it was asked for
        self.prints = self.process.stdout

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self.answers)
        self.prints.close()

    def end(self) -> None:
        """Tell the child to end itself and all that it started, by closing its request pipe; kill it if it does not."""
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1
        try:
            self.process.wait(_KILLING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class _Talk:
    """Reads and writes the pipes of a child as they become ready."""

    def __init__(self, child: _Child, line: bytes, on_progress: Progress | None) -> None:
        self.child = child
        self.process = child.process
        self.requests = child.requests
        self.answers = child.answers
        self.prints = child.prints.fileno()
        self.rest = memoryview(line)
        self.on_progress = on_progress
        self.received = bytearray()
        self.printed = bytearray()
        self.outcome = Outcome()
        self.selector = selectors.DefaultSelector()

    def run(self, seconds: float | None) -> Outcome:
        deadline = None if seconds is None else time.monotonic() + seconds
        for descriptor in (self.requests, self.answers, self.prints):
            os.set_blocking(descriptor, False)
        with self.selector:
            self.selector.register(self.requests, selectors.EVENT_WRITE, self._write)
            self.selector.register(self.answers, selectors.EVENT_READ, self._read_answer)
            self.selector.register(self.prints, selectors.EVENT_READ, self._read_output)
            self._loop(deadline)
        return self._end()

    def _loop(self, deadline: float | None) -> None:
        """Serve the pipes until the answer pipe is closed, the process has ended, or something is wrong."""
        while not self.outcome.fault and self.answers in self.selector.get_map():
            ended = self.process.poll() is not None
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                self.outcome.fault = "time"
                return
            patience = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - now)
            events = self.selector.select(0 if ended else patience)
            for key, _ in events:
                key.data()
            if ended and all(key.fd == self.requests for key, _ in events):
                return  # what it left in the pipes has been read

    def _end(self) -> Outcome:
        """Wait for the process, which has said all that it will say, and note how it ended."""
        if not self.outcome.fault:
            try:
                self.process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                self.outcome.fault = "ending"
        self.child.end()
        code = self.process.wait()
        self.outcome.code = code if code >= 0 else 128 - code
        with contextlib.suppress(BlockingIOError):
            while self._keep_output(os.read(self.prints, _CHUNK)):
                pass
        self.outcome.output = printable(self.printed.decode(errors="replace"), OUTPUT_BYTES)
        return self.outcome

    def _write(self) -> None:
        try:
            self.rest = self.rest[os.write(self.requests, self.rest[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it has ended; its exit status says more
            self.rest = self.rest[:0]
        if not self.rest:
            self.selector.unregister(self.requests)  # it stays open: the worker ends when the bot's end closes

    def _read_answer(self) -> None:
        part = self._read(self.answers)
        if part is None:
            return
        if not part:
            self.selector.unregister(self.answers)
        *lines, rest = part.split(b"\n")
        for line in lines:
            self.received += line
            self._take(bytes(self.received))
            self.received.clear()
            if self.outcome.fault:
                return
        self.received += rest
        if len(self.received) > ANSWER_BYTES:
            self.outcome.fault = "size"

    def _take(self, line: bytes) -> None:
        if self.outcome.answers or self.outcome.error is not None:
            return  # the task has ended: nothing that comes later counts
        try:
            message = _parse(line)
            match message:
                case {"progress": [int(done), int(total), str(text)]}:
                    if self.on_progress is not None:
                        self.on_progress(done, total, printable(text, 200))
                case {"answer": answer}:
                    self.outcome.answers.append(answer)
                case {"error": dict(error)}:
                    self.outcome.error = error
                case {"setup": str(text)}:
                    self.outcome.setup = printable(text, 500)
                case _:
                    raise _Malformed("it is no message that the bot knows")
        except _Malformed as error:
            self.outcome.fault = f"The worker's answer is malformed: {error}."

    def _read_output(self) -> None:
        part = self._read(self.prints)
        if part is not None and not self._keep_output(part):
            self.selector.unregister(self.prints)

    def _keep_output(self, part: bytes) -> bytes:
        self.printed += part
        del self.printed[:-OUTPUT_BYTES]
        return part

    @staticmethod
    def _read(descriptor: int) -> bytes | None:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None


class _Malformed(Exception):
    pass


def _parse(line: bytes) -> Any:
    """Parse one message, and make sure that it can be written out again: no NaN, no infinity, no half characters."""
    if len(line) > ANSWER_BYTES:
        raise _Malformed(f"it has more than {ANSWER_BYTES} bytes")
    try:
        message = json.loads(line.decode())
        json.dumps(message, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Malformed(printable(str(error), 200)) from None
    return message


def printable(text: str, limit: int) -> str:
    """Return `text` without control characters, so that a terminal shows it and does nothing else.

    Args:
        text: Text of unknown origin. Line ends and tabs are kept.
        limit: How many characters to keep, from the end.
    """
    kept = (
        letter if letter in "\n\t" or unicodedata.category(letter)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for letter in text[-limit:]
    )
    return "".join(kept)
