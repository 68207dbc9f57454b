"""One embedded Hub for all tests of this folder; each test works in repositories of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hub_cases import QUICK, new_repo_name
from hub_server import HubServer, start_hub

from bot.hub import session
from bot.hub.client import Hub


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A running embedded Hub with the users local-user, alice, and reader, who may only read."""
    running = start_hub(tmp_path_factory.mktemp("hub"), "--user", "alice", "--user", "reader:read", "--fast-clock")
    yield running
    running.stop()


@pytest.fixture
def hub(server: HubServer) -> Hub:
    """The bot's own view of it, as local-user."""
    return Hub(server.endpoint, server.token, policy=QUICK)


@pytest.fixture
def as_user(server: HubServer) -> Callable[[str], Any]:
    """The unmodified client, as one of the Hub's users."""
    for token in server.tokens.values():
        session.admit(server.endpoint, token, QUICK)  # this process speaks for all of them
    return server.api


@pytest.fixture
def target() -> str:
    """The name of a repository that does not exist yet."""
    return new_repo_name()


@pytest.fixture(params=["xet", "lfs"])
def upload(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of sending large files."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", request.param == "lfs")
    return str(request.param)
