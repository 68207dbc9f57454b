"""`bot pins`: what consumers of a release write down, whether it still holds, and moving it to a later release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli import options

if TYPE_CHECKING:
    from bot.hub.client import Hub

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Pins: repository, commit, file and sha256, by which a consumer gets exactly one file of a release.",
)

Manifest = Annotated[
    Path,
    typer.Argument(
        metavar="MANIFEST.json",
        help="A JSON file of any shape; every object in it with repo, revision, file and sha256 is a pin.",
    ),
]


@contextmanager
def _without_token(hub: str | None, hub_dir: Path | None) -> Iterator[Hub]:
    """The Hub as everyone sees it: a consumer of pins has no token."""
    import os

    from bot.cli.local_hub import local_hub
    from bot.cli.session import LOCAL
    from bot.hub.client import Hub
    from bot.hub.tokens import default_endpoint

    if hub == LOCAL:
        with local_hub(options.hub_folder(hub_dir)) as running:
            yield Hub(running.endpoint)
        return
    yield Hub(hub or default_endpoint(os.environ))


@app.command()
def show(
    repository: Annotated[
        str,
        typer.Argument(metavar="OWNER/NAME[@REVISION]", help="A target; a branch, commit or refs/pr/N after @."),
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Also say bytes, inputs, outputs, opsets, oldest runtime and providers.")
    ] = False,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Print a block to paste for each published file, from the release's own record.

    A file must not be used on the providers in `not_on`: it failed a gate there.
    """
    from bot.cli.pin_report import print_shown
    from bot.cli.session import open_hub
    from bot.hub.pins import show as find

    name, _, revision = repository.partition("@")
    with open_hub(hub, hub_dir, token_file) as opened:
        shown = find(opened, name, revision or None)
    print_shown(shown, full=full, as_json=as_json)


@app.command()
def check(
    manifest: Manifest,
    download: Annotated[
        bool, typer.Option("--download", help="Download and hash every file, whatever the Hub says of it.")
    ] = False,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask, without a token, whether each pin still resolves, has its hash, and is the newest.

    Says what changed between the pinned release and the newest. Exit code 8 if a pin does not resolve or has another
    hash, with file, line and key.
    """
    from bot.cli.console import reporting
    from bot.cli.pin_report import print_checks
    from bot.hub.pin_checks import Consumer, require
    from bot.hub.pin_manifest import read_manifest

    read = read_manifest(manifest)
    with reporting() as reporter, _without_token(hub, hub_dir) as opened:
        checks = Consumer(opened, download=download, progress=reporter.update).check(read)
    print_checks(read, checks, as_json=as_json)
    require(manifest, checks)


@app.command()
def bump(
    manifest: Manifest,
    runtime: Annotated[
        str | None,
        typer.Option("--runtime", help="The consumer's runtime, such as onnxruntime==1.22; nothing newer is taken."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Move each pin to the newest merged release with the same inputs and outputs.

    Only the strings that change are rewritten; every other byte of the file stays. What is not moved is said, and why.
    """
    from bot.cli.console import reporting
    from bot.cli.pin_report import print_bumps
    from bot.hub.pin_checks import Consumer
    from bot.hub.pin_manifest import read_manifest
    from bot.hub.pin_signatures import parse_runtime

    read = read_manifest(manifest)
    version = parse_runtime(runtime) if runtime is not None else None
    with reporting() as reporter, _without_token(hub, hub_dir) as opened:
        bumps, changes = Consumer(opened, runtime=version, progress=reporter.update).bump(read)
    if changes and not dry_run:
        read.write(changes)
    print_bumps(read, bumps, dry_run=dry_run, as_json=as_json)
