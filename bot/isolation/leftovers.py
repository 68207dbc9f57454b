"""Looks over the folders that a worker could write to, before the bot trusts what lies there.

A worker cannot read the token, but it can leave a symbolic link to it under the name of a model, and the bot would
follow the link and publish what it points to. So the bot refuses what is neither a plain file nor a folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.errors import StepError

Links = dict[str, str]


def links(folders: Sequence[Path]) -> Links:
    """Return the symbolic links in the folders before a worker gets them: path to text."""
    return {
        entry.path: str(Path(entry.path).readlink())
        for folder in folders
        for entry in _walk(folder)
        if entry.is_symlink()
    }


def check(folders: Sequence[Path], before: Links, task: str) -> None:
    """Refuse what a worker may have left to mislead the bot; what is refused is removed.

    Args:
        folders: The folders that it could write to. No process of the worker is alive any more.
        before: The result of `links` from before.
        task: Its task, to name it in the error.

    Raises:
        StepError: There is a new symbolic link, a device, a socket, a pipe, or a file that runs as its owner.
    """
    for folder in folders:
        for entry in _walk(folder):
            if fault := _fault(entry, before):
                Path(entry.path).unlink()
                raise StepError(
                    f"The worker left {fault} behind, which no step has a use for; it was removed.",
                    where=f"{task}: {entry.path}",
                    remedy="The file that it parsed may be hostile: do not publish anything made from it.",
                )


def _fault(entry: os.DirEntry[str], before: Links) -> str:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return "" if before.get(entry.path) == str(Path(entry.path).readlink()) else "a symbolic link"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "a device, a socket or a pipe"
    return "a file that runs as its owner" if mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_ISREG(mode) else ""


def _walk(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path)
