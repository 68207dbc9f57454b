"""What the cases came to: one line per group, every wrong case with the command that repeats it, and the count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """One case.

    Attributes:
        name: Names it for `--only`.
        group: The line of the table that counts it.
        wrong: What is wrong; empty if nothing is.
        note: How it went, in one or two words that are counted per group.
        text: The error's text, if the first run ended in one.
        seconds: It took.
        facts: Lines that the table prints below.
    """

    name: str
    group: str
    wrong: str = ""
    note: str = ""
    text: str = ""
    seconds: float = 0.0
    facts: tuple[str, ...] = field(default=())


def render(results: Sequence[Result], command: str) -> str:
    """The table, the facts, the wrong cases, and `N cases, M wrong` as the last line."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    rows = [(name, *_counts(members)) for name, members in groups.items()]
    head = ("what", "cases", "wrong", "how the runs went")
    widths = [max(len(str(row[column])) for row in [head, *rows]) for column in range(3)]
    lines = [_line(head, widths), "  ".join("-" * width for width in [*widths, len(head[3])])]
    lines += [_line(row, widths) for row in rows]
    facts = list(dict.fromkeys(fact for result in results for fact in result.facts))
    wrong = [result for result in results if result.wrong]
    lines += ["", *facts] if facts else []
    for result in wrong:
        lines += ["", f"WRONG {result.name}", f"  {result.wrong}"]
        lines += [f"  the error was: {result.text}"] if result.text else []
        lines += [f"  again: {command} --only '{result.name}'"]
    lines += ["", last_line(results)]
    return "\n".join(lines)


def last_line(results: Sequence[Result]) -> str:
    """`N cases, M wrong`."""
    return f"{len(results)} cases, {sum(bool(result.wrong) for result in results)} wrong"


def _counts(members: Iterable[Result]) -> tuple[str, str, str]:
    members = list(members)
    notes = Counter(result.note for result in members if result.note)
    wrong = sum(bool(result.wrong) for result in members)
    return str(len(members)), str(wrong), ", ".join(f"{count} {note}" for note, count in sorted(notes.items()))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()


def write_json(path: Path, results: Sequence[Result], about: dict[str, Any]) -> None:
    """All results as JSON, with what they were made with."""
    plain = {**about, "cases": len(results), "wrong": sum(bool(result.wrong) for result in results)}
    path.write_text(json.dumps({**plain, "results": [asdict(result) for result in results]}, indent=1) + "\n")


def read_json(path: Path) -> list[Result]:
    """The results in a file of `write_json`."""
    rows = json.loads(path.read_text())["results"]
    return [Result(**{**row, "facts": tuple(row["facts"])}) for row in rows]
