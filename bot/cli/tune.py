"""`bot tune`: which of a recipe's candidates is the fastest that passes its gates."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import options


def tune(
    name: options.Name,
    artifact: Annotated[
        str, typer.Option("--artifact", help="Tune this one only; all with candidates if left out.")
    ] = "",
    provider: Annotated[
        str,
        typer.Option(
            "--provider", help="What the clock runs on, such as cuda; the fastest of the recipe's if left out."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the table, and leave the recipe as it is.")] = False,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    require: options.Require = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Build the candidates that a recipe names under `tune`, drop those that fail a gate, and time the rest in turns.

    The fastest is written into recipe.yaml with its figures as a comment; everything else in the file stays as it is.
    Publishing builds what the recipe says, and never looks at a clock.
    """
    from bot.cli.session import open_context
    from bot.cli.tuning_report import print_tuning
    from bot.pipeline.tuning import tune as run
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
        found = run(context, recipe, artifact=artifact, provider=provider, write=not dry_run)
    print_tuning(recipe, found, dry_run=dry_run, as_json=as_json)
