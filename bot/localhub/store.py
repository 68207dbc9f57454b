"""All that the embedded Hub keeps: its users with their tokens, and its repositories."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

import pygit2
from pygit2.enums import ConfigLevel, FileMode, Option

from bot.localhub import durable
from bot.localhub.clock import Clock, iso
from bot.localhub.errors import HubError, repo_not_found
from bot.localhub.listing import Listing
from bot.localhub.names import KINDS, check_repo_id, web_path
from bot.localhub.repository import MAIN, Person, Repository

log = logging.getLogger("bot.localhub.store")
DEFAULT_USER = "local-user"
_LARGE_SUFFIXES = """
7z arrow bin bz2 ckpt ftz gguf gz h5 joblib mlmodel model msgpack npy npz onnx onnx_data ot parquet pb pickle pkl
pt pth rar safetensors tar tgz tflite wasm xz zip zst
"""


@dataclass(frozen=True)
class User:
    """A local user, or the bearer of one of his tokens.

    Attributes:
        name: User name.
        role: ``write`` or ``read``.
        only: The one repository that the token is good for, ``models/owner/name``; empty for all that the user may.
    """

    name: str
    role: str
    only: str = ""

    @property
    def person(self) -> Person:
        """The user as the author of a commit."""
        return Person(self.name)


class Store:
    """The folder of an embedded Hub. Only one process may have it open.

    Args:
        folder: Created if need be.
        clock: Tells the date of writes.
        users: Further users, each ``name`` or ``name:read``; their tokens are generated at first use.
        xet_downloads: Whether large files that came through Xet are offered for download through Xet.
        webhook_hosts: Host names, beside loopback's, that webhooks may call.

    Raises:
        HubError: 503 if another process has the folder open.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock | None = None,
        users: tuple[str, ...] = (),
        *,
        xet_downloads: bool = True,
        webhook_hosts: tuple[str, ...] = (),
    ) -> None:
        self.xet_downloads = xet_downloads
        self.webhook_hosts = webhook_hosts
        self.folder = folder.resolve()
        self.clock = clock or Clock()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process_lock = self._take_process_lock()
        _isolate_git()
        self._locks: dict[tuple[str, str], threading.RLock] = {}
        self._guard = threading.Lock()
        self.listing = Listing(self.folders, self.lock)
        self.instance = self._load_instance()
        self._tokens = self._load_users(users)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        for repository in self.repositories():
            try:
                repository.recover()
            except (OSError, ValueError, KeyError, pygit2.GitError):
                # The others are served; writes to this one fail until its journal can be carried out.
                log.exception("%s could not be recovered", repository.folder)

    def close(self) -> None:
        """Give the folder back."""
        self._process_lock.close()

    @property
    def scratch(self) -> Path:
        """Folder for unfinished work; emptied at every start."""
        return self.folder / "tmp"

    @property
    def token_file(self) -> Path:
        """Where the users' tokens are kept, readable by the owner alone."""
        return self.folder / "tokens.json"

    def _take_process_lock(self) -> IO[bytes]:
        file = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise HubError(503, f"Another embedded Hub has {self.folder} open") from None
        return file

    def _load_instance(self) -> str:
        """Return a name that no other Hub has: clients cache what they have sent under it."""
        path = self.folder / "instance.json"
        known = durable.read_json(path)
        if not known:
            known = {"instance": secrets.token_hex(12)}
            durable.write_json(path, known)
        return str(known["instance"])

    # ---------------------------------------------------------------------------------------------- users

    def _load_users(self, extra: tuple[str, ...]) -> dict[str, dict[str, str]]:
        users: dict[str, dict[str, str]] = (durable.read_json(self.token_file) or {"users": {}})["users"]
        known = len(users)
        for wanted in (DEFAULT_USER, *extra):
            name, _, role = wanted.partition(":")
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,41}", name) or role not in ("", "read", "write"):
                raise HubError(400, f"Not a user name, or name:read: {wanted!r}")
            # The prefix is the one that clients expect of a Hub token; what follows says that it is good here only.
            fresh = {"token": f"hf_embedded{secrets.token_hex(16)}", "role": role or "write"}
            users.setdefault(name, fresh)
        if len(users) != known:
            durable.write_json(self.token_file, {"users": users}, mode=0o600)
        return users

    @property
    def user_names(self) -> list[str]:
        """The local users."""
        return list(self._tokens)

    @property
    def local_user(self) -> User:
        """The user as whom the pages for people act."""
        return User(DEFAULT_USER, "write")

    def token(self, name: str = DEFAULT_USER) -> str:
        """Return a user's token."""
        return self._tokens[name]["token"]

    def bearer(self, token: str) -> User:
        """Return whose token this is.

        Raises:
            HubError: 401 for a token that is not of this Hub.
        """
        for name, facts in self._tokens.items():
            if hmac.compare_digest(facts["token"].encode(), token.encode()):
                return User(name, facts["role"])
        raise HubError(401, "Invalid credentials: the token is not one of this embedded Hub's users")

    def is_member(self, user: User | None, namespace: str) -> bool:
        """Tell whether a user belongs to a namespace: it is his own, or an organisation.

        A token that is good for one repository makes nobody a member; ``Call.is_member`` asks for that.
        """
        if user is None or user.only:
            return False
        owner = namespace.casefold()
        return owner == user.name.casefold() or owner not in {name.casefold() for name in self._tokens}

    # ---------------------------------------------------------------------------------------------- repositories

    def lock(self, kind: str, repo_id: str) -> threading.RLock:
        """Return the lock that writers of a repository hold."""
        with self._guard:
            return self._locks.setdefault((kind, repo_id.casefold()), threading.RLock())

    def path(self, kind: str, repo_id: str) -> Path:
        """Return where a repository is, or would be.

        Raises:
            HubError: 400 for a name that the Hub would not take.
        """
        if kind not in KINDS:
            raise repo_not_found(repo_id)
        return self.folder / "repos" / kind / f"{check_repo_id(repo_id)}.git"

    def exists(self, kind: str, repo_id: str) -> bool:
        """Tell whether there is such a repository."""
        return self.path(kind, self.spelling(kind, repo_id)).is_dir()

    def spelling(self, kind: str, repo_id: str) -> str:
        """Return a repository's name in the upper and lower case in which it, or its namespace, exists already.

        As on the Hub, names that differ in nothing else name one repository.
        """
        path = self.path(kind, repo_id)
        if path.is_dir():
            return repo_id
        kept = self.folder / "repos" / kind
        namespace = _same_name([*self._tokens, *_names_in(kept)], path.parent.name)
        name = _same_name(_names_in(kept / namespace), path.name)
        return f"{namespace}/{name.removesuffix('.git')}"

    def repository(self, kind: str, repo_id: str) -> Repository:
        """Open a repository.

        Raises:
            HubError: 404 RepoNotFound.
        """
        try:
            repo_id = self.spelling(kind, repo_id)
            return Repository(self.path(kind, repo_id), kind, repo_id, self.lock(kind, repo_id))
        except (HubError, pygit2.GitError):
            raise repo_not_found(web_path(kind, repo_id)) from None

    def folders(self, kind: str, namespace: str = "") -> Iterator[tuple[Path, str]]:
        """Yield folder and name of all repositories of a kind, or of one namespace, sorted by name."""
        kept = self.folder / "repos" / kind
        owner = _same_name(_names_in(kept), namespace)
        for folder in sorted(kept.glob("*/*.git") if not namespace else (kept / owner).glob("*.git")):
            yield folder, f"{folder.parent.name}/{folder.name.removesuffix('.git')}"

    def repositories(self, kind: str | None = None) -> Iterator[Repository]:
        """Yield all repositories, or those of one kind, sorted by name."""
        for each in [kind] if kind else KINDS:
            for folder, repo_id in self.folders(each):
                try:
                    repository = Repository(folder, each, repo_id, self.lock(each, repo_id))
                except pygit2.GitError:
                    continue  # It was deleted or renamed in the meantime.
                yield repository

    def create(self, kind: str, repo_id: str, author: Person, when: datetime, private: bool = False) -> Repository:
        """Create a repository with a first commit that holds .gitattributes, as the Hub does.

        Raises:
            HubError: 400 for a bad name, 409 if it exists.
        """
        with self.lock(kind, repo_id):
            repo_id = self.spelling(kind, repo_id)
            target = self.path(kind, repo_id)
            if target.exists():
                raise HubError(409, "You already created this repository")
            building = self.scratch / secrets.token_hex(8)
            pygit2.init_repository(str(building), bare=True, initial_head="main")
            repository = Repository(building, kind, repo_id, self.lock(kind, repo_id))
            blob = repository.store_blob(default_attributes())
            tree = repository.changed_tree(None, {".gitattributes": (blob, FileMode.BLOB)})
            first = repository.write_commit(tree, [], "initial commit", author, when)
            repository.transact({MAIN: first})
            identity = hashlib.sha256(f"{kind}/{repo_id}/{iso(when)}".encode()).hexdigest()[:24]
            repository.change_settings(
                {"id": identity, "private": private, "gated": False, "createdAt": iso(when), "creator": author.name}
            )
            target.parent.mkdir(parents=True, exist_ok=True)
            building.rename(target)
            durable.sync_folder(target.parent)
        return self.repository(kind, repo_id)

    def delete(self, kind: str, repo_id: str) -> None:
        """Delete a repository; it is gone at once and whole."""
        with self.lock(kind, repo_id):
            grave = self.scratch / secrets.token_hex(8)
            folder = self.repository(kind, repo_id).folder
            folder.rename(grave)
            durable.sync_folder(folder.parent)
        shutil.rmtree(grave, ignore_errors=True)

    def move(self, kind: str, repo_id: str, new_id: str) -> None:
        """Rename a repository.

        Raises:
            HubError: 400 for a bad name, 404 RepoNotFound, 409 if the new name is taken.
        """
        target = self.path(kind, self.spelling(kind, new_id))
        first, second = sorted((repo_id, new_id))
        with self.lock(kind, first), self.lock(kind, second):
            source = self.repository(kind, repo_id).folder
            if target.exists():
                raise HubError(409, f"A {KINDS[kind]} repository called {new_id} already exists")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)
            durable.sync_folder(target.parent)
            durable.sync_folder(source.parent)

    def organisations(self) -> list[str]:
        """Return the namespaces that are no user's."""
        found = {folder.parent.name for folder in (self.folder / "repos").glob("*/*/*.git")}
        return sorted(found - set(self._tokens))


def _names_in(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _same_name(names: list[str], wanted: str) -> str:
    """Return the name that is the wanted one but for upper and lower case, or the wanted one if there is none."""
    return next((name for name in names if name.casefold() == wanted.casefold()), wanted)


def default_attributes() -> bytes:
    """Return the .gitattributes of a new repository: the kinds of file that belong into LFS."""
    patterns = [f"*.{suffix}" for suffix in _LARGE_SUFFIXES.split()]
    return "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in patterns).encode()


def _isolate_git() -> None:
    """Keep the user's and the machine's git settings out, and make git objects and references durable."""
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG):
        pygit2.settings.search_path[level] = ""
    pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
