"""`bot lock`: the packages of the environment that a recipe requires, with their hashes."""

from __future__ import annotations

import typer

from bot.cli import options


def lock(
    name: options.Name,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
) -> None:
    """Write a recipe's requirements.lock: every package of the environment that it requires, wheels only, with hashes.

    pip resolves them, for this system and the Python that the recipe requires; nothing is installed. The lock is meant
    to be committed with the recipe.
    """
    from bot.cli.console import reporting
    from bot.environments import write_lock
    from bot.recipe import find_recipe

    recipe = find_recipe(name, recipes)
    with reporting() as reporter:
        path = write_lock(recipe, reporter.update)
    typer.echo(str(path))
