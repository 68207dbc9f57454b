"""What people see: progress bars on a terminal, plain lines elsewhere, errors with their remedy."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bot.card.markdown import visible_lines
from bot.errors import BotError
from bot.progress import Reporter

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def print_error(error: BotError) -> None:
    """Prints what happened, where, and what to do about it, on standard error."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), visible_lines(error.what)))
    if error.where:
        console.print(Text.assemble(("where: ", "bold"), visible_lines(error.where)))
    if error.remedy:
        console.print(Text.assemble(("to do: ", "bold"), visible_lines(error.remedy)))


class PlainReporter:
    """A line per event, for logs: a long piece of work says where it is every few seconds, not at every step."""

    EVERY = 5.0

    def __init__(self) -> None:
        self._last = 0.0
        self._started = time.monotonic()

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        print(f"[{elapsed:6.1f} s] {visible_lines(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def stage(self, name: str, detail: str = "") -> None:
        """See `Reporter`."""
        self._say(f"{name} {detail}".strip())

    def note(self, text: str) -> None:
        """See `Reporter`."""
        self._say(f"  {text}")

    def warn(self, text: str) -> None:
        """See `Reporter`."""
        self._say(f"  warning: {text}")

    def update(self, done: int, total: int, what: str) -> None:
        """See `Reporter`."""
        now = time.monotonic()
        if now - self._last >= self.EVERY:
            self._last = now
            share = f" {100 * done // total} %" if total else f" {done}"
            self._say(f"  {what}{share}")


class TerminalReporter:
    """Stages as lines, and under them a bar for the work that is going on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._what = ""

    def _clear(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task, self._what = None, ""

    def stage(self, name: str, detail: str = "") -> None:
        """See `Reporter`."""
        from rich.text import Text

        self._clear()
        self._progress.console.print(Text.assemble((f"{name:<8}", "bold cyan"), visible_lines(detail)))

    def note(self, text: str) -> None:
        """See `Reporter`."""
        from rich.text import Text

        self._progress.console.print(Text(f"{'':8}{visible_lines(text)}", style="dim"))

    def warn(self, text: str) -> None:
        """See `Reporter`."""
        from rich.text import Text

        self._progress.console.print(Text(f"{'':8}warning: {visible_lines(text)}", style="yellow"))

    def update(self, done: int, total: int, what: str) -> None:
        """See `Reporter`."""
        if what != self._what:
            from rich.markup import escape

            self._clear()
            self._task, self._what = self._progress.add_task(escape(visible_lines(what)), total=total or None), what
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total or None)


@contextmanager
def reporting() -> Iterator[Reporter]:
    """A reporter that fits where standard error goes."""
    if not sys.stderr.isatty():
        yield PlainReporter()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("        {task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield TerminalReporter(progress)
