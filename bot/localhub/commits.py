"""From the body of a commit request to a commit, and the decision which files are large."""

from __future__ import annotations

import base64
import binascii
import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import FileMode

from bot.localhub.errors import HubError, bad_request
from bot.localhub.lfs import stored_size
from bot.localhub.names import check_path
from bot.localhub.pointers import Pointer
from bot.localhub.repository import Changes, Person, Repository

REGULAR_LIMIT = 10 * 1024 * 1024
"""Bytes from which a file cannot be kept in git itself."""

LINE_LIMIT = 2 * REGULAR_LIMIT
"""Bytes that a line of a commit request may have: a file in base64, its path, and some room."""


@dataclass
class Plan:
    """A commit request, read but not applied.

    Attributes:
        summary: First line of the message.
        description: The rest of the message.
        parent: Commit that the client believes to be the head, or empty.
        changes: Files to write, by path.
        removed_files: Paths that must exist and go; that of a folder stands for all that is in it.
        removed_folders: Folders that must exist and go.
        large: Paths in ``changes`` that are large files.
    """

    summary: str = ""
    description: str = ""
    parent: str = ""
    changes: Changes = field(default_factory=dict)
    removed_files: list[str] = field(default_factory=list)
    removed_folders: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """The whole commit message."""
        return f"{self.summary}\n\n{self.description}" if self.description else self.summary


def read_plan(repository: Repository, lines: Iterable[bytes]) -> Plan:
    """Read a commit request and write its blobs; no reference moves, so that nothing is visible yet.

    Args:
        repository: Where the blobs go.
        lines: The newline-delimited JSON of the request: ``header``, then ``file``, ``lfsFile``, ``deletedFile`` and
            ``deletedFolder`` in any order.

    Raises:
        HubError: 400 for what is malformed, or names a large file that was never uploaded.
    """
    plan: Plan | None = None
    for line in lines:
        if not line.strip():
            continue
        key, value = _operation(line)
        if plan is None:
            if key != "header":
                raise bad_request("A commit starts with its header")
            plan = _header(value)
        else:
            _add_operation(repository, plan, key, value)
    if plan is None:
        raise bad_request("A commit needs a header")
    return plan


def _operation(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        operation = json.loads(line)
        key, value = operation["key"], operation["value"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise bad_request("Each line of a commit is an object with key and value") from error
    if not isinstance(value, dict):
        raise bad_request(f"The value of {key!r} is no object")
    return str(key), value


def _header(value: dict[str, Any]) -> Plan:
    summary, description = value.get("summary"), value.get("description") or ""
    parent = value.get("parentCommit") or ""
    if not isinstance(summary, str) or not summary.strip() or not isinstance(description, str):
        raise bad_request("A commit needs a summary")
    if parent and not (isinstance(parent, str) and re.fullmatch(r"[0-9a-fA-F]{5,40}", parent)):
        raise bad_request(f"Not a commit: {parent!r}")
    return Plan(summary, description, parent.lower())


def _add_operation(repository: Repository, plan: Plan, key: str, value: dict[str, Any]) -> None:
    path = value.get("path")
    if not isinstance(path, str):
        raise bad_request(f"{key} without a path")
    if key == "deletedFolder":
        plan.removed_folders.append(check_path(path.rstrip("/")))
    elif key == "deletedFile":
        plan.removed_files.append(check_path(path))
    elif key == "file":
        content = _content(value)
        if len(content) > REGULAR_LIMIT:
            raise bad_request(f"{path} has more than 10 MiB and belongs into LFS")
        plan.changes[check_path(path)] = (repository.store_blob(content), FileMode.BLOB)
    elif key == "lfsFile":
        pointer = _uploaded(repository, path, value)
        plan.changes[check_path(path)] = (repository.store_blob(pointer.encode()), FileMode.BLOB)
        plan.large.append(path)
    else:
        raise bad_request(f"Unknown operation: {key!r}")


def _content(value: dict[str, Any]) -> bytes:
    content, encoding = value.get("content", ""), value.get("encoding", "utf-8")
    if not isinstance(content, str):
        raise bad_request("The content of a file is a string")
    if encoding != "base64":
        return content.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise bad_request("The content of a file is not base64") from error


def _uploaded(repository: Repository, path: str, value: dict[str, Any]) -> Pointer:
    oid = value.get("oid")
    if value.get("algo", "sha256") != "sha256" or not isinstance(oid, str):
        raise bad_request(f"{path}: a large file is named by its sha256")
    size = stored_size(repository, oid)
    if size is None:
        raise bad_request(f"{path}: the large file {oid} was never uploaded")
    if value.get("size") not in (None, size):
        raise bad_request(f"{path}: {oid} has {size} bytes, not {value['size']}")
    return Pointer(oid, size)


def apply_plan(repository: Repository, plan: Plan, parent: str, author: Person, when: datetime) -> str:
    """Write the commit that a plan makes of a parent and return its sha; no reference moves.

    Raises:
        HubError: 404 EntryNotFound for the removal of what does not exist.
    """
    base = repository.commit(parent).tree
    changes: Changes = {}
    for folder in plan.removed_folders:
        inside = [entry for entry in repository.walk(parent, folder) if not entry.is_folder]
        changes.update((entry.path, None) for entry in inside)
    for path in plan.removed_files:
        found = repository.entry(parent, path)
        if found is None:
            raise HubError(404, f"A file with this name doesn't exist: {path}", code="EntryNotFound")
        if found.is_folder:
            changes.update((each.path, None) for each in repository.walk(parent, path) if not each.is_folder)
        changes[path] = None
    changes.update(plan.changes)
    try:
        tree = repository.changed_tree(base, changes)
        sha = repository.write_commit(tree, [parent], plan.message, author, when)
        lines = _missing_attributes(repository, sha, plan.large)
        if lines:
            old = repository.text(sha, ".gitattributes") or ""
            text = old + ("\n" if old and not old.endswith("\n") else "") + lines
            blob = repository.store_blob(text.encode())
            tree = repository.changed_tree(repository.commit(sha).tree, {".gitattributes": (blob, FileMode.BLOB)})
            sha = repository.write_commit(tree, [parent], plan.message, author, when)
    except pygit2.GitError as error:
        raise bad_request(f"git refuses this commit: {error}") from error
    return sha


def _missing_attributes(repository: Repository, commit: str, large: list[str]) -> str:
    """Return the .gitattributes lines without which git would not take these paths for large files."""
    missing = [path for path in sorted(large) if repository.attribute(commit, path) != "lfs"]
    return "".join(f"{_escape(path)} filter=lfs diff=lfs merge=lfs -text\n" for path in missing)


def _escape(path: str) -> str:
    return re.sub(r"([\\*?\[\]!#\"])", r"\\\1", path).replace(" ", "[[:space:]]")


# ------------------------------------------------------------------------------------------------------ preupload


def preupload(repository: Repository, commit: str, files: list[Any], git_ignore: str | None) -> list[dict[str, object]]:
    """Decide for each file of a coming commit how it is to be sent.

    A file is large if .gitattributes says so, if it is too big for git, or if its first bytes are not text.

    Args:
        repository: Where the commit will go.
        commit: The head that it will follow.
        files: Objects with ``path``, ``size`` in bytes, and ``sample``, the first bytes in base64.
        git_ignore: The .gitignore that the commit brings with it, or None for the one in the repository.

    Returns:
        For each file ``path``, ``uploadMode``, ``shouldIgnore``, and ``oid`` of the present content, if there is any.

    Raises:
        HubError: 400 for malformed input.
    """
    checked = [_described(item) for item in files]
    text = git_ignore if git_ignore is not None else repository.text(commit, ".gitignore")
    ignored = ignored_paths([path for path, _, _ in checked], text or "")
    answers: list[dict[str, object]] = []
    for path, size, sample in checked:
        large = repository.attribute(commit, path) == "lfs" or size > REGULAR_LIMIT or _is_binary(sample)
        answer: dict[str, object] = {
            "path": path,
            "uploadMode": "lfs" if large else "regular",
            "shouldIgnore": path in ignored,
        }
        present = repository.entry(commit, path)
        if present is not None and not present.is_folder:
            answer["oid"] = present.etag
        answers.append(answer)
    return answers


def _described(item: Any) -> tuple[str, int, bytes]:
    try:
        return check_path(item["path"]), int(item.get("size") or 0), base64.b64decode(item.get("sample") or "")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_request("Each file of a preupload has path, size and sample") from error


def _is_binary(sample: bytes) -> bool:
    """Tell whether the first bytes of a file are not UTF-8 text; the last character may be cut off."""
    if b"\0" in sample:
        return True
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return not (error.reason == "unexpected end of data" and error.start >= len(sample) - 3)
    return False


def ignored_paths(paths: list[str], git_ignore: str) -> set[str]:
    """Return those paths that a .gitignore keeps out. git itself is asked, in a folder made for the purpose."""
    if not git_ignore.strip():
        return set()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / ".gitignore").write_text(git_ignore, encoding="utf-8")
        scratch = pygit2.init_repository(name)
        return {path for path in paths if scratch.path_is_ignored(path)}
