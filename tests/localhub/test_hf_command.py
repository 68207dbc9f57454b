"""The client's command line, ``hf``, as a person would use it: nothing is set but the address and the token."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer

Hf = Callable[..., str]


@pytest.fixture
def hf(hub: HubServer, tmp_path: Path) -> Hf:
    """Run ``hf`` with these arguments, and return what it printed; it must succeed."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    ours |= {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": hub.token, "HF_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}

    def run(*arguments: str, **more: str) -> str:
        command = [str(Path(sys.executable).with_name("hf")), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**ours, **more}, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("without_xet", ["0", "1"])
def test_a_folder_goes_up_and_comes_down(hf: Hf, api: Any, hub: HubServer, tmp_path: Path, without_xet: str) -> None:
    repo = f"org-{secrets.token_hex(4)}/model"
    folder = tmp_path / "up"
    (folder / "sub").mkdir(parents=True)
    files = {"README.md": b"---\nlicense: mit\n---\n# A model\n", "model.onnx": secrets.token_bytes(300_000)}
    files["sub/config.json"] = b"{}\n"
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert repo in hf("repos", "create", repo)
    hf("upload", repo, "up", ".", "--commit-message", "All of it", HF_HUB_DISABLE_XET=without_xet)
    assert set(api.list_repo_files(repo)) == {".gitattributes", *files}
    hf("download", repo, "--local-dir", "down", HF_HUB_DISABLE_XET=without_xet)
    assert {name: (tmp_path / "down" / name).read_bytes() for name in files} == files
    (model,) = api.get_paths_info(repo, ["model.onnx"])
    assert (model.xet_hash is not None) == (without_xet == "0")


def test_a_pull_request_from_upload_to_merge(hf: Hf, api: Any, repo: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\0" * 5000)
    hf("upload", repo, "model.onnx", "model.onnx", "--create-pr", "--commit-message", "A file")
    listed = json.loads(hf("discussions", "list", repo, "--format", "json"))
    assert [(each["num"], each["title"], each["status"]) for each in listed] == [(1, "A file", "open")]
    assert "model.onnx" in hf("discussions", "diff", repo, "1")
    hf("discussions", "comment", repo, "1", "--body", "Good")
    hf("discussions", "merge", repo, "1", "--yes")
    assert api.get_discussion_details(repo, 1).status == "merged"
    assert "model.onnx" in api.list_repo_files(repo)


def test_a_discussion_is_opened_renamed_and_closed(hf: Hf, api: Any, repo: str) -> None:
    hf("discussions", "create", repo, "--title", "A question", "--body", "Why?")
    hf("discussions", "rename", repo, "1", "An answer")
    hf("discussions", "close", repo, "1", "--yes")
    assert "An answer" in hf("discussions", "info", repo, "1")
    assert api.get_discussion_details(repo, 1).status == "closed"
