"""Clones with git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd


def git(*arguments: str, cwd: Path, check: bool = True) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {"GIT_LFS_SKIP_SMUDGE": "1"}
    done = subprocess.run(["git", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def with_git() -> None:
    """These tests are about git: it must be there."""
    assert shutil.which("git")


@pytest.mark.parametrize("suffix", ["", ".git"])
def test_clone_and_fetch(api: Any, hub: HubServer, repo: str, tmp_path: Path, suffix: str) -> None:
    operations = [CommitOperationAdd("a/b.txt", b"text"), CommitOperationAdd("m.onnx", b"\0" * 100)]
    made = api.create_commit(repo, operations, commit_message="files")
    api.create_tag(repo, tag="v1", tag_message="the first")
    git("clone", f"{hub.endpoint}/{repo}{suffix}", "clone", cwd=tmp_path)
    clone = tmp_path / "clone"
    assert (clone / "a" / "b.txt").read_text() == "text"
    assert (clone / "m.onnx").read_text().startswith("version https://git-lfs.github.com/spec/v1\noid sha256:")
    assert git("rev-parse", "HEAD", "v1^{commit}", cwd=clone).split() == [made.oid, made.oid]
    git("fsck", "--strict", cwd=clone)
    pull = api.create_commit(repo, [CommitOperationAdd("c.txt", b"c")], commit_message="c", create_pr=True)
    git("fetch", "origin", "refs/pr/1", cwd=clone)
    assert git("rev-parse", "FETCH_HEAD", cwd=clone).strip() == pull.oid


def test_a_packed_repository_is_cloned_too(api: Any, hub: HubServer, repo: str, tmp_path: Path) -> None:
    api.create_commit(repo, [CommitOperationAdd("a.txt", b"a")], commit_message="a")
    git("repack", "-a", "-d", cwd=hub.folder / "repos" / "models" / f"{repo}.git")
    git("clone", f"{hub.endpoint}/{repo}", "clone", cwd=tmp_path)
    assert (tmp_path / "clone" / "a.txt").read_text() == "a"
    api.create_commit(repo, [CommitOperationAdd("b.txt", b"b")], commit_message="b")
    git("pull", cwd=tmp_path / "clone")
    assert (tmp_path / "clone" / "b.txt").read_text() == "b"


def test_private_repositories_ask_for_the_token(api: Any, hub: HubServer, repo: str, tmp_path: Path) -> None:
    api.update_repo_settings(repo, private=True)
    assert (
        "Authentication failed" in git("clone", f"{hub.endpoint}/{repo}", "no", cwd=tmp_path, check=False)
        or not (tmp_path / "no").exists()
    )
    address = f"http://x:{hub.token}@{hub.endpoint.removeprefix('http://')}/{repo}"
    git("clone", address, "yes", cwd=tmp_path)
    assert (tmp_path / "yes" / ".gitattributes").exists()


def test_pushes_and_other_files_are_refused(api: Any, hub: HubServer, repo: str, tmp_path: Path) -> None:
    git("clone", f"{hub.endpoint}/{repo}", "clone", cwd=tmp_path)
    git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "--allow-empty", "-m", "x", cwd=tmp_path / "clone")
    git("push", cwd=tmp_path / "clone", check=False)
    assert len(api.list_repo_commits(repo)) == 1
    for path in (
        "objects/../config",
        "objects/%2e%2e/config",
        "config",
        "hub/settings.json",
    ):
        answer = httpx2.get(f"{hub.endpoint}/{repo}.git/{path}")
        assert answer.status_code == 404, path
