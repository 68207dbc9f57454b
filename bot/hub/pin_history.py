"""The releases that the main branch of a repository has held, and where a pinned file stands among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.errors import VerificationError
from bot.hub.bundle import Manifest
from bot.hub.client import Hub
from bot.hub.pins import Pin, pinned_paths, pins_of, release_at
from bot.hub.target import HISTORY, MAIN
from bot.records import Artifact, Release


@dataclass(frozen=True)
class Held:
    """A release that a commit holds, with the list of its files where that is needed."""

    commit: str
    release: Release
    manifest: Manifest | None

    def find(self, file: str, sha256: str = "") -> tuple[Artifact, int] | None:
        """The published artifact that a file belongs to: 0 for its graph, n for the n-th file beside it.

        Args:
            file: Path in the repository.
            sha256: If it is given, a graph with this content under another name is found too.
        """
        for artifact in self.release.published:
            for index, path in enumerate(pinned_paths(artifact)):
                if path == file:
                    return artifact, index
        same = [artifact for artifact in self.release.published if artifact.sha256 == sha256]
        return (same[0], 0) if same else None

    def pins(self, artifact: str, repo: str) -> tuple[Pin, ...]:
        """The pins of one artifact, by its key; none if the release does not publish it."""
        for pinned in pins_of(self.release, self.commit, self.manifest, repo=repo):
            if pinned.artifact.name == artifact:
                return pinned.pins
        return ()

    def published(self, artifact: str) -> Artifact | None:
        """The published artifact with this key."""
        return next((each for each in self.release.published if each.name == artifact), None)


class Releases:
    """The merged releases of one repository, read from the newest back, as far as somebody asks, each once.

    Args:
        hub: Where it is.
        repo: `owner/name`.
    """

    def __init__(self, hub: Hub, repo: str) -> None:
        self._hub, self._repo = hub, repo
        self._seen: list[tuple[str, Held | None]] = []
        self._source = self._read()

    def _read(self) -> Iterator[tuple[str, Held | None]]:
        """Every commit of the main branch, newest first, with the release that it holds, if it can be read."""
        last: tuple[str, Held | None] = ("", None)
        for commit in self._hub.commits(self._repo, MAIN, limit=HISTORY):
            there = self._hub.files_at(self._repo, commit.sha, [Release.PATH]).get(Release.PATH)
            blob = there.sha256 or there.blob if there else ""
            if blob != last[0]:
                last = (blob, held_at(self._hub, self._repo, commit.sha) if blob else None)
            yield commit.sha, last[1]

    def _entries(self) -> Iterator[tuple[str, Held | None]]:
        index = 0
        while True:
            if index == len(self._seen):
                entry = next(self._source, None)
                if entry is None:
                    return
                self._seen.append(entry)
            yield self._seen[index]
            index += 1

    def newest(self) -> Held | None:
        """The release at the head of the main branch; None if it holds none that can be read."""
        return next((held for _, held in self._entries()), None)

    def newer_than(self, commit: str, identity: str) -> list[Held] | None:
        """The releases that were merged after a pinned one, the newest first.

        Args:
            commit: The pinned commit.
            identity: Of the release that it holds.

        Returns:
            None if neither is found on the main branch, so that nobody knows what is newer.
        """
        found: list[Held] = []
        for sha, held in self._entries():
            if sha == commit or (held is not None and held.release.identity == identity):
                return found
            if held is not None and held not in found:
                found.append(held)
        return None


def held_at(hub: Hub, repo: str, commit: str) -> Held | None:
    """The release that a commit holds; None if it holds none that can be read.

    Raises:
        NotFound: There is no such commit.
    """
    try:
        release, manifest = release_at(hub, repo, commit)
    except VerificationError:
        return None
    return Held(commit, release, manifest)
