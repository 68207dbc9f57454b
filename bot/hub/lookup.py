"""The sha256 of what a recipe would fetch from a commit, without fetching it.

A listing gives the sha256 of large files. Of a file that lies in git itself it gives the git id; such files are small,
and one is read once for every content that it ever has. Nothing here is opened or parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.canonical import digest
from bot.errors import UpstreamError
from bot.hub.bundle import ids_of_bytes
from bot.hub.client import Garbled, Hub, RepoType, TreeFile
from bot.hub.fetch import Tree
from bot.hub.memory import Memory
from bot.hub.paths import is_pattern


@dataclass(frozen=True)
class Listed:
    """The sha256 of files at one commit.

    Attributes:
        files: By the recipe's key; `KEY/PATH` for each match of a pattern.
        copies: By path.
    """

    files: Mapping[str, str]
    copies: Mapping[str, str] = field(default_factory=dict)


def digests_at(
    hub: Hub,
    memory: Memory,
    repo: str,
    commit: str,
    *,
    files: Mapping[str, str],
    copies: Sequence[str] = (),
    repo_type: RepoType = "model",
) -> Listed:
    """What `bot.hub.fetch.fetch` would record of the same files.

    Args:
        hub: Where the repository is.
        memory: Remembers what it found, which cannot change.
        repo: `owner/name`.
        commit: The full sha.
        files: Path, or pattern, by the recipe's key.
        copies: Paths or patterns.
        repo_type: `model` or `dataset`.

    Raises:
        UpstreamError: A file is not there.
        HubError: The Hub could not be read.
    """
    key = digest([repo_type, repo, commit, dict(files), list(copies)])
    known = memory.get("files", key)
    if known is not None:
        for blob in known["blobs"]:
            memory.get("blob", blob)  # So that a sweep keeps them: the next commit may hold them too.
        return Listed(known["files"], known["copies"])
    tree = Tree(hub, repo, commit, repo_type)
    tree.look_up([path for path in [*files.values(), *copies] if not is_pattern(path)])
    named = {name: tree.one(path) for name, path in files.items() if not is_pattern(path)}
    for name, pattern in files.items():
        if is_pattern(pattern):
            named |= tree.below(name, pattern)
    carried = {item.path: item for path in copies for item in tree.some(path)}
    found = Listed(
        {name: _sha256(hub, memory, repo, commit, item, repo_type) for name, item in named.items()},
        {path: _sha256(hub, memory, repo, commit, item, repo_type) for path, item in carried.items()},
    )
    blobs = sorted({item.blob for item in [*named.values(), *carried.values()] if not item.sha256})
    memory.put("files", key, {"files": dict(found.files), "copies": dict(found.copies), "blobs": blobs})
    return found


def _sha256(hub: Hub, memory: Memory, repo: str, commit: str, item: TreeFile, repo_type: RepoType) -> str:
    if item.sha256:
        return item.sha256
    known = memory.get("blob", item.blob)
    if known is None:
        known = ids_of_bytes(small_file(hub, repo, commit, item, repo_type)).sha256
        memory.put("blob", item.blob, known)
    return str(known)


def small_file(hub: Hub, repo: str, commit: str, item: TreeFile, repo_type: RepoType = "model") -> bytes:
    """The content of a file, which has to be what the Hub lists; a bad download is tried once more.

    Raises:
        Garbled: It is not, twice.
    """
    for _ in range(2):
        data = hub.read_bytes(repo, commit, item.path, repo_type=repo_type)
        if ids_of_bytes(data).are_of(item):
            return data
    raise Garbled("does not come as the Hub lists it.", where=f"{repo}@{commit[:12]}: {item.path}")


def date_of(hub: Hub, memory: Memory, repo: str, commit: str) -> datetime:
    """The date of a commit.

    Raises:
        UpstreamError: The Hub does not tell it.
    """
    known = memory.get("date", commit)
    if known is None:
        newest = next(hub.commits(repo, commit, limit=1), None)
        if newest is None:
            raise UpstreamError("has no history.", where=f"{repo}@{commit[:12]}")
        known = newest.date.astimezone(UTC).isoformat()
        memory.put("date", commit, known)
    return datetime.fromisoformat(known)
