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
    on: Annotated[
        str | None, typer.Option("--on", metavar="hf-jobs[:FLAVOR]", help="Build and measure in a Job on the Hub.")
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch", metavar="OWNER/NAME", help="With --on: a private repository.", envvar="BOT_JOBS_SCRATCH"
        ),
    ] = None,
    scratch_token: Annotated[
        Path | None,
        typer.Option(
            "--scratch-token", help="With --on: the file with a token for that repository alone; or BOT_JOBS_TOKEN."
        ),
    ] = None,
    job_minutes: Annotated[int, typer.Option("--job-minutes", help="With --on: how long a Job may take.", min=1)] = 120,
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
    believed that can be known otherwise (exit code 8). With --on, the same is done with what a Job leaves.
    """
    if bundle is not None and source is None:
        raise typer.BadParameter("--bundle belongs to --from: it signs what was built before")
    if on is not None and source is not None:
        raise typer.BadParameter("--on and --from exclude each other: what was built is not built again")
    from bot.cli import actions
    from bot.cli.machine import machine_of
    from bot.cli.report import print_outcome
    from bot.cli.session import open_context
    from bot.pipeline import publish as run
    from bot.pipeline import publish_handover, publish_remotely
    from bot.recipe import find_recipe

    recipe = find_recipe(name, recipes)
    machine = machine_of(on, scratch, scratch_token, job_minutes)
    with open_context(
        hub=hub,
        hub_dir=hub_dir,
        token_file=token_file,
        work=work,
        require=require,
        require_isolation=require_isolation,
        target=recipe.plan.target.repo,
        opens_models=source is None and machine is None,
    ) as context:
        if source is not None:
            outcome = publish_handover(
                context, recipe, source, dry_run=dry_run, reopen=reopen, retry=retry, bundle=bundle
            )
        elif machine is not None:
            outcome = publish_remotely(context, recipe, machine, dry_run=dry_run, reopen=reopen, retry=retry)
        else:
            outcome = run(context, recipe, dry_run=dry_run, reopen=reopen, retry=retry)
    print_outcome(recipe, outcome, as_json=as_json)
    actions.report(recipe, outcome)
    outcome.require_complete()
