"""The hand-over: what a run without rights leaves for the run that may publish, and how that one reads it.

It is a folder with one record and the artifacts, and nothing else:

    release.json                the release as the first run made it, as canonical JSON
    artifacts/KEY/model.onnx    each artifact that was built, withheld ones included, under its key in the recipe
    artifacts/KEY/...           the files that hold its weights, under the names that the graph gives them

The first run opened a stranger's model, so whatever it left may be a stranger's. Reading here looks at names, kinds and
sizes before it looks at bytes, parses JSON and nothing but JSON, and believes no more than that the bytes are there:
`bot.pipeline.receiving` holds what they say against what can be known without them.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import file_sha256, write_atomically
from bot.errors import RecipeError, VerificationError
from bot.pipeline.building import Built
from bot.records import Artifact, FileRecord, Release
from bot.work import disk_errors

RECORD = Release.PATH
ARTIFACTS = "artifacts"
MODEL = "model.onnx"

LARGEST_RECORD = 64 * 1024 * 1024
"""Bytes of the record. A real one is about a hundredth of that."""

MOST_FILES = 1_000
DEEPEST = 16
"""Levels of folders, and of lists and objects inside the record."""

LONGEST_TEXT = 256 * 1024
"""Characters of one text in the record; the longest that there is, is the recipe."""

_REMEDY = "Do not publish it. Find out what the first run did, and build again."


@dataclass(frozen=True)
class HandOver:
    """A folder that was read.

    Attributes:
        folder: Where it lies.
        release: What its record says; nothing in it is known to be true.
        artifacts: Where the graph of each artifact lies, by its key; its weights lie beside it.
    """

    folder: Path
    release: Release
    artifacts: dict[str, Path]

    def fail(self, place: str, what: str) -> VerificationError:
        """The error about one place of the record."""
        return VerificationError(what, where=f"{self.folder / RECORD}: {place}", remedy=_REMEDY)


def require_new(folder: Path) -> None:
    """Stops unless a hand-over can be written there.

    Raises:
        RecipeError: There is something already.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RecipeError("is there already and is no empty folder.", where=str(folder), remedy="Name another --out.")


def write(folder: Path, release: Release, built: Sequence[Built]) -> None:
    """Writes a hand-over into a new or empty folder.

    Raises:
        RecipeError: There is something in it already.
        StepError: The disk is full, or the folder cannot be written to.
    """
    require_new(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for each in built:
            if each.artifact.taken_over:
                continue
            inside = folder / ARTIFACTS / each.artifact.name
            files = {MODEL: each.path} | {name: each.path.parent / name for name in _weights(each.artifact)}
            for name, path in files.items():
                destination = inside / name
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, destination)
        write_atomically(folder / RECORD, release.to_json(), mode=0o644)


def read(folder: Path) -> HandOver:
    """Reads a hand-over. Every file in it is one that the record names, as long as the record says, with its sha256.

    Raises:
        RecipeError: There is no such folder.
        VerificationError: It holds something that does not belong into one, or a record that is none.
    """
    if not folder.is_dir():
        raise RecipeError("there is no such folder", where=str(folder), remedy="Name what bot build --out has written.")
    found = dict(_files_in(folder))
    if RECORD not in found:
        raise VerificationError(f"holds no {RECORD}.", where=str(folder), remedy=_REMEDY)
    release = _record(found.pop(RECORD))
    named = _named(folder, release)
    for name in sorted({*found, *named}):
        if name not in named:
            raise VerificationError("does not belong into a hand-over.", where=str(folder / name), remedy=_REMEDY)
        if name not in found:
            raise VerificationError(f"lacks {name}, which its record names.", where=str(folder), remedy=_REMEDY)
    for name, (size, sha256) in named.items():
        _require_content(found[name], size, sha256)
    graphs = {each.name: folder / ARTIFACTS / each.name / MODEL for each in release.artifacts if not each.taken_over}
    return HandOver(folder, release, graphs)


def _named(folder: Path, release: Release) -> dict[str, tuple[int, str]]:
    """Size and sha256 of every file that belongs to the record, by its path in the folder.

    Raises:
        VerificationError: Two files would lie at one path.
    """
    named = {}
    for artifact in release.artifacts:
        if artifact.taken_over:
            continue
        inside = f"{ARTIFACTS}/{artifact.name}"
        files = [(MODEL, artifact.bytes, artifact.sha256)]
        files += [(name, record.bytes, record.sha256) for name, record in _weights(artifact).items()]
        for name, size, sha256 in files:
            if f"{inside}/{name}" in named:
                what = f"names {inside}/{name} twice."
                raise VerificationError(what, where=str(folder / RECORD), remedy=_REMEDY)
            named[f"{inside}/{name}"] = (size, sha256)
    return named


def _weights(artifact: Artifact) -> dict[str, FileRecord]:
    """The files that hold an artifact's weights, by the names that the graph gives them."""
    return dict(zip(artifact.signature.external_files, artifact.weights, strict=False))


def _files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder by their path in it; links, devices and odd names end it, and so does a great number.

    Raises:
        VerificationError: There is something else than plain files and folders.
    """
    from bot.hub.paths import why_unsafe

    count = 0
    waiting = [(folder, "", 0)]
    while waiting:
        here, prefix, depth = waiting.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                name, path = f"{prefix}{entry.name}", here / entry.name
                count += 1
                kind = entry.stat(follow_symlinks=False).st_mode
                if why := why_unsafe(name):
                    what = f"has a name that is not taken: {why}."
                    raise VerificationError(what, where=f"{folder}: {name!r}", remedy=_REMEDY)
                if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                    raise VerificationError("is a link or a special file.", where=str(path), remedy=_REMEDY)
                if count > MOST_FILES or depth > DEEPEST:
                    raise VerificationError("holds too many files or folders.", where=str(folder), remedy=_REMEDY)
                if stat.S_ISDIR(kind):
                    waiting.append((path, f"{name}/", depth + 1))
                else:
                    yield name, path


def _require_content(path: Path, size: int, sha256: str) -> None:
    found = path.stat().st_size
    if found != size:
        raise VerificationError(f"has {found} bytes, and its record says {size}.", where=str(path), remedy=_REMEDY)
    digest = file_sha256(path)
    if digest != sha256:
        raise VerificationError(
            f"has the sha256 {digest}, and its record says {sha256}.", where=str(path), remedy=_REMEDY
        )


# -- the record --------------------------------------------------------------------------------------------------------


def _record(path: Path) -> Release:
    """The record: JSON of a limited size, as the bot writes it, with a release in it and no odd text.

    Raises:
        VerificationError: It is something else.
    """
    where = str(path)
    size = path.stat().st_size
    if size > LARGEST_RECORD:
        what = f"has {size} bytes, and a record has no more than {LARGEST_RECORD}."
        raise VerificationError(what, where=where, remedy=_REMEDY)
    data = path.read_bytes()
    try:
        plain = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
        _require_plain(plain, "", 0)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise VerificationError(f"is no record: {what}.", where=where, remedy=_REMEDY) from None
    release = Release.from_json(data, where=where)
    try:
        canonical = release.to_json()
    except ValueError as error:  # A number that a double cannot hold, in a place where any number may stand.
        raise VerificationError(f"is no record: {error}.", where=where, remedy=_REMEDY) from None
    if canonical != data:
        what = "is not written as this version of the bot writes a record (RFC 8785)."
        raise VerificationError(what, where=where, remedy=_REMEDY)
    return release


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"the key {twice[:80]!r} stands twice in one object")
    return made


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _require_plain(value: Any, place: str, depth: int) -> None:
    """No depth, no length and no character that a record of the bot does not have.

    Raises:
        ValueError: There is one.
    """
    if depth > DEEPEST:
        raise ValueError(f"{place[:120]} is nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            _require_text(key, f"{place}.{key}"[:200])
            _require_plain(inner, f"{place}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _require_plain(inner, f"{place}[{index}]", depth + 1)
    elif isinstance(value, str):
        _require_text(value, place)


def _require_text(text: str, place: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{place[:120]!r} is longer than {LONGEST_TEXT} characters")
    odd = next((char for char in text if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"), None)
    if odd is not None:
        raise ValueError(f"{place[:120]!r} holds the character U+{ord(odd):04X}")
