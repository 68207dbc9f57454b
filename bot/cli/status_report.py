"""Prints the state of all recipes: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from bot.card.fleet import Entry, day, number
from bot.cli.watch_report import age, visible


def print_status(entries: Sequence[Entry], now: datetime, *, as_json: bool, page: Path | None) -> None:
    """Prints the entries.

    Args:
        entries: A recipe each.
        now: When this was found out.
        as_json: Print JSON.
        page: Where the HTML page was written.
    """
    if as_json:
        plain = [asdict(entry) for entry in entries]
        text = json.dumps(plain, indent=2, default=datetime.isoformat)
        sys.stdout.write(text.replace("##[", "\\u0023#[") + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("recipe", "target", "releases", "last", "sizes", "state", "waits for", "since"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        last = entry.releases[-1] if entry.releases else None
        sizes = [
            f"{figure.name} {number(figure.value, figure.unit)}"
            for figure in (last.figures if last else ())
            if figure.kind == "size"
        ]
        cells = [
            entry.recipe,
            entry.target,
            str(len(entry.releases)),
            day(last.date if last else None),
            ", ".join(sizes) or "–",
            entry.state,
            entry.waits_for or "nobody",
            age(entry.since, now) or "–",
        ]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(table if entries else "no recipes here")
    for entry in entries:
        if entry.problem:
            console.print(f"{visible(entry.recipe)}: {visible(entry.problem)}")
    if page is not None:
        console.print(f"page: {visible(str(page))}", soft_wrap=True)
