"""Prints what a verification found: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bot.pipeline.verifying import Provenance, Verified


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
    from rich.console import Console
    from rich.table import Table

    from bot.pipeline.findings import printable

    release = verified.verification.release
    table = Table(title=f"{name}@{revision}, release {release.short_identity}", title_justify="left")
    for column in ("check", "status", "recorded", "found", "why"):
        table.add_column(column, overflow="fold")
    for file in verified.verification.files:
        status = {"different": "differs"}.get(file.status, file.status)
        table.add_row(*map(printable, (f"file {file.path}", status, file.expected[:16], file.found[:16], "")))
    for each in verified.findings:
        cells = (f"{each.kind} {each.name}", each.status, _short(each.recorded), _short(each.found), each.reason)
        table.add_row(*map(printable, cells))
    Console(markup=False, highlight=False, soft_wrap=False).print(table)
    typer.echo(printable(_summary(verified)))
    typer.echo(printable(provenance.sentence()))


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
