"""`bot list`: the recipes that are here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot.cli import options


def list_recipes(
    name: Annotated[str | None, typer.Argument(help="One recipe; all if left out.")] = None,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    as_json: options.AsJson = False,
) -> None:
    """List the recipes: what each reads, what it makes, and where it publishes it.

    A recipe that cannot be loaded is listed with its error, and the exit code is 2. Of one recipe that is named, a
    workflow of GitHub Actions is told the target, and what machine builds it.
    """
    import json

    from bot.cli import actions
    from bot.errors import RecipeError
    from bot.recipe import find_recipe, load_recipe, recipe_names

    if not recipes.is_dir():
        remedy = "Name the folder that holds your recipes with --recipes."
        raise RecipeError("there is no such folder", where=str(recipes), remedy=remedy)
    rows: list[dict[str, Any]] = []
    failed = False
    if name is not None:
        actions.report_plan(find_recipe(name, recipes))
    for each in [name] if name is not None else recipe_names(recipes):
        try:
            plan = load_recipe(recipes / each).plan
        except RecipeError as error:
            failed = True
            rows.append({"name": each, "error": str(error)})
            continue
        rows.append(
            {
                "name": each,
                "upstream": plan.upstream.repo or plan.upstream.url,
                "target": plan.target.repo,
                "open": plan.target.open,
                "artifacts": {key: artifact.file for key, artifact in plan.artifacts.items()},
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        typer.echo(f"no recipes in {recipes}: a recipe is a folder NAME with a recipe.yaml in it")
    else:
        for row in rows:
            typer.echo(row["name"])
            if "error" in row:
                typer.echo(f"  error      {row['error']}")
                continue
            typer.echo(f"  upstream   {row['upstream']}")
            typer.echo(f"  target     {row['target']} (opens a {row['open']})")
            for key, file in row["artifacts"].items():
                typer.echo(f"  artifact   {key}: {file}")
    if failed:
        raise typer.Exit(RecipeError.exit_code)
