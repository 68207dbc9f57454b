"""Opens a watcher: the Hub, the recipes, what is remembered, and the budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli import options
from bot.cli.console import reporting
from bot.cli.session import open_hub

if TYPE_CHECKING:
    from bot.pipeline.watching import Watcher


@contextmanager
def open_watcher(
    *,
    recipes: Path,
    hub: str | None,
    hub_dir: Path | None,
    token_file: Path | None,
    work: Path | None,
    budget: str = "50%",
    account: str | None = None,
) -> Iterator[Watcher]:
    """A watcher for the duration of a command.

    Args:
        recipes: The folder of recipes.
        hub: See `open_hub`.
        hub_dir: Data of the embedded Hub.
        token_file: Holds the token for `hub`.
        work: What is remembered goes there.
        budget: A share of the Hub's quota, such as `50%`.
        account: Whose pull requests are the bot's.
    """
    from bot.canonical import digest
    from bot.hub.budget import Budget, parse_share
    from bot.hub.memory import Memory
    from bot.pipeline.fleet import Fleet
    from bot.pipeline.watching import Watcher

    share = parse_share(budget)
    with reporting() as reporter, open_hub(hub, hub_dir, token_file, reporter.note) as opened:
        # The account is not asked for here: a loop may begin while the Hub does not answer.
        who = digest([opened.endpoint, opened.has_token, account or ""])[:16]
        yield Watcher(
            opened,
            Fleet(recipes),
            account=account,
            memory=Memory(options.work_folder(work) / "watch" / f"{who}.json"),
            budget=Budget(share, tell=reporter.note),
            reporter=reporter,
        )
