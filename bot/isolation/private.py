"""What no worker is ever shown, even if a caller asks for it: tokens, keys, and the home folder as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bot.errors import StepError

# Below the home folder: where programs keep what lets them in elsewhere.
_KEYS = (
    ".aws",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".docker",
    ".git-credentials",
    ".gitconfig",
    ".gnupg",
    ".kube",
    ".netrc",
    ".pypirc",
    ".ssh",
)


def refuse(path: str) -> None:
    """Refuse a file or folder that is a secret, holds one, or lies in a folder of secrets.

    Raises:
        StepError: It does.
    """
    real = os.path.realpath(path)
    seen = [secret for secret in _secrets() if holds(real, secret) or (secret != _home() and holds(secret, real))]
    if seen:
        raise StepError(
            f"A worker would see {seen[0]}, which it must not.",
            where=path,
            remedy="Name the files that are to be read, or move them to a folder of their own.",
        )


def refuse_what_holds_secrets(folders: Iterable[str]) -> None:
    """Refuse to show the folders of the system and of Python, if a secret lies somewhere in them.

    Raises:
        StepError: One does.
    """
    secrets = _secrets()
    for folder in folders:
        for secret in secrets:
            if holds(folder, secret):
                raise StepError(
                    f"Every worker sees this folder, and so would see {secret}, which it must not.",
                    where=folder,
                    remedy="Keep the token elsewhere, and Python in a virtual environment in a folder of its own.",
                )


def holds(folder: str, path: str) -> bool:
    """Return whether `path` is `folder` or lies in it; both are absolute and without links."""
    return os.path.commonpath([folder, path]) == folder


def _secrets() -> list[str]:
    """Return the home folder and the secrets that exist, links followed."""
    home = Path.home()
    usual = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface"
    folders = [usual, Path(os.environ.get("HF_HOME") or usual)]
    files = [folder / name for folder in folders for name in ("token", "stored_tokens")]
    if os.environ.get("HF_TOKEN_PATH"):
        files.append(Path(os.environ["HF_TOKEN_PATH"]))
    found = [os.path.realpath(path) for path in (*files, *(home / name for name in _KEYS)) if path.exists()]
    return [_home(), *dict.fromkeys(found)]


def _home() -> str:
    return os.path.realpath(Path.home())
