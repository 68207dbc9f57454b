"""Prints licences and what changed in them: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from bot.licenses.reviewed import Comparison, Standing, in_words
from bot.pipeline.license_review import LicenseReview


def print_licenses(review: LicenseReview, written: Path | None, left: Comparison, *, as_json: bool) -> None:
    """Prints what upstream declares and how it stands to what was reviewed.

    Args:
        review: What was found.
        written: The file that the review was written to; None if it was not.
        left: What differs, after that.
        as_json: For programs.
    """
    if as_json:
        typer.echo(json.dumps(_plain(review, written, left), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in ("repository", "commit", "declares", "review"):
        table.add_column(name, overflow="fold")
    for standing in left.standings:
        terms = standing.terms
        table.add_row(*map(_printable, (terms.repo, terms.commit[:12], in_words(terms), standing.status)))
    Console(markup=False, highlight=False).print(table)
    for (repo, path), place in review.places.items():
        typer.echo(_printable(f"{repo}: {path}: {place}"))
    for change in left.changes:
        typer.echo(_printable(f"{change.sentence()}"))
    if written is None:
        for difference in review.differences:
            typer.echo(_printable(f"\n{difference.repo}: {difference.path}: {difference.problem}".rstrip(": ")))
            for line in difference.lines:
                typer.echo(_printable(line))
    else:
        typer.echo(f"reviewed: {written}")
    if not left.changes:
        typer.echo("everything that can be read is as it was reviewed")


def _plain(review: LicenseReview, written: Path | None, left: Comparison) -> dict[str, Any]:
    return {
        "recipe": review.recipe.name,
        "ok": not left.changes,
        "written": str(written) if written else None,
        "repositories": [_standing(review, standing) for standing in left.standings],
        "changes": [
            {"repo": change.repo, "what": change.what, "old": change.old, "new": change.new} for change in left.changes
        ],
        "differences": [
            {"repo": each.repo, "path": each.path, "lines": list(each.lines), "problem": each.problem}
            for each in review.differences
        ],
    }


def _standing(review: LicenseReview, standing: Standing) -> dict[str, Any]:
    terms = standing.terms.to_plain()
    for text in terms["texts"]:
        text["file"] = str(review.places[standing.terms.repo, text["path"]])
    return {**terms, "review": standing.status}


def _printable(text: str) -> str:
    """Text that cannot move a terminal's cursor: it comes from repositories that anybody may have written."""
    return "".join(char if char.isprintable() or char in "\t\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
