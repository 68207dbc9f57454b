"""What a listing has to know of every repository before it knows which of them are on its page.

A namespace may hold ten thousand repositories, and a page of a listing shows a thousand. Opening each for its newest
commit and that commit's date takes most of the time; both are remembered for as long as the files that tell them are
the same ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pygit2

from bot.localhub.repository import MAIN, Repository

_LARGEST = 200_000


@dataclass(frozen=True)
class Listed:
    """One repository.

    Attributes:
        kind: ``models`` or ``datasets``.
        repo_id: ``namespace/name``.
        sha: The newest commit of its main branch.
        modified: That commit's date, in seconds since 1970.
        settings: As the repository keeps them; not to be changed.
    """

    kind: str
    repo_id: str
    sha: str
    modified: int
    settings: dict[str, Any]

    @property
    def namespace(self) -> str:
        """The part before the slash."""
        return self.repo_id.partition("/")[0]


class Listing:
    """Remembers the newest commits of repositories.

    Args:
        folders: Yields folder and name of the repositories of a kind, or of a kind and a namespace.
        lock: Returns the lock that writers of a repository hold.
    """

    def __init__(
        self,
        folders: Callable[[str, str], Iterator[tuple[Path, str]]],
        lock: Callable[[str, str], threading.RLock],
    ) -> None:
        self._folders, self._write_lock = folders, lock
        self._known: dict[Path, tuple[tuple[int, ...], Listed]] = {}
        self._lock = threading.Lock()

    def of(self, kind: str, namespace: str = "") -> Iterator[Listed]:
        """Yield the repositories of a kind, or of one namespace, that have a commit on their main branch."""
        for folder, repo_id in self._folders(kind, namespace):
            state = _state(folder)
            known = self._known.get(folder)
            if state is not None and known is not None and known[0] == state:
                yield known[1]
                continue
            listed = self._look(folder, kind, repo_id)
            if listed is None:
                continue
            with self._lock:
                if state is not None and state == _state(folder):
                    if len(self._known) >= _LARGEST:
                        self._known.clear()
                    self._known[folder] = (state, listed)
            yield listed

    def _look(self, folder: Path, kind: str, repo_id: str) -> Listed | None:
        try:
            repository = Repository(folder, kind, repo_id, self._write_lock(kind, repo_id))
        except pygit2.GitError:
            return None  # It was deleted or renamed in the meantime.
        head = repository.reference(MAIN)
        if head is None:
            return None
        return Listed(kind, repo_id, head, int(repository.commit(head).commit_time), repository.settings)


def _state(folder: Path) -> tuple[int, ...] | None:
    """What changes with the main branch or the settings: both files are replaced by others, never written into."""
    found: list[int] = []
    for path in (folder / MAIN, folder / "hub" / "settings.json"):
        try:
            stat = path.stat()
        except OSError:
            return None
        found += (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return tuple(found)
