"""One repository of the embedded Hub: a bare git repository, its large files, and what the Hub knows besides git.

Layout, under ``repos/KIND/NAMESPACE/NAME.git``: the git repository itself; ``lfs/objects/aa/bb/SHA256``, the large
files; ``hub/settings.json``; ``hub/discussions/N.json``. A write that touches several of these is one transaction: all
objects are written first, then a journal that names the references to move and the files to replace, then these. A
journal that is found at start is carried out to its end, so that after a crash a write is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import AttrCheck, FileMode, ObjectType, SortMode

from bot.localhub import durable, pointers
from bot.localhub.errors import HubError, entry_not_found, revision_not_found
from bot.localhub.names import web_path
from bot.localhub.pointers import Pointer

MAIN = "refs/heads/main"
_SHA = re.compile(r"[0-9a-f]{40}")
_SHORT_SHA = re.compile(r"[0-9a-f]{7,40}")
_SYNC_THREADS = 16
_facts: dict[str, BlobFacts] = {}


@dataclass(frozen=True)
class BlobFacts:
    """Size in bytes of a blob, and the pointer that it holds if it is one."""

    size: int
    pointer: Pointer | None


@dataclass(frozen=True)
class Entry:
    """One file or folder of a tree.

    Attributes:
        path: Path in the repository.
        is_folder: Whether it is a folder.
        oid: Object id of the blob or tree, hexadecimal.
        size: Size in bytes of what a download gives; 0 for a folder.
        pointer: The LFS pointer, for a large file.
    """

    path: str
    is_folder: bool
    oid: str
    size: int
    pointer: Pointer | None = None

    @property
    def etag(self) -> str:
        """The hash that names the content: sha256 for a large file, else the git blob id."""
        return self.pointer.sha256 if self.pointer else self.oid


@dataclass(frozen=True)
class Person:
    """Who wrote a commit."""

    name: str

    @property
    def email(self) -> str:
        """An address that no mail reaches."""
        return f"{self.name}@users.noreply.embedded-hub.invalid"


Changes = dict[str, "tuple[str, int] | None"]
"""Path to (blob id, file mode), or to None for a removal."""


class Repository:
    """Access to one repository; make one per request, since a git handle belongs to one thread.

    Args:
        folder: The bare repository.
        kind: ``models`` or ``datasets``.
        repo_id: ``namespace/name``.
        lock: Held by whoever writes; shared by all objects for the same repository.
    """

    def __init__(self, folder: Path, kind: str, repo_id: str, lock: threading.RLock) -> None:
        self.folder = folder
        self.kind = kind
        self.repo_id = repo_id
        self.lock = lock
        self._unsynced: set[Path] = set()
        self.git: Any = pygit2.Repository(str(folder), pygit2.enums.RepositoryOpenFlag.BARE)

    # ---------------------------------------------------------------------------------------------- what it is

    @property
    def namespace(self) -> str:
        """The part before the slash."""
        return self.repo_id.partition("/")[0]

    @property
    def web_path(self) -> str:
        """Path of its page, without a leading slash."""
        return web_path(self.kind, self.repo_id)

    @property
    def settings(self) -> dict[str, Any]:
        """``id``, ``private``, ``gated``, ``createdAt``."""
        value = durable.read_json(self.folder / "hub" / "settings.json")
        return value if isinstance(value, dict) else {}

    def change_settings(self, changes: dict[str, Any]) -> None:
        """Merge keys into the settings, durably."""
        with self.writing():
            durable.write_json(self.folder / "hub" / "settings.json", {**self.settings, **changes})

    # ---------------------------------------------------------------------------------------------- references

    def reference(self, name: str) -> str | None:
        """Return the commit that a full reference name points to, or None."""
        try:
            target = self.git.references[name].peel(ObjectType.COMMIT)
        except (KeyError, ValueError, pygit2.GitError):
            return None
        return str(target.id)

    def references(self, prefix: str) -> dict[str, str]:
        """Return the references under a prefix: short name to commit."""
        found = {}
        for name in self.git.references:
            if name.startswith(prefix):
                commit = self.reference(name)
                if commit:
                    found[name.removeprefix(prefix)] = commit
        return dict(sorted(found.items()))

    def reference_name(self, revision: str) -> str:
        """Return the full name of the branch or pull request that a commit to ``revision`` moves.

        Raises:
            HubError: 404 RevisionNotFound if it is neither.
        """
        full = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
        if not full.startswith(("refs/heads/", "refs/pr/")) or self.reference(full) is None:
            raise revision_not_found(revision)
        return full

    def resolve(self, revision: str) -> str:
        """Return the commit for a branch, tag, pull request reference, or full or short sha.

        Raises:
            HubError: 404 RevisionNotFound.
        """
        for candidate in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if candidate.startswith(("refs/heads/", "refs/tags/", "refs/pr/", "refs/convert/")):
                commit = self.reference(candidate)
                if commit:
                    return commit
        if _SHORT_SHA.fullmatch(revision):
            try:
                found = self.git[revision]
            except (KeyError, ValueError):
                raise revision_not_found(revision) from None
            if isinstance(found, pygit2.Commit):
                return str(found.id)
        raise revision_not_found(revision)

    def commit(self, sha: str) -> pygit2.Commit:
        """Return a commit object that is known to exist."""
        found = self.git[sha]
        if not isinstance(found, pygit2.Commit):
            raise revision_not_found(sha)
        return found

    # ---------------------------------------------------------------------------------------------- transactions

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock, with every write that was accepted before carried out."""
        with self.lock:
            self._finish_journal()
            yield

    def transact(self, refs: dict[str, str | None], files: dict[str, Any] | None = None) -> None:
        """Move references and replace JSON files as one step, inside ``writing``, when all objects are written.

        Args:
            refs: Full reference name to commit or object id; None removes the reference.
            files: Path under ``hub/`` to the JSON value to write there.
        """
        files = files or {}
        self._sync_blobs()
        if len(refs) + len(files) > 1:
            durable.write_json(self._journal, {"refs": refs, "files": files})
        self._carry_out(refs, files)
        if len(refs) + len(files) > 1:
            durable.remove(self._journal)

    def recover(self) -> None:
        """Bring the repository to the state after its last accepted write. Nothing else may be using it."""
        for pattern in ("*.lock", "refs/**/*.lock"):
            for stale in self.folder.glob(pattern):
                stale.unlink()
        for pattern in ("objects/**/tmp_obj*", "hub/**/.*.tmp", "lfs/incoming/*"):
            for stale in self.folder.glob(pattern):
                stale.unlink()
        for path in self.folder.glob("objects/??/*"):
            # What a power cut emptied before it was on the disk is referred to by nothing yet.
            if path.stat().st_size == 0:
                path.unlink()
        self._finish_journal()

    def _finish_journal(self) -> None:
        """Carry out a write that was accepted and, for a crash or a full disk, not finished."""
        journal = durable.read_json(self._journal)
        if journal is not None:
            self._carry_out(journal["refs"], journal["files"])
            durable.remove(self._journal)

    @property
    def _journal(self) -> Path:
        return self.folder / "hub" / "journal.json"

    def _carry_out(self, refs: dict[str, str | None], files: dict[str, Any]) -> None:
        for name, target in refs.items():
            if target is not None:
                self.git.references.create(name, target, force=True)
            elif name in self.git.references:
                self.git.references.delete(name)
        for name, value in files.items():
            durable.write_json(self.folder / "hub" / name, value)

    # ---------------------------------------------------------------------------------------------- reading trees

    def blob_facts(self, oid: str) -> BlobFacts:
        """Return size and pointer of a blob; remembered, since a blob never changes."""
        facts = _facts.get(oid)
        if facts is None:
            blob = self.git[oid]
            pointer = pointers.parse(blob.data) if blob.size <= pointers.MAXIMUM_POINTER_BYTES else None
            facts = BlobFacts(blob.size, pointer)
            if len(_facts) > 200_000:
                _facts.clear()
            _facts[oid] = facts
        return facts

    def _entry(self, path: str, item: Any) -> Entry:
        if item.type == ObjectType.TREE:
            return Entry(path, True, str(item.id), 0)
        facts = self.blob_facts(str(item.id))
        return Entry(path, False, str(item.id), facts.pointer.size if facts.pointer else facts.size, facts.pointer)

    def entry(self, commit: str, path: str) -> Entry | None:
        """Return the file or folder at a path of a commit, or None. The empty path is no entry."""
        if not path:
            return None
        try:
            item = self.commit(commit).tree[path]
        except (KeyError, ValueError):
            return None
        return None if item.type == ObjectType.COMMIT else self._entry(path, item)

    def file(self, commit: str, path: str) -> Entry:
        """Return the file at a path.

        Raises:
            HubError: 404 EntryNotFound if there is none, or a folder.
        """
        found = self.entry(commit, path)
        if found is None or found.is_folder:
            raise entry_not_found(path, commit)
        return found

    def walk(self, commit: str, folder: str = "", recursive: bool = True) -> Iterator[Entry]:
        """Yield the entries under a folder, folders before files, each group by name.

        Raises:
            HubError: 404 EntryNotFound if the folder does not exist.
        """
        tree: Any = self.commit(commit).tree
        if folder:
            found = self.entry(commit, folder)
            if found is None or not found.is_folder:
                raise entry_not_found(folder, commit)
            tree = tree[folder]
        yield from self._walk(tree, f"{folder}/" if folder else "", recursive)

    def _walk(self, tree: Any, prefix: str, recursive: bool) -> Iterator[Entry]:
        for item in sorted(tree, key=lambda item: (item.type != ObjectType.TREE, item.name)):
            if item.type == ObjectType.COMMIT:
                continue
            yield self._entry(prefix + item.name, item)
            if recursive and item.type == ObjectType.TREE:
                yield from self._walk(item, f"{prefix}{item.name}/", True)

    def files(self, commit: str) -> list[Entry]:
        """Return all files of a commit, sorted by path."""
        return sorted((entry for entry in self.walk(commit) if not entry.is_folder), key=lambda entry: entry.path)

    def read(self, entry: Entry) -> bytes:
        """Return the whole content of a file that is kept in git, or the pointer text of a large one."""
        data: bytes = self.git[entry.oid].data
        return data

    def text(self, commit: str, path: str, limit: int = 2_000_000) -> str | None:
        """Return a text file kept in git, or None if it is missing, large or not UTF-8."""
        found = self.entry(commit, path)
        if found is None or found.is_folder or found.pointer or found.size > limit:
            return None
        try:
            return self.read(found).decode()
        except UnicodeDecodeError:
            return None

    def attribute(self, commit: str, path: str, name: str = "filter") -> str | bool | None:
        """Return a git attribute of a path as the .gitattributes files of a commit set it."""
        flags = AttrCheck.INDEX_ONLY | AttrCheck.NO_SYSTEM | AttrCheck.INCLUDE_COMMIT
        value: str | bool | None = self.git.get_attr(path, name, flags, commit)
        return value

    # ---------------------------------------------------------------------------------------------- history

    def history(self, commit: str) -> Iterator[pygit2.Commit]:
        """Yield a commit and its ancestors, newest first, children before parents."""
        yield from self.git.walk(commit, SortMode.TOPOLOGICAL | SortMode.TIME)

    def last_commits(self, commit: str, paths: list[str]) -> dict[str, pygit2.Commit]:
        """Return for each path the newest commit that gave it its present content (the first parents are followed)."""
        wanted = {path: self._oid(self.commit(commit), path) for path in paths}
        found: dict[str, pygit2.Commit] = {}
        current: pygit2.Commit | None = self.commit(commit)
        while current is not None and wanted:
            parent = current.parents[0] if current.parents else None
            for path in list(wanted):
                if parent is None or self._oid(parent, path) != wanted[path]:
                    found[path] = current
                    del wanted[path]
            current = parent
        return found

    @staticmethod
    def _oid(commit: pygit2.Commit, path: str) -> str | None:
        try:
            return str(commit.tree[path].id)
        except KeyError:
            return None

    # ---------------------------------------------------------------------------------------------- writing

    def store_blob(self, content: bytes) -> str:
        """Write a blob and return its id. It is on the disk for good once ``transact`` has moved a reference.

        git's own writer waits for the disk after each object; a commit of a thousand files would wait a thousand times.
        """
        oid = str(pygit2.hash(content))
        path = self.folder / "objects" / oid[:2] / oid[2:]
        if not path.exists():
            if oid in self.git:
                return oid
            path.parent.mkdir(exist_ok=True)
            temporary = path.with_name(f"tmp_obj_{secrets.token_hex(8)}")
            temporary.write_bytes(zlib.compress(b"blob %d\0%b" % (len(content), content), 1))
            temporary.chmod(0o444)
            temporary.rename(path)
        self._unsynced.add(path)
        return oid

    def _sync_blobs(self) -> None:
        """Wait for the disk, for all blobs at once."""
        if self._unsynced:
            with ThreadPoolExecutor(min(len(self._unsynced), _SYNC_THREADS)) as pool:
                list(pool.map(durable.sync_file, self._unsynced))
                folders = {path.parent for path in self._unsynced} | {self.folder / "objects"}
                list(pool.map(durable.sync_folder, folders))
            self._unsynced.clear()

    def changed_tree(self, base: Any, changes: Changes) -> str:
        """Write the tree that follows from a base tree and return its id.

        A file where a folder was replaces the folder, and a folder where a file was replaces the file, as in git.

        Args:
            base: The tree to start from, or None.
            changes: What differs.
        """
        return self._changed_tree(base, changes) or str(self.git.TreeBuilder().write())

    def _changed_tree(self, base: Any, changes: Changes) -> str | None:
        builder = self.git.TreeBuilder(base) if base is not None else self.git.TreeBuilder()
        below: dict[str, Changes] = {}
        for path, change in changes.items():
            head, slash, rest = path.partition("/")
            if slash:
                below.setdefault(head, {})[rest] = change
            elif change is not None:
                builder.insert(head, change[0], change[1])
            elif builder.get(head) is not None:
                builder.remove(head)
        for head, inner in below.items():
            existing = builder.get(head)
            subtree = self.git[existing.id] if existing is not None and existing.type == ObjectType.TREE else None
            if subtree is None and all(change is None for change in inner.values()):
                continue
            oid = self._changed_tree(subtree, inner)
            if oid is not None:
                builder.insert(head, oid, FileMode.TREE)
            elif builder.get(head) is not None:
                builder.remove(head)
        return str(builder.write()) if len(builder) else None

    def write_commit(self, tree: str, parents: list[str], message: str, author: Person, when: datetime) -> str:
        """Write a commit object, move nothing, and return its id."""
        signature = pygit2.Signature(author.name, author.email, int(when.timestamp()), 0, "utf-8")
        return str(self.git.create_commit(None, signature, signature, message, tree, parents))

    def store_tag(self, name: str, commit: str, tagger: pygit2.Signature, message: str) -> str:
        """Write an annotated tag's object, without its reference, and return its id."""
        text = (
            f"object {commit}\ntype commit\ntag {name}\n"
            f"tagger {tagger.name} <{tagger.email}> {tagger.time} +0000\n\n{message}\n"
        )
        return str(self.git.odb.write(ObjectType.TAG, text.encode()))

    def merge_base(self, one: str, other: str) -> str | None:
        """Return the newest common ancestor of two commits, or None."""
        found = self.git.merge_base(one, other)
        return str(found) if found else None

    def require_head(self, reference: str, expected: str) -> None:
        """Check that a reference still points to the commit that a client started from.

        Args:
            reference: Full reference name.
            expected: A full or abbreviated sha.

        Raises:
            HubError: 412 otherwise.
        """
        head = self.reference(reference) or ""
        if not expected or not head.startswith(expected.lower()):
            message = "The branch was updated since you opened this page. Please refresh and try again."
            raise HubError(412, message, extra={"head": head})

    # ---------------------------------------------------------------------------------------------- large files

    def large_file(self, sha256: str) -> Path:
        """Return where a large file is, or would be."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise HubError(422, f"Not a sha256: {sha256!r}")
        return self.folder / "lfs" / "objects" / sha256[:2] / sha256[2:4] / sha256
