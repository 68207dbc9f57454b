"""Fixtures that huggingface_hub's own tests expect of a staging Hub, made for an embedded one.

The runner puts the address, the users and their tokens into an environment variable; the tests keep theirs in a module
of constants, which is changed before any of them is imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

CONSTANTS = "EMBEDDED_HUB_TEST_CONSTANTS"
RepoFactory = Callable[..., Any]

for _name, _value in json.loads(os.environ[CONSTANTS]).items():
    setattr(import_module("tests.testing_constants"), _name, _value)


def _client(**settings: Any) -> Any:
    from huggingface_hub import HfApi

    return HfApi(**settings)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks, which the checkout's own settings would name."""
    for mark in ("api", "transfer", "inference", "xet", "no_xet", "production", "deprecated", "git_lfs", "vcr"):
        config.addinivalue_line("markers", f"{mark}: as the client library's settings say")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what moves files twice, through Xet and through Git LFS."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    ways = [True] if "xet" in marks else [False] if "no_xet" in marks else [True, False] if "transfer" in marks else []
    if ways:
        metafunc.fixturenames.append("through_xet")
        metafunc.parametrize("through_xet", ways, indirect=True, ids=["xet" if way else "lfs" for way in ways])


@pytest.fixture
def through_xet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch Xet on or off in the client."""
    monkeypatch.setattr(import_module("huggingface_hub.constants"), "HF_HUB_DISABLE_XET", not request.param)


@pytest.fixture(autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test caches and a token file of its own."""
    constants = import_module("huggingface_hub.constants")
    home = tmp_path_factory.mktemp("home")
    places = {"HF_HUB_CACHE": "hub", "HUGGINGFACE_HUB_CACHE": "hub", "HF_XET_CACHE": "xet", "HF_ASSETS_CACHE": "assets"}
    places |= {"HF_TOKEN_PATH": "token", "HF_STORED_TOKENS_PATH": "stored_tokens", "HF_HOME": ""}
    for name, place in places.items():
        monkeypatch.setattr(constants, name, str(home / place))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    output = import_module("huggingface_hub.cli._output").out
    output.set_mode()


@pytest.fixture(autouse=True)
def git_lfs(request: pytest.FixtureRequest) -> None:
    """Leave out what needs the program git-lfs unless it is asked for."""
    if request.node.get_closest_marker("git_lfs") and os.environ.get("RUN_GIT_LFS_TESTS") != "1":
        pytest.skip("needs git-lfs, which RUN_GIT_LFS_TESTS=1 says is there")


@pytest.fixture(autouse=True)
def expected_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test that is marked as one of a deprecated function warn of that."""
    names = [name for mark in request.node.iter_markers("deprecated") for name in mark.args]
    if names:
        with pytest.warns(FutureWarning, match="|".join(names)):
            yield
    else:
        yield


@pytest.fixture(scope="session")
def api() -> Any:
    """The ordinary user's client."""
    constants = import_module("tests.testing_constants")
    return _client(endpoint=constants.ENDPOINT_STAGING, token=constants.TOKEN)


@pytest.fixture(scope="session")
def api_prod() -> Any:
    """A client of the real Hub, for the tests that are left out here."""
    return _client(endpoint=import_module("tests.testing_constants").ENDPOINT_PRODUCTION)


@pytest.fixture
def repo_factory(api: Any) -> Iterator[RepoFactory]:
    """A function that creates a repository which is deleted after the test."""
    from huggingface_hub.errors import HfHubHTTPError

    new_name = import_module("tests.testing_utils").repo_name
    made: list[tuple[Any, str, Any]] = []

    def create(repo_type: str = "model", *, repo_id: str | None = None, **settings: Any) -> Any:
        if repo_type == "space":
            settings.setdefault("space_sdk", "gradio")
        url = api.create_repo(repo_id or new_name(prefix=repo_type), repo_type=repo_type, **settings)
        made.append((url, repo_type, settings.get("token")))
        return url

    yield create
    for url, repo_type, token in made:
        try:
            api.delete_repo(url.repo_id, repo_type=repo_type, token=token, missing_ok=True)
        except HfHubHTTPError as error:
            print(f"{Path(url).name} was not deleted: {error}")
