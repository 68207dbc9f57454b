"""`bot list`: the recipes that are here."""

from __future__ import annotations

from typing import Any

from bot.cli import options


def list_recipes(recipes: options.Recipes = options.DEFAULT_RECIPES, as_json: options.AsJson = False) -> None:
    """List the recipes: what each reads, what it makes, and where it publishes it.

    A recipe that cannot be loaded is listed with its error, and the exit code is 2.
    """
    import json

    import typer

    from bot.errors import RecipeError
    from bot.recipe import load_recipe, recipe_names

    if not recipes.is_dir():
        remedy = "Name the folder that holds your recipes with --recipes."
        raise RecipeError("there is no such folder", where=str(recipes), remedy=remedy)
    rows: list[dict[str, Any]] = []
    failed = False
    for name in recipe_names(recipes):
        try:
            plan = load_recipe(recipes / name).plan
        except RecipeError as error:
            failed = True
            rows.append({"name": name, "error": str(error)})
            continue
        rows.append(
            {
                "name": name,
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
