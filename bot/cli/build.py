"""`bot build`: everything up to the card, and nothing on the Hub."""

from __future__ import annotations

from bot.cli import options


def build(
    name: options.Name,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    require: options.Require = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Fetch, build, measure, gate and describe one recipe's release, and publish nothing.

    Prints where the files, the card and the review page lie.
    """
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
        outcome = run(context, recipe)
    print_outcome(recipe, outcome, as_json=as_json)
    outcome.require_complete()
