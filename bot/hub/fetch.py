"""Upstream models, data sets and plain addresses: exactly the files that a recipe names, at one commit, checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from bot.canonical import file_sha256, write_atomically
from bot.errors import BotError, HubError, RecipeError, StepError, UpstreamError
from bot.hub.client import Gated, Hub, NotFound, Progress, RepoType, TreeFile
from bot.hub.download import Expected, Mismatch
from bot.hub.library import library
from bot.hub.paths import fixed_folder, goes_deep, is_pattern, matches, near, why_unsafe
from bot.hub.retry import Policy
from bot.hub.tokens import is_loopback
from bot.records import FileRecord, Source

LEDGER = ".fetched.json"
"""Ends the name of the file beside a commit's folder that tells what was checked there and need not be read again."""

LARGEST_FROM_URL = 64 * 1024**3
MOST_FILES = 100_000
MOST_REDIRECTS = 5


def folder_of(into: Path, source: Source) -> Path:
    """Where the files of a fetched source lie, at their paths: `into/OWNER/NAME/COMMIT`, or `into/url/SHA256`."""
    return _folder(into, source.repo or "url", source.commit)


def ledger_of(folder: Path) -> Path:
    """The ledger of a commit's folder; beside it, where no file from upstream can take its place."""
    return folder.with_name(folder.name + LEDGER)


def _folder(into: Path, repo: str, commit: str) -> Path:
    return into / repo / commit


def fetch(
    hub: Hub,
    repo: str,
    *,
    repo_type: RepoType = "model",
    revision: str,
    files: Mapping[str, str],
    copies: Sequence[str] = (),
    license_files: Sequence[str] = (),
    into: Path,
    progress: Progress | None = None,
    large: bool = True,
) -> Source:
    """Brings the named files of one commit to this machine.

    Every file is checked against the id that the Hub keeps of it. A file that is there already, whole and unchanged,
    is not downloaded again.

    Args:
        hub: Where the repository is.
        repo: `owner/name`.
        repo_type: `model` or `dataset`.
        revision: Branch, tag or commit; it is resolved to one commit first, and that commit is what is read.
        files: Path, or pattern, under the recipe's own key. A pattern such as `images/*` becomes one entry per match,
            under `KEY/` and the match's path within the pattern's fixed folder.
        copies: Paths or patterns of files that travel with the release unread.
        license_files: Paths or patterns of licence texts. A pattern may match nothing; a path must exist.
        into: The files go to `into/OWNER/NAME/COMMIT/PATH`.
        progress: Called while bytes move.
        large: Download large files among `files` too. If not, their records say what the Hub lists: its sha256 of them.

    Returns:
        The source; `folder_of` tells where its files lie.

    Raises:
        UpstreamError: Repository, revision or file is missing or gated; the Hub is not to be reached; what came is not
            what the Hub says it keeps.
        StepError: The disk is full.
    """
    with upstream_errors():
        wanted = [*files.values(), *copies, *license_files]
        commit = _commit(hub, repo, revision, repo_type)
        tree = Tree(hub, repo, commit, repo_type)
        tree.look_up([path for path in wanted if not is_pattern(path)])
        named = {key: tree.one(path) for key, path in files.items() if not is_pattern(path)}
        for key, pattern in files.items():
            if is_pattern(pattern):
                named |= tree.below(key, pattern)
        carried = [item for path in copies for item in tree.some(path)]
        texts = [item for path in license_files for item in tree.some(path, may_be_none=True)]
        shelf = _Shelf(hub, repo, commit, repo_type, into, progress)
        whole = {item.path for item in [*carried, *texts]}
        have = {
            item.path: _listed(item) if item.sha256 and not large and item.path not in whole else shelf.bring(item)
            for item in _unique([*named.values(), *carried, *texts])
        }
        return Source(
            repo=repo,
            repo_type=repo_type,
            commit=commit,
            committed_at=_date(hub, repo, commit, repo_type),
            files={key: have[item.path] for key, item in named.items()},
            copies=tuple(have[item.path] for item in _unique(carried)),
            license_texts=tuple(have[item.path] for item in _unique(texts)),
        )


def fetch_listed(
    hub: Hub,
    repo: str,
    commit: str,
    items: Sequence[TreeFile],
    *,
    repo_type: RepoType = "model",
    into: Path,
    progress: Progress | None = None,
) -> tuple[FileRecord, ...]:
    """Brings files that a listing of a commit named to this machine; otherwise as `fetch`.

    Args:
        hub: Where the repository is.
        repo: `owner/name`.
        commit: The full commit sha.
        items: The files, as the commit's tree lists them.
        repo_type: `model` or `dataset`.
        into: They go to `into/OWNER/NAME/COMMIT/PATH`.
        progress: Called while bytes move.

    Raises:
        UpstreamError: One cannot be had, or has a path that cannot be stored here.
        StepError: The disk is full.
    """
    for item in items:
        if why := why_unsafe(item.path):
            raise UpstreamError(f"cannot be stored here: {why}.", where=f"{repo}@{commit[:12]}: {item.path!r}")
    with upstream_errors():
        shelf = _Shelf(hub, repo, commit, repo_type, into, progress)
        return tuple(shelf.bring(item) for item in _unique(items))


def fetch_url(
    url: str,
    *,
    sha256: str,
    key: str,
    name: str = "",
    into: Path,
    progress: Progress | None = None,
    policy: Policy | None = None,
) -> tuple[Source, Path]:
    """Brings a file that is not on a Hub to this machine, as a source of its own.

    Args:
        url: Its address.
        sha256: What its content must have; it also stands for the commit.
        key: Its key in the recipe.
        name: What it is called here; empty for the name at the end of the address.
        into: It goes to `into/url/SHA256/NAME`.
        progress: Called while bytes move.
        policy: Retries and time-outs.

    Returns:
        The source, and where the file lies.

    Raises:
        BotError: See `resolve_url`.
    """
    path = resolve_url(url, sha256, into, progress, name=name, policy=policy)
    record = FileRecord(path=path.name, bytes=path.stat().st_size, sha256=sha256)
    return Source(url=url, commit=sha256, files={key: record}), path


def resolve_url(
    url: str,
    sha256: str,
    into: Path,
    progress: Progress | None = None,
    *,
    name: str = "",
    policy: Policy | None = None,
) -> Path:
    """Brings a file that is not on a Hub to this machine.

    Only https is spoken, and plain http to this machine itself; the same holds for every redirect, of which a few are
    followed. No token is ever sent.

    Args:
        url: Its address.
        sha256: What its content must have.
        into: It goes to `into/url/SHA256/NAME`.
        progress: Called while bytes move.
        name: What it is called here; empty for the name at the end of the address.
        policy: Retries and time-outs.

    Returns:
        Where it lies. If a file with this content lies there already, nothing is downloaded.

    Raises:
        RecipeError: The address, the name or the sha256 is malformed.
        UpstreamError: It cannot be had, or is something else.
        StepError: The disk is full.
    """
    policy = policy or Policy()
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise RecipeError("needs its sha256: 64 lower-case hexadecimal digits.", where=url)
    target = into / "url" / sha256 / _name_for(url, name)
    if target.is_file() and file_sha256(target) == sha256:
        return target
    with upstream_errors():
        from bot.hub.download import download

        final = _follow(url)
        on_bytes = (lambda done: progress(done, 0, target.name)) if progress else None
        try:
            expected = Expected(sha256=sha256, largest=LARGEST_FROM_URL)
            download(final, {}, target, expected, policy, on_bytes, follow=False)
        except Mismatch as error:
            raise UpstreamError(
                f"has the sha256 {error.found}, and the recipe says {sha256}.",
                where=url,
                remedy="If the file was changed there on purpose, review it and write its new sha256 into the recipe.",
            ) from error
    return target


def _name_for(url: str, name: str) -> str:
    """The file name for a download: the given one, else the one at the end of the address."""
    if name:
        if why := why_unsafe(name):
            raise RecipeError(f"cannot be a file's name: {why}.", where=repr(name))
        return name.rsplit("/", 1)[-1]
    last = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    return "file" if "/" in last or why_unsafe(last) else last


# -- what a commit holds -----------------------------------------------------------------------------------------------


def _commit(hub: Hub, repo: str, revision: str, repo_type: RepoType) -> str:
    try:
        head = hub.head(repo, revision, repo_type=repo_type)
    except NotFound as error:
        if "revision" not in error.what:
            raise
        raise UpstreamError(
            f"there is no branch, tag or commit `{revision}`.",
            where=repo,
            remedy="Correct `follow` or `revision` in the recipe.",
        ) from error
    if len(head.sha) < 40 or not set(head.sha) <= set("0123456789abcdef"):
        raise UpstreamError("has no commit yet.", where=f"{repo}@{revision}")
    return head.sha


@dataclass
class Tree:
    """The files of one commit, asked for as they are needed: a data set may have very many."""

    hub: Hub
    repo: str
    commit: str
    repo_type: RepoType
    known: dict[str, TreeFile] = field(default_factory=dict)
    listed: dict[tuple[str, bool], dict[str, TreeFile]] = field(default_factory=dict)

    def look_up(self, paths: Sequence[str]) -> None:
        """Asks for these paths in as few calls as possible."""
        for path in paths:
            if why := why_unsafe(path):
                raise RecipeError(f"cannot be a file's path: {why}.", where=f"{self.repo}: {path!r}")
        if paths:
            self.known |= self.hub.files_at(
                self.repo, self.commit, list(dict.fromkeys(paths)), repo_type=self.repo_type
            )

    def one(self, path: str) -> TreeFile:
        """The file at a path.

        Raises:
            UpstreamError: There is none; the message names those that may have been meant.
        """
        if path in self.known:
            return self.known[path]
        there = self._list("", deep=True)
        close = near(path, there)
        hint = f"Did you mean {', '.join(close)}?" if close else f"It has {', '.join(sorted(there)[:8]) or 'no files'}."
        raise UpstreamError("there is no such file.", where=f"{self.repo}@{self.commit[:12]}: {path}", remedy=hint)

    def some(self, path: str, *, may_be_none: bool = False) -> list[TreeFile]:
        """The file at a path, or all that a pattern means."""
        if not is_pattern(path):
            return [self.one(path)]
        found = [item for name, item in sorted(self._candidates(path).items()) if matches(name, path)]
        if not found and not may_be_none:
            raise UpstreamError("no file matches.", where=f"{self.repo}@{self.commit[:12]}: {path}")
        if len(found) > MOST_FILES:
            raise UpstreamError(
                f"matches {len(found)} files.", where=f"{self.repo}: {path}", remedy="Narrow the pattern."
            )
        for item in found:
            if why := why_unsafe(item.path):
                raise UpstreamError(f"cannot be stored here: {why}.", where=f"{self.repo}: {item.path!r}")
        return found

    def below(self, key: str, pattern: str) -> dict[str, TreeFile]:
        """The matches of a pattern, under `KEY/` and their path within its fixed folder."""
        folder = fixed_folder(pattern)
        start = len(folder) + 1 if folder else 0
        return {f"{key}/{item.path[start:]}": item for item in self.some(pattern)}

    def _candidates(self, pattern: str) -> dict[str, TreeFile]:
        try:
            return self._list(fixed_folder(pattern), deep=goes_deep(pattern))
        except NotFound:
            return {}

    def _list(self, folder: str, *, deep: bool) -> dict[str, TreeFile]:
        if (folder, deep) not in self.listed:
            self.listed[folder, deep] = self.hub.tree(
                self.repo, self.commit, folder, recursive=deep, repo_type=self.repo_type
            )
        return self.listed[folder, deep]


def _listed(item: TreeFile) -> FileRecord:
    """The record of a large file by what the Hub lists of it."""
    return FileRecord(path=item.path, bytes=item.bytes, sha256=item.sha256)


def _unique(items: Sequence[TreeFile]) -> list[TreeFile]:
    return list({item.path: item for item in items}.values())


def _date(hub: Hub, repo: str, commit: str, repo_type: RepoType) -> str:
    newest = next(hub.commits(repo, commit, limit=1, repo_type=repo_type), None)
    return newest.date.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if newest else ""


# -- files on this machine ---------------------------------------------------------------------------------------------


class _Shelf:
    """The folder of one commit, with its ledger of what was checked."""

    def __init__(
        self, hub: Hub, repo: str, commit: str, repo_type: RepoType, into: Path, progress: Progress | None
    ) -> None:
        self._hub, self._repo, self._commit, self._repo_type = hub, repo, commit, repo_type
        self._folder, self._progress = _folder(into, repo, commit), progress
        self._ledger_file = ledger_of(self._folder)
        self._ledger = self._read_ledger()

    def bring(self, item: TreeFile) -> FileRecord:
        """Downloads a file unless it is there, and returns its record."""
        target = self._folder / item.path
        digest = self._known(item, target) or self._fetch(item, target)
        return FileRecord(path=item.path, bytes=item.bytes, sha256=digest)

    def _known(self, item: TreeFile, target: Path) -> str | None:
        """The sha256 of a file that is here already and is still what was checked; None if it has to be fetched."""
        try:
            state = target.stat()
        except OSError:
            return None
        if not target.is_file() or state.st_size != item.bytes:
            return None
        entry = self._ledger.get(item.path, {})
        digest = str(entry.get("sha256", ""))
        if entry.get("blob") != item.blob or len(digest) != 64:
            return None
        if entry.get("modified") != state.st_mtime_ns and file_sha256(target) != digest:
            return None
        return digest

    def _fetch(self, item: TreeFile, target: Path) -> str:
        progress = self._progress
        on_bytes = (lambda done: progress(done, item.bytes, item.path)) if progress else None
        # A large file's git id is that of its pointer, which says nothing of the content that comes.
        blob = "" if item.sha256 else item.blob
        expected = Expected(bytes=item.bytes, sha256=item.sha256, blob=blob)
        digest = self._hub.download(
            self._repo, self._commit, item.path, target, expected, on_bytes=on_bytes, repo_type=self._repo_type
        )
        self._ledger[item.path] = {"sha256": digest, "blob": item.blob, "modified": target.stat().st_mtime_ns}
        write_atomically(self._ledger_file, json.dumps(self._ledger, sort_keys=True, indent=1).encode())
        return digest

    def _read_ledger(self) -> dict[str, dict[str, str | int]]:
        """The ledger. One that is damaged is as good as none: the files are then read again."""
        try:
            ledger = json.loads(self._ledger_file.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(ledger, dict):
            return {}
        return {path: entry for path, entry in ledger.items() if isinstance(entry, dict)}


# -- addresses that are not on a Hub -----------------------------------------------------------------------------------


def _follow(url: str) -> str:
    """The address that a chain of redirects ends at, each step of which is allowed.

    Raises:
        UpstreamError: A step is not allowed, or there are too many.
    """
    get_session = library().utils.get_session
    from bot.hub.session import AGENT

    headers = {"user-agent": AGENT, "Range": "bytes=0-0", "Accept-Encoding": "identity"}
    at_home = is_loopback(urlsplit(url).hostname or "")
    for _ in range(MOST_REDIRECTS + 1):
        _check_address(url, at_home=at_home)
        with get_session().stream("GET", url, headers=headers, follow_redirects=False) as response:
            if not response.has_redirect_location:
                return url
            url = urljoin(url, response.headers["location"])
    raise UpstreamError(f"redirects more than {MOST_REDIRECTS} times.", where=url)


def _check_address(url: str, *, at_home: bool) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    local = is_loopback(host)
    if parts.username is not None or parts.password is not None:
        raise RecipeError("holds a user name or a password.", where=f"{parts.scheme}://{host}")
    if parts.scheme == "https" and host and (at_home or not local):
        return
    if parts.scheme == "http" and local and at_home:
        return
    raise UpstreamError(
        "is not an address that the bot reads from: https only, or http on this machine itself.",
        where=f"{parts.scheme}://{host}",
        remedy="Give an https address with its sha256.",
    )


@contextmanager
def upstream_errors() -> Iterator[None]:
    """Errors of a Hub, while reading from it, are upstream's."""
    try:
        yield
    except (UpstreamError, RecipeError, StepError):
        raise
    except Gated as error:
        raise UpstreamError(error.what, where=error.where, remedy=error.remedy) from error
    except HubError as error:
        raise UpstreamError(error.what, where=error.where, remedy=error.remedy) from error
    except BotError:
        raise
    except Exception as error:
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError

        if isinstance(error, httpx2.HTTPError | HfHubHTTPError):
            raise UpstreamError(f"cannot be had: {error}") from error
        if isinstance(error, OSError):
            raise StepError(f"{error.strerror or error}.", where=str(error.filename or "")) from error
        raise
