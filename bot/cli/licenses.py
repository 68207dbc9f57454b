"""`bot licenses`: what upstream declares, what changed since it was reviewed, and writing down a review."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import options


def licenses(
    name: options.Name,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Write down that all this was reviewed, in the recipe's folder: licenses/reviewed.json."
        ),
    ] = False,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the licences upstream, with their texts and those of base models, beside what was reviewed.

    A text that changed is shown line by line. Exit code 9 if something is not as it was reviewed; then `bot publish`
    stops as well. Read it, bring the recipe's own license and texts up to date, and say so with --accept.
    """
    from bot.cli.license_report import print_licenses
    from bot.cli.session import open_context
    from bot.pipeline.license_review import accept as write
    from bot.pipeline.license_review import review_licenses
    from bot.pipeline.licensing import require_same
    from bot.recipe import find_recipe

    recipe = find_recipe(name, recipes)
    with open_context(
        hub=hub, hub_dir=hub_dir, token_file=token_file, work=work, require=None, require_isolation=require_isolation
    ) as context:
        review = review_licenses(context, recipe)
    path, left = write(review) if accept else (None, review.comparison)
    print_licenses(review, path, left, as_json=as_json)
    require_same(recipe, left)
