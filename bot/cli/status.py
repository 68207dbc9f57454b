"""`bot status`: the state of all recipes, with their releases over time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def status(
    names: options.Names = None,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page, with plots.")
    ] = None,
    history: Annotated[
        int, typer.Option("--history", min=0, max=200, help="How many releases of each recipe are read.")
    ] = 20,
    budget: options.Budget = "50%",
    account: options.Account = None,
    as_json: options.AsJson = False,
) -> None:
    """Show every recipe with its releases over time, and what waits for whom. Nothing is changed anywhere.

    The exit code is that of `bot watch`: 2, 3 or 7 if a recipe is broken or cannot be looked at.
    """
    from bot.canonical import write_atomically
    from bot.card.fleet import render_status
    from bot.cli.status_report import print_status
    from bot.cli.watch_report import worst
    from bot.cli.watch_session import open_watcher
    from bot.pipeline.status import status as look
    from bot.work import disk_errors

    with open_watcher(
        recipes=recipes,
        hub=hub,
        hub_dir=hub_dir,
        token_file=token_file,
        work=work,
        budget=budget,
        account=account,
    ) as watcher:
        entries, rows = look(watcher, names or (), history=history)
        endpoint, now = watcher.hub.endpoint, watcher.now()
    if html is not None:
        with disk_errors(html.absolute().parent):
            write_atomically(html, render_status(entries, endpoint=endpoint, now=now).encode(), mode=0o644)
    print_status(entries, now, as_json=as_json, page=html)
    if code := worst(rows):
        raise typer.Exit(code)
