"""`bot card`: the card of a release, and where each number on it comes from."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from bot.cli import options

Release = Annotated[
    str,
    typer.Argument(
        metavar="NAME | OWNER/NAME[@REVISION]",
        help="A recipe, for the release that was made last on this machine; or a target repository.",
    ),
]


def card(
    name: Release,
    explain: Annotated[
        bool, typer.Option("--explain", help="List each number on the card with its field, kind, method and samples.")
    ] = False,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    as_json: options.AsJson = False,
) -> None:
    """Render the card of a release from its record, or explain every number on it.

    The record is that of the recipe's newest release in the work folder, or the one that a repository holds. The words
    are those of the recipe as it is here now.
    """
    from bot.card.card import render_card, render_plots
    from bot.card.explain import CARD
    from bot.card.explain import explain as explained
    from bot.cli.report import print_card, print_explained
    from bot.cli.session import is_repository, open_hub, read_record
    from bot.recipe import find_recipe

    with open_hub(hub, hub_dir, token_file) if is_repository(name) else nullcontext() as opened:
        kept, _ = read_record(name, opened, recipes=recipes, work=work)
    release = kept.require_release()
    template = find_recipe(release.recipe, recipes).card_template
    rendered = render_card(release, template=template.read_text("utf-8"), template_name=str(template))
    if not explain:
        print_card(release, rendered.text, as_json=as_json)
        return
    numbers = {CARD: rendered.numbers, **{plot.path: plot.numbers for plot in render_plots(release)}}
    print_explained(release, explained(release, numbers), same=rendered.text == kept.rendered, as_json=as_json)
