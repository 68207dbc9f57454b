"""Where an artifact goes in a target, so that bytes which were published under a name stay there under that name.

A place is chosen from what the target holds and from the artifact's own bytes alone, so that a run which is repeated
comes to the same one:

- The same bytes keep the name that they have, whatever other releases came between.
- Bytes that were never there before go to the path that the recipe names, if nothing of this artifact is there yet.
- Otherwise the recipe decides: with `new_name`, the identity of the release goes into the name and the old file stays;
  with `replace`, the path that the recipe names gets the new bytes.

A graph names the files that hold its weights relative to itself. Such a graph moves together with them, into a folder
with the identity in its name: its bytes need not be changed, and no older graph reads the new weights.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.hub.bundle import Ids, beside, paths_of
from bot.hub.target import Target
from bot.records import Artifact, EarlierFile, OnChange


@dataclass(frozen=True)
class Content:
    """The bytes of an artifact: its graph, and the files with its weights by their names relative to the graph."""

    graph: Ids
    weights: Mapping[str, Ids] = field(default_factory=dict)

    def at(self, file: str) -> dict[str, Ids]:
        """The same by path, with the graph at a path."""
        return {file: self.graph} | {beside(file, name): ids for name, ids in self.weights.items()}

    @property
    def short(self) -> str:
        """Enough of a digest of it all to tell two apart."""
        parts = [self.graph.sha256, *(f"{name} {ids.sha256}" for name, ids in sorted(self.weights.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Place:
    """The path of an artifact's graph, and what the target held of the artifact before."""

    file: str
    before: EarlierFile | None = None


def place(target: Target | None, file: str, content: Content, identity: str, on_change: OnChange) -> Place:
    """The place of one artifact that is not frozen.

    Args:
        target: What is there; None if there is no such repository.
        file: The path that the recipe names.
        content: The artifact's bytes.
        identity: The short identity of the release that brings it.
        on_change: What becomes of the bytes that the last release has of it.
    """
    if target is None:
        return Place(file)
    known = _Known(target, file)
    for path in known.paths():
        if known.holds(content.at(path)):
            return Place(path, known.before_of(path))
    if known.current is None:
        return Place(file)
    if on_change == "replace":
        return Place(file, known.earlier(file))
    for suffix in (identity, f"{identity}-{content.short}"):
        path = named(file, suffix, in_folder=bool(content.weights))
        if known.is_free(content.at(path)):
            break
    return Place(path, known.earlier(known.current))


def named(file: str, suffix: str, *, in_folder: bool = False) -> str:
    """The path with an identity in its name: `a/model-ID.onnx`, or `a/model-ID/model.onnx` where weights go along."""
    stem, dot, extension = file.rpartition(".")
    name = file.rpartition("/")[2]
    return f"{stem}-{suffix}/{name}" if in_folder else f"{stem}-{suffix}{dot}{extension}"


def _is_named_after(path: str, file: str) -> bool:
    """Whether a path is what `named` makes of another."""
    stem, _, extension = file.rpartition(".")
    name = file.rpartition("/")[2]
    pattern = rf"{re.escape(stem)}-[0-9a-f]{{12}}(-[0-9a-f]{{8}})?(\.{re.escape(extension)}|/{re.escape(name)})"
    return re.fullmatch(pattern, path) is not None


class _Known:
    """What a target tells of one artifact: the paths that were its own, and what lies there.

    Attributes:
        current: The path that the last release has for it, or else one that an earlier release had; None if nothing of
            it was published yet.
    """

    def __init__(self, target: Target, file: str) -> None:
        self._target, self._file = target, file
        self._published = target.published()
        artifacts = target.release.published if target.release else ()
        self._last = next((each for each in artifacts if not each.taken_over and self._is_ours(each.file)), None)
        older = sorted((path for path in self._published if self._is_ours(path)), reverse=True)
        self.current = self._last.file if self._last else file if file in self._published else next(iter(older), None)

    def _is_ours(self, path: str) -> bool:
        return path == self._file or _is_named_after(path, self._file)

    def paths(self) -> list[str]:
        """Where these bytes may lie already, the newest name first, then the recipe's own."""
        there = {*self._target.tree, *self._published}
        older = sorted(path for path in there if self._is_ours(path))
        first = [self.current] if self.current else []
        return list(dict.fromkeys([*first, self._file, *older]))

    def holds(self, files: Mapping[str, Ids]) -> bool:
        """Whether these files lie there, or were published there and are gone since."""
        return all(self._is_there(path, ids) for path, ids in files.items())

    def _is_there(self, path: str, ids: Ids) -> bool:
        file = self._target.tree.get(path)
        return ids.are_of(file) if file is not None else self._published.get(path) == ids

    def is_free(self, files: Mapping[str, Ids]) -> bool:
        """Whether nothing else lies there, or was published there."""
        return not any(path in self._target.tree or path in self._published for path in files)

    def earlier(self, path: str) -> EarlierFile | None:
        """What the bot has published at a path and is there still."""
        ids = self._published.get(path)
        if ids is None or not ids.are_of(self._target.tree.get(path)):
            return None
        return EarlierFile(path=path, sha256=ids.sha256, revision=self._target.head)

    def before_of(self, path: str) -> EarlierFile | None:
        """What the last release says that there was before these bytes, if that is true still."""
        before = self._last.before if self._last is not None and self._last.file == path else None
        if before is None or before.path == path:
            return before
        there = self.earlier(before.path)
        return before if there is not None and there.sha256 == before.sha256 else None


def collisions(artifacts: tuple[Artifact, ...]) -> list[tuple[str, Artifact, Artifact]]:
    """Paths that two artifacts would both have, such as files with weights of the same name."""
    taken: dict[str, Artifact] = {}
    found = []
    for artifact in artifacts:
        for path in paths_of(artifact):
            if path in taken:
                found.append((path, taken[path], artifact))
            taken.setdefault(path, artifact)
    return found
