"""One embedded Hub for all tests of this folder; each test works in a repository of its own."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hub_here import Here
from hub_server import HubServer, start_hub


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """The Hub's process."""
    running = start_hub(tmp_path_factory.mktemp("hub"), "--user", "alice", "--user", "reader:read", "--fast-clock")
    yield running
    running.stop()


@pytest.fixture
def here(server: HubServer, tmp_path: Path) -> Iterator[Here]:
    """What a test works with; faults that it set are gone afterwards."""
    yield Here(server, f"org-{secrets.token_hex(4)}/model", tmp_path)
    server.clear_faults()


@pytest.fixture(params=["xet", "lfs"])
def upload(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of sending large files."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", request.param == "lfs")
    return str(request.param)
