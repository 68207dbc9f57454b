"""Prints what tuning found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from bot.recipe import Recipe

if TYPE_CHECKING:
    from bot.pipeline.tuning import Tried, Tuning


def print_tuning(recipe: Recipe, found: Sequence[Tuning], *, dry_run: bool, as_json: bool) -> None:
    """Prints a table of candidates per artifact, and what became of the recipe.

    Args:
        recipe: As it was read.
        found: What was found, per artifact.
        dry_run: Nothing was written.
        as_json: As one JSON document.
    """
    if as_json:
        plain = {"recipe": recipe.name, "written": not dry_run, "artifacts": [each.to_plain() for each in found]}
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    for tuning in found:
        typer.echo(f"{tuning.artifact} on {tuning.provider}: {tuning.device}, {tuning.runtime}")
        _print_table(tuning)
        for line in _lines(tuning, recipe, dry_run):
            typer.echo(line)


def _print_table(tuning: Tuning) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    batches = sorted({batch for each in tuning.tried for batch in each.speedups})
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("parameters", overflow="fold")
    for name in ("nodes", "casts", "bytes", *(f"batch {batch}" for batch in batches)):
        table.add_column(name, justify="right", no_wrap=True)
    for number, each in enumerate(tuning.tried, start=1):
        ratios = [f"{each.speedups[batch]:.2f}" if batch in each.speedups else "out" for batch in batches]
        counts = [f"{count:,}" if each.bytes else "" for count in (each.nodes, each.casts, each.bytes)]
        table.add_row(f"{number}", f"{each.candidate.label}{_mark(each, tuning)}", *counts, *ratios)
    Console(markup=False, highlight=False).print(table)


def _mark(each: Tried, tuning: Tuning) -> str:
    marks = ["now"] if each.candidate.current else []
    marks += ["fastest"] if each is tuning.winner else []
    return f" ({', '.join(marks)})" if marks else ""


def _lines(tuning: Tuning, recipe: Recipe, dry_run: bool) -> list[str]:
    lines = []
    if tuning.reference:
        lines.append(f"batch N: times as fast as {tuning.reference}, in turns with it, at N samples a run")
    for number, each in enumerate(tuning.tried, start=1):
        if each.dropped:
            lines.append(f"{number} is out: {each.dropped}")
    if tuning.winner is None:
        return [*lines, f"nothing passes the gates; {recipe.path} stays as it is"]
    verb = "would be" if dry_run else "was"
    what = "other parameters" if tuning.changed else "the same parameters, with their figures"
    return [*lines, f"{recipe.path} {verb} given {what}"]
