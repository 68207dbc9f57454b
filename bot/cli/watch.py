"""`bot watch`: which recipes are due, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import options


def watch(
    names: options.Names = None,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    once: Annotated[bool, typer.Option("--once", help="Poll once. This is what happens without --every.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Poll again and again: 90s, 15m, 6h, 1d.")
    ] = None,
    budget: options.Budget = "50%",
    account: options.Account = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the due recipes as a matrix for GitHub Actions, and nothing else.")
    ] = False,
) -> None:
    """Tell which recipes are due and why, and what the others wait for. Nothing is changed anywhere.

    A recipe that is broken, or that cannot be looked at, is shown with its error; the exit code is then 2, 3 or 7,
    after everything else was printed. What was learnt is kept in the work folder, and may be deleted.
    """
    from bot.cli.watch_report import print_rows, seconds, worst
    from bot.cli.watch_session import open_watcher
    from bot.pipeline.watch_loop import watch as watch_for_ever

    if once and every:
        raise typer.BadParameter("--once and --every exclude each other")
    interval = seconds(every, "--every") if every else 0
    with open_watcher(
        recipes=recipes,
        hub=hub,
        hub_dir=hub_dir,
        token_file=token_file,
        work=work,
        budget=budget,
        account=account,
    ) as watcher:
        if interval:
            watch_for_ever(
                watcher, names or (), interval, lambda rows: print_rows(rows, watcher.now(), as_json=as_json)
            )
        rows = watcher.poll(names or ())
        moment = watcher.now()
    print_rows(rows, moment, as_json=as_json)
    if code := worst(rows):
        raise typer.Exit(code)
