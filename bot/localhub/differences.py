"""What differs between two commits, file by file, for people to read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from bot.localhub.repository import Entry, Repository

MAXIMUM_FILES = 300
MAXIMUM_LINES = 1500
_ORIGINS = {"+": "added", "-": "removed", " ": "same"}


@dataclass(frozen=True)
class Line:
    """One line: ``added``, ``removed``, ``same`` or ``hunk``; its numbers before and after; its text."""

    kind: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True)
class Content:
    """A file on one side of a difference: size in bytes, and the sha256 of what a download gives."""

    size: int
    sha256: str
    is_large: bool


@dataclass(frozen=True)
class FileChange:
    """How one file changed.

    Attributes:
        path: Its path after the change, or before it if it was removed.
        status: ``added``, ``removed``, ``changed`` or ``renamed``.
        old_path: Its path before.
        before: Its content before, if there was any.
        after: Its content after, if there is any.
        is_text: Whether ``lines`` show the change.
        lines: The changed lines with their surroundings.
        is_cut: Whether there are more lines than are shown.
        added: Number of added lines.
        removed: Number of removed lines.
    """

    path: str
    status: str
    old_path: str
    before: Content | None
    after: Content | None
    is_text: bool = False
    lines: list[Line] = field(default_factory=list)
    is_cut: bool = False
    added: int = 0
    removed: int = 0

    @property
    def is_image(self) -> bool:
        """Whether browsers show the file as a picture."""
        return self.path.rpartition(".")[2].lower() in ("png", "jpg", "jpeg", "gif", "webp", "svg", "avif")


def between(repository: Repository, old: str | None, new: str) -> tuple[list[FileChange], int]:
    """Return the changed files between two commits, and how many more there are than are told.

    Args:
        repository: Where.
        old: A commit, or None for the empty tree.
        new: A commit.
    """
    after = repository.commit(new).tree
    difference = repository.commit(old).tree.diff_to_tree(after) if old else after.diff_to_tree(swap=True)
    difference.find_similar()
    changes = []
    for index, patch in enumerate(difference):
        if index < MAXIMUM_FILES:
            changes.append(_change(repository, patch, old, new))
    return changes, max(len(difference) - MAXIMUM_FILES, 0)


def _change(repository: Repository, patch: Any, old: str | None, new: str) -> FileChange:
    delta = patch.delta
    status = {"A": "added", "D": "removed", "R": "renamed"}.get(delta.status_char(), "changed")
    old_path, new_path = delta.old_file.path, delta.new_file.path
    before = repository.entry(old, old_path) if old and status != "added" else None
    after = repository.entry(new, new_path) if status != "removed" else None
    is_large = any(entry is not None and entry.pointer is not None for entry in (before, after))
    path = old_path if status == "removed" else new_path
    described = FileChange(path, status, old_path, content(repository, before), content(repository, after))
    if is_large or delta.is_binary:
        return described
    _, added, removed = patch.line_stats
    lines = _lines(patch)
    return FileChange(
        path,
        status,
        old_path,
        described.before,
        described.after,
        is_text=True,
        lines=lines[:MAXIMUM_LINES],
        is_cut=len(lines) > MAXIMUM_LINES,
        added=added,
        removed=removed,
    )


def _lines(patch: Any) -> list[Line]:
    lines = []
    for hunk in patch.hunks:
        lines.append(Line("hunk", None, None, hunk.header.strip()))
        for line in hunk.lines:
            kind = _ORIGINS.get(line.origin)
            if kind:
                old = line.old_lineno if line.old_lineno > 0 else None
                new = line.new_lineno if line.new_lineno > 0 else None
                lines.append(Line(kind, old, new, line.content.rstrip("\n")))
        if len(lines) > MAXIMUM_LINES:
            break
    return lines


def content(repository: Repository, entry: Entry | None) -> Content | None:
    """Return size and sha256 of a file."""
    if entry is None:
        return None
    if entry.pointer:
        return Content(entry.size, entry.pointer.sha256, True)
    return Content(entry.size, hashlib.sha256(repository.read(entry)).hexdigest(), False)
