"""`bot hub`: the embedded Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bot.cli import options

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The embedded Hub: the Hub's API on this machine, for trying everything without an account.",
)

Directory = Annotated[
    Path | None,
    typer.Option("--dir", "--hub-dir", help="Its data; the user's data folder if left out.", envvar="BOT_HUB_DIR"),
]
Port = Annotated[int, typer.Option("--port", help="The port to listen on; 0 takes a free one.")]


@app.command()
def serve(directory: Directory = None, port: Port = 7870) -> None:
    """Serve the embedded Hub until Ctrl-C, for browsing repositories and pull requests.

    Prints its address and where the token for writing lies. Only this machine can reach it.
    """
    from bot.cli.local_hub import serve_forever

    serve_forever(options.hub_folder(directory), port)


@app.command()
def seed(
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The repository; it is created if it is not there.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What it shall hold.", exists=True, file_okay=False)],
    directory: Directory = None,
    kind: Annotated[
        Literal["model", "dataset"], typer.Option("--type", help="What kind of repository it is.")
    ] = "model",
) -> None:
    """Put a folder into a repository of the embedded Hub, to play the part of an upstream.

    One commit; none if the repository holds the same already.
    """
    from bot.cli.local_hub import local_hub, seed_folder

    with local_hub(options.hub_folder(directory)) as running:
        commit = seed_folder(running, repository, folder, kind)
    typer.echo(f"{repository} is at {commit}")
