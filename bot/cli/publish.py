"""`bot publish`: the whole job for one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def publish(
    name: options.Name,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Publish what bot build --out has left in this folder, and open no model."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="With --from: a sigstore bundle about the artifacts, to travel with the release."
        ),
    ] = None,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write to the Hub.")] = False,
    reopen: Annotated[bool, typer.Option("--reopen", help="Publish again what a person closed.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what was withheld before.")] = False,
    require: options.Require = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Fetch, build, measure, gate, describe, publish and verify one recipe's release.

    What failed its gate is withheld and named (exit code 5); the rest goes out as one pull request or one commit, as
    the recipe says. Run it again: finished work is not repeated, and a release that is there already is left alone.

    With --from, the record that another run left is held against the recipe and against upstream, and nothing of it is
    believed that can be known otherwise (exit code 8).
    """
    if bundle is not None and source is None:
        raise typer.BadParameter("--bundle belongs to --from: it signs what was built before")
    from bot.cli import actions
    from bot.cli.report import print_outcome
    from bot.cli.session import open_context
    from bot.pipeline import publish as run
    from bot.pipeline import publish_handover
    from bot.recipe import find_recipe

    recipe = find_recipe(name, recipes)
    with open_context(
        hub=hub,
        hub_dir=hub_dir,
        token_file=token_file,
        work=work,
        require=require,
        require_isolation=require_isolation,
        target=recipe.plan.target.repo,
        opens_models=source is None,
    ) as context:
        if source is not None:
            outcome = publish_handover(
                context, recipe, source, dry_run=dry_run, reopen=reopen, retry=retry, bundle=bundle
            )
        else:
            outcome = run(context, recipe, dry_run=dry_run, reopen=reopen, retry=retry)
    print_outcome(recipe, outcome, as_json=as_json)
    actions.report(recipe, outcome)
    outcome.require_complete()
