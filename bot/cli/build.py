"""`bot build`: everything up to the card, and nothing on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def build(
    name: options.Name,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Leave record and artifacts in this new folder, for bot publish --from."),
    ] = None,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    require: options.Require = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Fetch, build, measure, gate and describe one recipe's release, and publish nothing.

    Prints where the files, the card and the review page lie. With --out, what another run needs to publish the
    release without opening a model lies in that folder; that some artifact is withheld is then for that run to say.
    """
    from bot.cli import actions
    from bot.cli.report import print_outcome
    from bot.cli.session import open_context
    from bot.pipeline import build as run
    from bot.recipe import find_recipe

    recipe = find_recipe(name, recipes)
    with open_context(
        hub=hub,
        hub_dir=hub_dir,
        token_file=token_file,
        work=work,
        require=require,
        require_isolation=require_isolation,
    ) as context:
        outcome = run(context, recipe, out=out)
    print_outcome(recipe, outcome, as_json=as_json)
    if out is not None:
        if not as_json:
            typer.echo(f"hand-over: {out}")
        actions.report(recipe, outcome)
        return
    outcome.require_complete()
