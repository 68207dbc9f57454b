"""Opens what a command needs: the Hub (started here if it is the embedded one), the worker, the work folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli import options
from bot.cli.console import reporting
from bot.cli.local_hub import local_hub

if TYPE_CHECKING:
    from bot.hub.client import Hub
    from bot.pipeline import Context
    from bot.pipeline.kept import Kept

LOCAL = "local"


@contextmanager
def open_hub(hub: str | None, hub_dir: Path | None, token_file: Path | None) -> Iterator[Hub]:
    """The Hub that a command talks to.

    Args:
        hub: `local`, an address, or None for the public Hub.
        hub_dir: Data of the embedded Hub.
        token_file: Holds the token for `hub`.
    """
    from bot.hub.client import Hub
    from bot.hub.tokens import default_endpoint, read_token_file, token_for

    if hub == LOCAL:
        with local_hub(options.hub_folder(hub_dir)) as running:
            yield Hub(running.endpoint, running.token)
        return
    endpoint = hub or default_endpoint(os.environ)
    explicit = read_token_file(token_file) if token_file else None
    yield Hub(endpoint, token_for(endpoint, os.environ, explicit=explicit))


@contextmanager
def open_context(
    *,
    hub: str | None,
    hub_dir: Path | None,
    token_file: Path | None,
    work: Path | None,
    require: list[str] | None,
    require_isolation: bool,
) -> Iterator[Context]:
    """All that the pipeline needs, for the duration of a command."""
    from bot.pipeline import Context
    from bot.work import WorkFolder
    from bot.worker import Worker, isolation

    with reporting() as reporter, open_hub(hub, hub_dir, token_file) as opened:
        if isolation().kind == "none":
            reporter.warn(f"untrusted files are parsed without isolation: {isolation().reason}")
        folder = WorkFolder(options.work_folder(work))
        folder.open()
        yield Context(
            hub=opened,
            work=folder,
            worker=Worker(require_isolation=require_isolation),
            reporter=reporter,
            require=frozenset(require or ()),
        )


@contextmanager
def open_record(
    name: str,
    *,
    recipes: Path,
    hub: str | None,
    hub_dir: Path | None,
    token_file: Path | None,
    work: Path | None,
) -> Iterator[tuple[Kept, Path | None]]:
    """A finished release: that of a recipe in the work folder, with its folder, or that of a repository on a Hub."""
    from bot.pipeline.kept import newest_in, published
    from bot.recipe import find_recipe
    from bot.work import WorkFolder

    if "/" not in name:
        yield newest_in(WorkFolder(options.work_folder(work)), find_recipe(name, recipes))
        return
    repo, _, revision = name.partition("@")
    with open_hub(hub, hub_dir, token_file) as opened:
        yield published(opened, repo, revision or "main"), None
