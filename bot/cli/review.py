"""`bot review`: what a reviewer has to know of a release, on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import options
from bot.cli.card import Release


def review(
    name: Release,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the review in Markdown, as in the comment.")
    ] = False,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the review of a release as one self-contained page, and say where it lies.

    The release is the recipe's newest one in the work folder, or the one that a repository holds at a revision, such as
    OWNER/NAME@refs/pr/3. It is compared with what the target's main branch holds.
    """
    from bot.cli.report import print_review
    from bot.cli.session import open_hub, read_record
    from bot.errors import HubError
    from bot.pipeline.reviewing import review_of, what_is_published, write_review

    with open_hub(hub, hub_dir, token_file) as opened:
        now, folder = read_record(name, opened, recipes=recipes, work=work)
        problem = ""
        try:
            before = what_is_published(opened, now.require_release().target)
        except HubError as error:
            before, problem = None, f"compared with nothing, since the target could not be read: {error}"
    found = review_of(now, before)
    page = write_review(found, folder, options.work_folder(work))
    print_review(found, page, problem, markdown=markdown, as_json=as_json)
    if open_page:
        typer.launch(str(page))
