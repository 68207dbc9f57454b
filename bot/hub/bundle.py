"""The folder that is published: every file in it with its ids, and a list of them that travels along.

`release/files.json` names every file of a release with its size and ids, and those that the release leaves where they
are: files of earlier releases, and files that were taken over. The next release learns from it which files in the
target are the bot's own and unchanged and which are frozen, and anyone can check a download against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.canonical import canonical_json, chunks, write_atomically
from bot.errors import StepError, WithheldError
from bot.hub.client import TreeFile
from bot.hub.paths import why_unsafe
from bot.records import Artifact, Release

MANIFEST = "release/files.json"
CARD = "README.md"
CARD_AS_RENDERED = "release/card.md"
README_RECORD = "release/readme.json"
"""Says which README.md the release brought, where a person's edits of the last one were merged into it."""

COPIES = "source"
OWN_FOLDERS = ("release/", "recipe/", f"{COPIES}/")
"""Where the bot keeps what belongs to one release; nothing else is looked for there, and no model lies there."""

_SCHEMA = 1


@dataclass(frozen=True)
class Ids:
    """A file's content by its ids: size, sha256, and the sha1 that git gives to it as a blob."""

    bytes: int
    sha256: str
    blob: str

    def are_of(self, file: TreeFile | None) -> bool:
        """Whether a file in a repository has this content."""
        return file is not None and file.bytes == self.bytes and file.holds(sha256=self.sha256, blob=self.blob)


@dataclass(frozen=True)
class Kept:
    """A file that a release leaves where it is.

    Attributes:
        ids: Of its content, as it was published, or as it was when it was taken over. `blob` is empty for a large file
            that was taken over: the Hub knows that one by its sha256.
        frozen: Nobody may change it.
        published: The bot published it, in an earlier release; if not, it was made by hand and taken over.
    """

    ids: Ids
    frozen: bool
    published: bool


@dataclass(frozen=True)
class Manifest:
    """The list of a release's files.

    Attributes:
        identity: Of the release.
        files: What it brought, the list itself left out.
        kept: What it leaves where it is.
        others: Paths in the bot's own folders of files that it neither brought nor published: a person's.
    """

    identity: str
    files: Mapping[str, Ids]
    kept: Mapping[str, Kept] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The list as canonical JSON."""
        plain: dict[str, Any] = {
            "schema_version": _SCHEMA,
            "identity": self.identity,
            "files": [_row(path, ids) for path, ids in sorted(self.files.items())],
            "kept": [
                _row(path, kept.ids) | {"frozen": kept.frozen, "published": kept.published}
                for path, kept in sorted(self.kept.items())
            ],
            "others": sorted(self.others),
        }
        return canonical_json(plain)

    @classmethod
    def from_json(cls, data: bytes) -> Manifest | None:
        """Reads a list; None if it is not one."""
        try:
            plain = json.loads(data)
            if plain["schema_version"] != _SCHEMA:
                return None
            files = {str(row["path"]): _ids(row) for row in plain["files"]}
            kept = {
                str(row["path"]): Kept(_ids(row), bool(row["frozen"]), bool(row["published"]))
                for row in plain.get("kept", ())
            }
            return cls(str(plain["identity"]), files, kept, tuple(str(path) for path in plain.get("others", ())))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _row(path: str, ids: Ids) -> dict[str, Any]:
    return {"path": path, "bytes": ids.bytes, "sha256": ids.sha256, "blob": ids.blob}


def _ids(row: Mapping[str, Any]) -> Ids:
    return Ids(int(row["bytes"]), str(row["sha256"]), str(row["blob"]))


@dataclass(frozen=True)
class Bundle:
    """A folder to publish that was found to be whole.

    Attributes:
        folder: The folder.
        release: Whose files they are.
        files: Every file, the list itself included, by its path in the target.
        deleted: Paths of the bot's own files in the target that belong to no release any more.
    """

    folder: Path
    release: Release
    files: Mapping[str, Ids]
    deleted: tuple[str, ...] = ()

    def path_of(self, name: str) -> Path:
        """Where a file lies on this machine."""
        return self.folder / name

    def changed(self, tree: Mapping[str, TreeFile]) -> list[str]:
        """The files that a commit's tree lacks or holds with other content."""
        return [path for path, ids in sorted(self.files.items()) if not ids.are_of(tree.get(path))]

    def size_of(self, names: list[str]) -> int:
        """Bytes of these files together."""
        return sum(self.files[name].bytes for name in names)

    def listing(
        self, kept: Mapping[str, Kept] | None = None, others: tuple[str, ...] = (), deleted: tuple[str, ...] = ()
    ) -> Bundle:
        """The same folder with its list of files written anew: see `Manifest`, and `deleted` above."""
        files = {path: ids for path, ids in self.files.items() if path != MANIFEST}
        manifest = Manifest(self.release.identity, files, kept or {}, others)
        write_atomically(self.folder / MANIFEST, manifest.to_json())
        return replace(self, files=files | {MANIFEST: ids_of(self.folder / MANIFEST)}, deleted=deleted)


def gather(release: Release, folder: Path) -> Bundle:
    """Reads the folder of a release, checks that nothing is missing from it, and adds the list of its files.

    A frozen artifact may be absent: then it has to be in the target already, as one that was taken over always is.

    Raises:
        WithheldError: The release publishes nothing.
        StepError: A file is missing, is not what the release says, or may not be published.
    """
    if not release.published:
        raise WithheldError("publishes no artifact.", where=f"release {release.short_identity} of {release.recipe}")
    found = {path.relative_to(folder).as_posix(): path for path in _files_in(folder)}
    found.pop(MANIFEST, None)
    files = {name: ids_of(path) for name, path in found.items()}
    for problem in _problems(release, files):
        raise StepError(problem, where=str(folder), remedy="Build the release again; nothing was published.")
    if (folder / Release.PATH).read_bytes() != release.to_json():
        raise StepError("is not the record of this release.", where=str(folder / Release.PATH))
    return Bundle(folder, release, files).listing()


def ids_of(path: Path) -> Ids:
    """A file's ids, read as a stream."""
    size = path.stat().st_size
    whole, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    for piece in chunks(path):
        whole.update(piece)
        blob.update(piece)
    return Ids(size, whole.hexdigest(), blob.hexdigest())


def ids_of_bytes(data: bytes) -> Ids:
    """The ids of content in memory."""
    blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
    return Ids(len(data), hashlib.sha256(data).hexdigest(), blob)


def named_files(release: Release) -> Iterator[tuple[tuple[str, ...], str, int | None]]:
    """The files that a release's record names: where each may lie, its sha256, and its size if the record tells it."""
    for artifact in release.published:
        yield (artifact.file,), artifact.sha256, artifact.bytes
        for weights in artifact.weights:
            yield (weights.path,), weights.sha256, weights.bytes
        if artifact.sidecar is not None:
            yield (artifact.sidecar.path,), artifact.sidecar.sha256, artifact.sidecar.bytes
    for license_ in release.licenses:
        if license_.file:
            yield (license_.file,), license_.sha256, None
    for copy in release.copies:
        yield (f"{COPIES}/{copy.path}", copy.path), copy.sha256, copy.bytes


def _files_in(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise StepError("there is no such folder to publish.", where=str(folder))
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise StepError("is a link or a special file, which is not published.", where=str(path))
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            if why := why_unsafe(name):
                raise StepError(f"cannot be published under this name: {why}.", where=name)
            yield path


def _problems(release: Release, files: Mapping[str, Ids]) -> Iterator[str]:
    """What is missing from a folder, or does not belong into it, as sentences."""
    for name in (Release.PATH, CARD, CARD_AS_RENDERED):
        if name not in files:
            yield f"lacks {name}."
    frozen = {path for artifact in release.published if artifact.frozen for path in paths_of(artifact)}
    taken_over = {path for artifact in release.published if artifact.taken_over for path in paths_of(artifact)}
    for places, sha256, size in named_files(release):
        place = next((place for place in places if place in files), None)
        if place is None:
            if places[0] not in frozen:
                yield f"lacks {places[0]}, which the release names."
        elif places[0] in taken_over:
            yield f"holds {place}, which was taken over and is never uploaded."
        elif files[place].sha256 != sha256 or size not in (None, files[place].bytes):
            yield f"holds {place} with the sha256 {files[place].sha256}, and the release says {sha256}."
    for artifact in release.artifacts:
        if artifact not in release.published and artifact.file in files:
            yield f"holds {artifact.file}, which is withheld."
    yield from (f"lacks {name}, which holds weights." for name in _external(release.published) if name not in files)


def paths_of(artifact: Artifact) -> tuple[str, ...]:
    """The paths in the target of an artifact's graph and of the files beside it that hold its weights."""
    return artifact.file, *(beside(artifact.file, name) for name in artifact.signature.external_files)


def beside(file: str, name: str) -> str:
    """The path of what a graph calls by a name relative to itself."""
    folder = file.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def _external(artifacts: tuple[Artifact, ...]) -> Iterator[str]:
    """Paths of the files that hold weights beside their models; a frozen model may bring none along."""
    for artifact in artifacts:
        yield from () if artifact.frozen else paths_of(artifact)[1:]
