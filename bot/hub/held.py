"""Files that lie in a target already: found there by their path and sha256, and brought here to be measured.

They were made by hand and others rely on them. They are only ever read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bot.canonical import file_sha256
from bot.errors import OverwriteError
from bot.hub.bundle import beside
from bot.hub.client import Hub, NotFound, Progress, TreeFile
from bot.hub.download import Expected, git_blob_sha1
from bot.records import FileRecord


@dataclass(frozen=True)
class Held:
    """A model file that a target holds.

    Attributes:
        repo: The target.
        commit: The head at which it was read.
        file: Its path there.
        sha256: Of its content.
        path: Where it lies on this machine.
    """

    repo: str
    commit: str
    file: str
    sha256: str
    path: Path


def bring(
    hub: Hub, repo: str, file: str, sha256: str, into: Path, *, where: str, progress: Progress | None = None
) -> Held:
    """Brings a file of a target, at its head, to this machine, unless it is here already.

    Args:
        hub: Where the target is.
        repo: The target.
        file: Path in it.
        sha256: What its content has to be.
        into: It goes to `into/SHA256/NAME`.
        where: The place in the recipe that says so, for the error.
        progress: Called while bytes move.

    Raises:
        OverwriteError: The target does not hold this content at this path. Nothing may be published in its place.
        HubError: The Hub could not be read.
    """

    def fail(found: str) -> OverwriteError:
        return OverwriteError(
            f"has to lie there with the sha256 {sha256}, says {where}, and {found}.",
            where=f"{repo}: {file}",
            remedy="Correct `frozen` in the recipe, or restore the file. Nothing was published.",
        )

    try:
        commit = hub.head(repo).sha
        there = hub.files_at(repo, commit, [file]).get(file) if commit else None
    except NotFound:
        raise fail("there is no such repository, or this account may not see it") from None
    if there is None:
        raise fail("the target holds no such file")
    if there.sha256 and there.sha256 != sha256:
        raise fail(f"the target holds {there.sha256} at {commit[:12]}")
    path = into / sha256 / file.rpartition("/")[2]
    found = _fetch(hub, repo, commit, there, path, progress)
    if found != sha256:
        path.unlink()
        raise fail(f"the target holds {found} at {commit[:12]}")
    return Held(repo, commit, file, sha256, path)


def bring_weights(hub: Hub, held: Held, names: Iterable[str], *, progress: Progress | None = None) -> list[FileRecord]:
    """Brings the files with a model's weights, which lie beside it here and there.

    Args:
        hub: Where the target is.
        held: The model.
        names: What it calls them: paths below its own folder, which have been checked to be that.
        progress: Called while bytes move.

    Returns:
        Their records, in the same order.

    Raises:
        OverwriteError: The target does not hold one of them.
        HubError: The Hub could not be read.
    """
    paths = {name: beside(held.file, name) for name in names}
    tree = hub.files_at(held.repo, held.commit, list(paths.values())) if paths else {}
    records = []
    for name, path in paths.items():
        if path not in tree:
            raise OverwriteError(
                f"holds weights of {held.file}, and the target does not hold it at {held.commit[:12]}.",
                where=f"{held.repo}: {path}",
                remedy="Restore the file.",
            )
        sha256 = _fetch(hub, held.repo, held.commit, tree[path], held.path.parent / name, progress)
        records.append(FileRecord(path=path, bytes=tree[path].bytes, sha256=sha256))
    return records


def _fetch(hub: Hub, repo: str, commit: str, there: TreeFile, path: Path, progress: Progress | None) -> str:
    """Downloads a file unless it is here, whole and unchanged, and returns its sha256."""
    if path.is_file() and path.stat().st_size == there.bytes:
        sha256 = file_sha256(path)
        if there.sha256 == sha256 if there.sha256 else there.blob == git_blob_sha1(path):
            return sha256
    # A large file's git id is that of its pointer, which says nothing of the content that comes.
    expected = Expected(bytes=there.bytes, sha256=there.sha256, blob="" if there.sha256 else there.blob)
    on_bytes = (lambda done: progress(done, there.bytes, there.path)) if progress else None
    return hub.download(repo, commit, there.path, path, expected, on_bytes=on_bytes)
