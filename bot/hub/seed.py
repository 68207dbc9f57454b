"""Puts a folder into a repository, to fill an embedded Hub with upstream models."""

from __future__ import annotations

from pathlib import Path

from bot.errors import RecipeError
from bot.hub.client import Hub, RepoType


def put_folder(hub: Hub, repo: str, folder: Path, *, repo_type: RepoType = "model", message: str = "") -> str:
    """Makes a repository hold the files of a folder, as one commit, and returns that commit.

    Files that are there with the same content are not sent again; if all are, nothing is committed.

    Raises:
        RecipeError: There is no such folder, or it is empty.
        HubError: The Hub did not do it.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
    if not files:
        raise RecipeError("there is no such folder, or it holds no files.", where=str(folder))
    hub.create_repo(repo, repo_type=repo_type)
    head = hub.head(repo, repo_type=repo_type).sha
    landed = hub.commit(
        repo,
        files,
        message=message or f"Add {folder.name}",
        description="",
        revision="main",
        parent=head,
        repo_type=repo_type,
    )
    return landed.sha
