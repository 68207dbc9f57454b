"""What a test of this folder works with."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub_cases import QUICK, Case, make_case
from hub_server import HubServer

from bot.hub.client import Hub
from bot.hub.publish import Publication, publish
from bot.hub.retry import Policy


@dataclass
class Here:
    """What a test works with.

    Attributes:
        server: A running embedded Hub with the users local-user, alice, and reader, who may only read.
        target: The name of a repository that does not exist yet.
        folder: An empty folder.
    """

    server: HubServer
    target: str
    folder: Path

    def hub(self, user: str | None = "local-user", endpoint: str = "", policy: Policy = QUICK) -> Hub:
        """The bot's view of the Hub, as one of its users or as nobody."""
        return Hub(endpoint or self.server.endpoint, self.server.tokens[user] if user else None, policy=policy)

    def api(self, user: str = "local-user") -> Any:
        """The unmodified client, as one of the Hub's users."""
        return self.server.api(user)

    def case(self, seed: str = "1", **more: Any) -> Case:
        """A release for the target, laid out in a folder of its own."""
        return make_case(self.folder / secrets.token_hex(4), self.target, seed=seed, **more)

    def publish(self, case: Case, mode: str = "pull-request", *, hub: Hub | None = None, **more: Any) -> Publication:
        """Publishes it."""
        return publish(hub or self.hub(), **case.arguments(mode, **more))

    def pull_requests(self) -> list[tuple[int, str]]:
        """Number and status of every pull request of the target, whoever opened it."""
        items = self.api().get_repo_discussions(self.target, discussion_type="pull_request")
        return sorted((item.num, item.status) for item in items)

    def cache(self) -> Path:
        """A folder for downloads."""
        return self.folder / secrets.token_hex(4)

    def hand_made(self, files: dict[str, bytes], user: str = "local-user", **more: Any) -> Any:
        """A commit that was not made by the bot."""
        from huggingface_hub import CommitOperationAdd

        api = self.api(user)
        api.create_repo(self.target, exist_ok=True)
        operations = [CommitOperationAdd(path, data) for path, data in files.items()]
        return api.create_commit(self.target, operations, **{"commit_message": "By hand", **more})
