"""Prints what a verification found: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bot.pipeline.findings import Finding
    from bot.pipeline.verifying import Provenance, Verified


WIDTH = 160
"""Columns of the table where it does not go to a terminal."""

NAMED = 3
"""How many checks are named that have the same reason; the table has them all."""


def print_verified(name: str, revision: str, verified: Verified, provenance: Provenance, *, as_json: bool) -> None:
    """Prints every check, and what is known of how the release came about.

    Args:
        name: The repository.
        revision: What was asked for.
        verified: What was found.
        provenance: What is known of its making.
        as_json: For programs.
    """
    if as_json:
        typer.echo(json.dumps(_plain(name, revision, verified, provenance), indent=2, ensure_ascii=False))
        return
    from bot.pipeline.findings import printable

    release = verified.verification.release
    typer.echo(printable(f"{name}@{revision}, release {release.short_identity}"))
    rows = [
        (
            f"file {file.path}",
            {"different": "differs"}.get(file.status, file.status),
            file.expected[:16],
            file.found[:16],
        )
        for file in verified.verification.files
    ]
    rows += [
        (f"{each.kind} {each.name}", each.status, _short(each.recorded), _short(each.found))
        for each in verified.findings
    ]
    _print_rows([tuple(map(printable, row)) for row in rows])
    for line in _reasons(verified.findings):
        typer.echo(printable(line))
    typer.echo(printable(_summary(verified)))
    typer.echo(printable(provenance.sentence()))


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    """A table without lines, as wide as the terminal; in a file it is wide enough that little has to be folded."""
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("check", "status", "recorded", "found"):
        table.add_column(column, overflow="fold", no_wrap=column == "status")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else WIDTH
    Console(markup=False, highlight=False, width=width).print(table)


def _reasons(findings: Sequence[Finding]) -> Iterator[str]:
    """Each reason once, with what it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for each in findings:
        if each.reason:
            about.setdefault((each.status, each.reason), []).append(f"{each.kind} {each.name}")
    for (status, reason), names in about.items():
        rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{status}: {', '.join(names[:NAMED])}{rest}: {reason}"


def _summary(verified: Verified) -> str:
    files = "every file is as it was released" if verified.verification.ok else "not as it was released"
    count = Counter(each.status for each in verified.findings)
    others = f"; besides, {count['ok']} ok, {count['differs']} differ, {count['not checked']} not checked"
    return files + (others if verified.findings else "")


def _plain(name: str, revision: str, verified: Verified, provenance: Provenance) -> dict[str, Any]:
    verification = verified.verification
    return {
        "repository": name,
        "revision": revision,
        "commit": verification.commit,
        "identity": verification.release.identity,
        "ok": verified.ok and provenance.status != "wrong",
        "provenance": {
            "status": provenance.status,
            "signer": provenance.signer,
            "problem": str(provenance.problem or ""),
        },
        "files": [
            {"path": file.path, "status": file.status, "expected": file.expected, "found": file.found}
            for file in verification.files
        ],
        "checks": [
            {
                "kind": each.kind,
                "name": each.name,
                "status": each.status,
                "recorded": each.recorded,
                "found": each.found,
                "reason": each.reason,
            }
            for each in verified.findings
        ],
    }


def _short(text: str) -> str:
    """A digest cut to what tells it from others; other text as it is."""
    return text[:16] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
