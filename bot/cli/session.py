"""Opens what a command needs: the Hub (started here if it is the embedded one), the worker, the work folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli import options
from bot.cli.console import reporting
from bot.cli.local_hub import local_hub

if TYPE_CHECKING:
    from bot.card.published import Published
    from bot.hub.client import Hub
    from bot.pipeline import Context

LOCAL = "local"


@contextmanager
def open_hub(
    hub: str | None,
    hub_dir: Path | None,
    token_file: Path | None,
    tell: Callable[[str], None] | None = None,
    *,
    target: str | None = None,
) -> Iterator[Hub]:
    """The Hub that a command talks to.

    Args:
        hub: `local`, an address, or None for the public Hub.
        hub_dir: Data of the embedded Hub.
        token_file: Holds the token for `hub`.
        tell: Is told of every wait.
        target: The repository that is written to: for a token that is good for one repository only.
    """
    from bot.hub import oidc
    from bot.hub.client import Hub
    from bot.hub.retry import Policy
    from bot.hub.tokens import default_endpoint, read_token_file, token_for

    if hub == LOCAL:
        with local_hub(options.hub_folder(hub_dir)) as running:
            yield Hub(running.endpoint, running.token, policy=Policy(tell=tell))
        return
    endpoint = hub or default_endpoint(os.environ)
    explicit = read_token_file(token_file) if token_file else None
    if explicit is None and oidc.wanted(endpoint, target, os.environ):
        explicit = oidc.exchange(endpoint, str(target))
    token = token_for(endpoint, os.environ, explicit=explicit)
    yield Hub(endpoint, token, policy=Policy(tell=tell), account=os.environ.get(oidc.ACCOUNT, "").strip() or None)


@contextmanager
def open_context(
    *,
    hub: str | None,
    hub_dir: Path | None,
    token_file: Path | None,
    work: Path | None,
    require: list[str] | None,
    require_isolation: bool,
    target: str | None = None,
    opens_models: bool = True,
) -> Iterator[Context]:
    """All that the pipeline needs, for the duration of a command.

    Args:
        hub: See `open_hub`.
        hub_dir: See `open_hub`.
        token_file: See `open_hub`.
        work: The work folder.
        require: Providers that must be measured.
        require_isolation: Stop where the system allows no isolation.
        target: See `open_hub`.
        opens_models: If not, the worker refuses every task that reads a model or a sample.
    """
    from bot.pipeline import Context
    from bot.work import WorkFolder
    from bot.worker import Worker, isolation

    with reporting() as reporter, open_hub(hub, hub_dir, token_file, reporter.note, target=target) as opened:
        if isolation().kind == "none":
            reporter.warn(f"untrusted files are parsed without isolation: {isolation().reason}")
        folder = WorkFolder(options.work_folder(work))
        folder.open()
        yield Context(
            hub=opened,
            work=folder,
            worker=Worker(require_isolation=require_isolation, refuses=() if opens_models else ("graph", "measure")),
            reporter=reporter,
            require=frozenset(require or ()),
        )


def read_record(name: str, hub: Hub | None, *, recipes: Path, work: Path | None) -> tuple[Published, Path | None]:
    """A finished release.

    Args:
        name: A recipe, for its newest release in the work folder; or `OWNER/NAME[@REVISION]`, for one on a Hub.
        hub: That Hub; not needed for a recipe.
        recipes: The folder of recipes.
        work: The work folder.

    Returns:
        The release, and the folder that it is laid out in if it lies on this machine.
    """
    from bot.pipeline.kept import newest_in, published
    from bot.recipe import find_recipe
    from bot.work import WorkFolder

    if hub is None or not is_repository(name):
        return newest_in(WorkFolder(options.work_folder(work)), find_recipe(name, recipes))
    repo, _, revision = name.partition("@")
    return published(hub, repo, revision or "main"), None


def is_repository(name: str) -> bool:
    """Whether a name is a repository's, and not a recipe's."""
    return "/" in name
