"""Turns the end of a worker into an error that says what happened, where, and what to do."""

from __future__ import annotations

import signal
from typing import Any

from bot import errors
from bot.errors import BotError, StepError
from bot.isolation import exchange
from bot.isolation.exchange import OUTPUT_BYTES, Outcome, printable
from bot.isolation.keeper import OUT_OF_MEMORY

_TEXT = 2000

_CRASHES = {
    signal.SIGSEGV: "It read memory that is not its own.",
    signal.SIGBUS: "A file that it had mapped became shorter, or its memory file system is full.",
    signal.SIGILL: "It used an instruction that this processor does not have.",
    signal.SIGFPE: "It divided by zero.",
    signal.SIGABRT: "A library gave up.",
}


class WorkerError(StepError):
    """A task failed in a worker.

    Attributes:
        details: Traceback and the last part of what the worker printed; may be long, and may quote untrusted text.
    """

    details: str = ""


def explain(outcome: Outcome, task: str, *, seconds: float | None) -> BotError | None:
    """Return the error that an outcome stands for, or None if the task answered and the worker ended by itself.

    Args:
        outcome: What came of the worker.
        task: Its task, to name the place.
        seconds: The time limit that it had.
    """
    if outcome.fault:
        error: BotError = _ended_by_bot(outcome.fault, task, seconds)
    elif outcome.error is not None:
        error = _raised(outcome.error, task)
    elif outcome.setup:
        error = WorkerError(
            f"The worker could not be isolated: {outcome.setup}.",
            where=task,
            remedy="Start the bot again: it then finds out anew what the system allows.",
        )
    elif outcome.answers:
        return None
    else:
        error = _died(outcome, task)
    if isinstance(error, WorkerError):
        error.details = details(outcome)
    return error


def details(outcome: Outcome) -> str:
    """Return the traceback, and the last part of what the worker printed, as text that is safe to show."""
    traceback = printable(str((outcome.error or {}).get("details", "")), OUTPUT_BYTES)
    printed = f"The worker printed:\n{outcome.output}" if outcome.output.strip() else ""
    return "\n".join(part for part in (traceback, printed) if part)


def _ended_by_bot(fault: str, task: str, seconds: float | None) -> WorkerError:
    if fault == "time":
        return WorkerError(
            f"The task took longer than its limit of {seconds:g} s and was ended.",
            where=task,
            remedy="Raise the time limit, or give it less to do.",
        )
    if fault == "size":
        return WorkerError(f"The worker's answer has more than {exchange.ANSWER_BYTES} bytes.", where=task)
    if fault == "ending":
        return WorkerError("The worker closed its answer pipe but did not end; it was ended.", where=task)
    return WorkerError(fault, where=task, remedy="A library in the worker writes where it should not.")


def _raised(error: dict[str, Any], task: str) -> BotError:
    text = {name: printable(str(error.get(name, "")), _TEXT) for name in ("what", "where", "remedy", "message", "full")}
    kind = getattr(errors, str(error.get("class", "")), None)
    if isinstance(kind, type) and issubclass(kind, BotError):
        return kind(text["what"], where=text["where"], remedy=text["remedy"])
    if text["full"]:
        return WorkerError("No space left on device.", where=text["full"], remedy="Free some space, then run it again.")
    if error.get("memory") is True:
        return _out_of_memory(task)
    name, line = (printable(str(error.get(key, "")), 200) for key in ("type", "line"))
    place = f" ({line})" if line else ""
    return WorkerError(f"{name}: {text['message'] or 'no message'}{place}", where=task)


def _out_of_memory(task: str) -> WorkerError:
    return WorkerError(
        "The task needs more memory than its limit.", where=task, remedy="Raise the memory limit of the worker."
    )


def _died(outcome: Outcome, task: str) -> WorkerError:
    if outcome.code == OUT_OF_MEMORY:
        return _out_of_memory(task)
    try:
        number = signal.Signals(outcome.code - 128)
    except ValueError:
        line = outcome.output.strip().rpartition("\n")[2][-200:]
        last = f" Its last line was: {line}" if line else ""
        what = f"The worker ended with exit status {outcome.code} and without an answer.{last}"
        return WorkerError(what, where=task)
    what = f"The worker was ended by {number.name}."
    if number in _CRASHES:
        return WorkerError(
            f"{what} {_CRASHES[number]}",
            where=task,
            remedy="The file may be damaged or hostile. Try another version of the runtime that parses it.",
        )
    if number == signal.SIGKILL:
        return WorkerError(
            f"{what} Most likely the system ran out of memory.",
            where=task,
            remedy="Free some memory, or use a larger machine.",
        )
    if number == signal.SIGXCPU:
        return WorkerError(f"{what} It used up its processor time.", where=task, remedy="Raise the time limit.")
    return WorkerError(what, where=task)
