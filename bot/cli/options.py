"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def user_folder(kind: str) -> Path:
    """The user's folder for this program's data (`data`) or for what can be made again (`cache`)."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / ("Caches" if kind == "cache" else "Application Support") / "hub-publishing-bot"
    variable, default = ("XDG_CACHE_HOME", ".cache") if kind == "cache" else ("XDG_DATA_HOME", ".local/share")
    return Path(os.environ.get(variable) or home / default) / "hub-publishing-bot"


Name = Annotated[str, typer.Argument(help="The recipe's name: the folder under --recipes.")]
Recipes = Annotated[
    Path, typer.Option("--recipes", help="The folder of recipes.", envvar="BOT_RECIPES", show_default=True)
]
Work = Annotated[
    Path | None,
    typer.Option(
        "--work", help="Where finished pieces of work are kept; the user's cache folder if left out.", envvar="BOT_WORK"
    ),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Recipes; all if left out.")]
Budget = Annotated[
    str, typer.Option("--budget", metavar="SHARE", help="How much of the Hub's quota may be used up before waiting.")
]
Account = Annotated[
    str | None,
    typer.Option("--account", help="Whose pull requests are the bot's; the token's own account if left out."),
]
HubOption = Annotated[
    str | None,
    typer.Option(
        "--hub",
        help="Which Hub: 'local' starts the embedded one for the duration; an address; the public Hub if left out.",
        envvar="BOT_HUB",
    ),
]
HubDir = Annotated[
    Path | None,
    typer.Option(
        "--hub-dir",
        help="Where the embedded Hub keeps its data; the user's data folder if left out.",
        envvar="BOT_HUB_DIR",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="A file that holds the token for --hub. Without it, HF_TOKEN and the stored login are used, and only for "
        "the Hub that they belong to.",
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require", help="A provider that must be measured though the recipe calls it optional, such as cuda."
    ),
]
RequireIsolation = Annotated[
    bool,
    typer.Option(
        "--require-isolation", help="Stop if this system cannot isolate the process that parses untrusted files."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else there.")
]

DEFAULT_RECIPES = Path("recipes")


def work_folder(given: Path | None) -> Path:
    """The work folder: what was asked for, or the user's cache folder."""
    return given or user_folder("cache") / "work"


def hub_folder(given: Path | None) -> Path:
    """The embedded Hub's data: what was asked for, or the user's data folder."""
    return given or user_folder("data") / "hub"
