"""What a run inside GitHub Actions says to it: outputs, the job's summary, annotations; and what it never says.

A runner reads commands from the log: a line that begins with `::`, or holds `##[`, may set or mask something. Names and
messages from upstream stand in the log as well, so on a runner every line that the bot prints is made harmless.
Outside of Actions nothing here does anything.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from bot.errors import BotError

if TYPE_CHECKING:
    from bot.pipeline import Outcome
    from bot.recipe import Recipe

LARGEST_SUMMARY = 900_000
"""Bytes. GitHub shows none of a summary of more than 1 MiB."""

_COMMAND = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)
_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")


def is_runner() -> bool:
    """Whether this runs inside GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def harmless(text: str) -> str:
    """A text in which a runner finds no command. Nothing else of it changes."""
    return _COMMAND.sub(lambda found: f"{found[1]}: " if found[1] is not None else "# #", _LINE_ENDS.sub("\n", text))


class _Guarded:
    """A stream to the log, through which no command goes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = ""

    def write(self, text: str) -> int:
        """Writes whole lines; an unfinished one waits, since a command may come in pieces."""
        lines = (self._open + text).splitlines(keepends=True)
        self._open = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        self._stream.write(harmless("".join(lines)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """As `write`, for each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes what waits, too."""
        self._stream.write(harmless(self._open))
        self._open = ""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_log() -> None:
    """Makes all that is printed from now on harmless, if a runner reads it."""
    if is_runner():
        sys.stdout, sys.stderr = _Guarded(sys.stdout), _Guarded(sys.stderr)


def report_plan(recipe: Recipe) -> None:
    """Tells the workflow what machine builds a recipe and where it is published.

    The outputs are `target`, `runner`, `require`, `extras` and `publish-extras`: what the run that opens no model needs
    installed all the same, since a recipe with `rebuild_on: tools` counts the versions of its tools. A recipe that asks
    for a runner of its own and times on CUDA asks for that runner because of its GPU, so there the figures have to be
    taken.
    """
    plan = recipe.plan
    own = plan.runner != type(plan).model_fields["runner"].default
    gpu = own and "cuda" in plan.measure.timings.providers
    outputs = {
        "target": plan.target.repo,
        "runner": plan.runner,
        "require": "cuda" if gpu else "",
        "extras": (extras := "gpu" if gpu else "cpu"),
        "publish-extras": extras if plan.rebuild_on == "tools" else "",
    }
    _append("GITHUB_OUTPUT", "".join(_output(name, value) for name, value in outputs.items()))


def report_due(due: Sequence[Mapping[str, str]], states: Mapping[str, int], broken: Sequence[str]) -> None:
    """Writes what a poll found into the job's summary.

    Args:
        due: The rows of the matrix: `recipe`, `target`, `runner` and `reason`.
        states: How many recipes there are in each state.
        broken: A sentence for each recipe that could not be looked at.
    """
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no recipes"
    lines = [f"## What is due\n\n{counted}.\n"]
    if due:
        lines += ["| recipe | target | runner | why |", "|---|---|---|---|"]
        names = ("recipe", "target", "runner", "reason")
        lines += ["| " + " | ".join(_code(row[name]) for name in names) + " |" for row in due]
    if broken:
        lines += ["", "### Not looked at", "", _block("\n".join(broken))]
    _append_summary("\n".join(lines) + "\n\n")


def report(recipe: Recipe, outcome: Outcome) -> None:
    """Tells the workflow what a run came to: its outputs, and the job's summary.

    The outputs are `recipe`, `identity`, `repository`, `kind`, `revision`, `commit`, `url` and `withheld`; and, where
    nothing was published yet, `checksums`: a file for the action that signs.
    """
    publication, release = outcome.publication, outcome.release
    outputs = {
        "recipe": recipe.name,
        "identity": outcome.identity,
        "repository": recipe.plan.target.repo,
        "kind": publication.kind if publication else "",
        "revision": publication.revision if publication else "",
        "commit": publication.commit if publication else "",
        "url": publication.url if publication else "",
        "withheld": ",".join(release.withheld) if release else "",
        "checksums": str(_write_checksums(outcome)) if publication is None and release and release.built else "",
    }
    _append("GITHUB_OUTPUT", "".join(_output(name, value) for name, value in outputs.items()))
    lines = []
    if publication is not None:
        done = {"pull-request": "Pull request", "commit": "Commit", "nothing": "Nothing to do"}[publication.kind]
        link = f"[{done}]({publication.url})" if re.fullmatch(r"https?://[\w./:%@-]+", publication.url) else done
        lines.append(f"**{link}**: {_code(publication.reason)}\n\n")
        lines.append(_plots(recipe, outcome))
    if outcome.review is not None:
        summary = outcome.review.with_name("summary.md")
        lines.append(summary.read_text("utf-8") if summary.is_file() else "")
    _append_summary("".join(lines))


def _plots(recipe: Recipe, outcome: Outcome) -> str:
    """Links to the pictures of what was published; a summary shows none itself."""
    publication, repo = outcome.publication, recipe.plan.target.repo
    if publication is None or outcome.folder is None or f"/{repo}/" not in publication.url:
        return ""
    base = f"{publication.url.partition(f'/{repo}/')[0]}/{repo}/blob/{quote(publication.revision, safe='')}"
    pictures = sorted(path.name for path in (outcome.folder / "plots").glob("*.svg"))
    links = [f"[{name}]({base}/plots/{quote(name)})" for name in pictures if re.fullmatch(r"[\w.-]+", name)]
    return f"Plots: {', '.join(links)}\n\n" if links else ""


def _write_checksums(outcome: Outcome) -> Path:
    """Writes the sha256 and the name of each artifact that goes out and was made here, as sha256sum does."""
    assert outcome.release is not None and outcome.review is not None  # noqa: S101 - as the caller has asked
    path = outcome.review.with_name("checksums.txt")
    path.write_text("".join(f"{artifact.sha256}  {artifact.file}\n" for artifact in outcome.release.built), "utf-8")
    return path


def report_failure(error: BotError) -> None:
    """Tells the workflow what happened, where, and what to do about it."""
    if not is_runner():
        return
    said = [error.what, *(["Where: " + error.where] if error.where else [])]
    said += ["To do: " + error.remedy] if error.remedy else []
    # The one command that the bot itself gives; it goes past the guard.
    stream = getattr(sys.stderr, "_stream", sys.stderr)
    sys.stderr.flush()
    stream.write(f"::error title=bot, exit code {error.exit_code}::{_escaped(chr(10).join(said))}\n")
    stream.flush()
    _append_summary(f"### Failed, with exit code {error.exit_code}\n\n{_block(chr(10).join(said))}\n")


def _escaped(text: str) -> str:
    """A text as the value of a command, which ends at the line's end."""
    return _LINE_ENDS.sub("\n", text).replace("%", "%25").replace("\n", "%0A").replace("##[", "# #[")


def _output(name: str, value: str) -> str:
    """One output. Nobody can guess the line that ends it, so nothing in the value does."""
    end = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{end}\n{_LINE_ENDS.sub(' ', value)}\n{end}\n"


def _block(text: str) -> str:
    """A text as a block of code in Markdown, in which nothing is markup."""
    text = _LINE_ENDS.sub("\n", text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _code(text: str) -> str:
    """A text in one line of code in Markdown."""
    text = " ".join(text.split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if text else ""


def _append_summary(text: str) -> None:
    data = text.encode("utf-8", "replace")
    if len(data) > LARGEST_SUMMARY:
        kept = data[:LARGEST_SUMMARY].decode("utf-8", "ignore").rpartition("\n")[0]
        text = f"{kept}\n\n*The rest did not fit in here.*\n"
    _append("GITHUB_STEP_SUMMARY", text)


def _append(variable: str, text: str) -> None:
    """Adds to a file that the runner named; without a runner there is none."""
    path = os.environ.get(variable, "")
    if path and is_runner():
        with Path(path).open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
