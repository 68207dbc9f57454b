"""One embedded Hub for all tests of this folder; each test works in repositories of its own."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hub_server import HubServer, start_hub


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A running Hub with the users local-user, alice, and reader, who may only read."""
    server = start_hub(tmp_path_factory.mktemp("hub"), "--user", "alice", "--user", "reader:read", "--fast-clock")
    yield server
    server.stop()


@pytest.fixture
def api(hub: HubServer) -> Any:
    """A client as local-user."""
    return hub.api()


@pytest.fixture
def repo(api: Any) -> str:
    """The id of a new, empty model repository."""
    repo_id = f"org-{secrets.token_hex(4)}/model"
    api.create_repo(repo_id)
    return repo_id


@pytest.fixture
def without_xet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client upload through Git LFS."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a download cache of its own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path / "cache"), raising=False)
    return tmp_path / "cache"
