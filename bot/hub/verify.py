"""What the Hub holds of a release, against the release's own record: from a fresh folder, byte by byte."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bot.errors import VerificationError
from bot.hub.bundle import (
    CARD,
    CARD_AS_RENDERED,
    MANIFEST,
    OWN_FOLDERS,
    README_RECORD,
    Kept,
    Manifest,
    named_files,
)
from bot.hub.client import Garbled, Hub, Progress, TreeFile
from bot.hub.download import Expected
from bot.hub.publish import Publication, close_as
from bot.hub.target import HISTORY, manifest_at
from bot.hub.trailers import IDENTITY, trailers_of
from bot.records import Release

Status = Literal["ok", "missing", "different", "unexpected", "edited"]


@dataclass(frozen=True)
class FileCheck:
    """One file.

    Attributes:
        path: In the repository.
        status: `ok`; `missing`; `different` from what was released; `unexpected` in a folder of the bot's own;
            `edited` by a person in the pull request, and left so on purpose.
        expected: Its sha256 in the record; empty for an unexpected file.
        found: The sha256 of what was downloaded; empty for a missing file.
    """

    path: str
    status: Status
    expected: str
    found: str


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes:
        release: As the repository holds it.
        files: Every file that was looked at, by path.
        folder: Where the downloads lie, at their paths.
        commit: What was read.
        repo: The repository.
    """

    release: Release
    files: tuple[FileCheck, ...]
    folder: Path
    commit: str
    repo: str

    @property
    def ok(self) -> bool:
        """Whether every file is as it was released, but for those that a person is known to have edited."""
        return all(file.status in ("ok", "edited") for file in self.files)

    def differs(self, path: str) -> bool:
        """Whether a file is not as it was released."""
        return any(file.path == path and file.status != "ok" for file in self.files)


def verify(
    hub: Hub,
    repo: str,
    revision: str,
    cache: Path,
    progress: Progress | None = None,
    *,
    edited: Collection[str] = (),
) -> Verification:
    """Downloads a release into a fresh folder and compares every file with what was recorded of it.

    The record (`release.json`) tells the artifacts, licences and copies; the list of files (`release/files.json`) all
    others; the card has to be the one that was rendered, or the one that `release/readme.json` tells, with a person's
    edits in it. The lists have to agree.

    Args:
        hub: Where it is.
        repo: `owner/name`.
        revision: A commit, a branch or `refs/pr/N`; it is resolved to one commit first.
        cache: A folder that is emptied first, so that nothing from before can pass for a download.
        progress: Called while bytes move.
        edited: Files that a person changed in the pull request.

    Raises:
        VerificationError: There is no record, or none that can be read.
        HubError: Something could not be downloaded.
    """
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    commit = hub.head(repo, revision).sha
    tree = hub.tree(repo, commit)
    where = f"{repo}@{revision}"
    if Release.PATH not in tree:
        raise VerificationError(f"holds no {Release.PATH}, so there is nothing to verify it against.", where=where)
    check = _Check(hub, repo, commit, tree, cache, progress, frozenset(edited))
    check.fetch(Release.PATH)
    release = Release.from_json((cache / Release.PATH).read_bytes(), where=f"{where}: {Release.PATH}")
    files = check.files(release)
    return Verification(release, tuple(sorted(files, key=lambda file: file.path)), cache, commit, repo)


def require(verification: Verification) -> None:
    """Stops unless everything is as it was released.

    Raises:
        VerificationError: It is not; the message names the files, with what was recorded and what was found.
    """
    wrong = [file for file in verification.files if file.status not in ("ok", "edited")]
    if wrong:
        raise VerificationError(
            "is not as it was released: " + "; ".join(_sentence(file) for file in wrong) + ".",
            where=f"{verification.repo}@{verification.commit[:12]}",
            remedy="Do not use these files. If nobody changed them on purpose, publish the release again.",
        )


def confirm(
    hub: Hub, release: Release, publication: Publication, cache: Path, progress: Progress | None = None
) -> Verification:
    """Verifies what was just published, and takes it back if the Hub does not hold it.

    A bad download is tried once more. If it is bad again and the Hub's own list says that it keeps other content, the
    pull request is closed with the reason.

    Args:
        hub: Where it is.
        release: What was published.
        publication: What publishing came to.
        cache: A folder for the downloads.
        progress: Called while bytes move.

    Raises:
        VerificationError: The Hub does not hold what was published.
        HubError: It could not be downloaded.
    """
    try:
        return _confirmed(hub, release, publication, cache, progress)
    except VerificationError:
        pass  # perhaps the download was bad, and not what the Hub holds
    try:
        return _confirmed(hub, release, publication, cache, progress)
    except VerificationError as error:
        if publication.kind == "pull-request" and publication.number and _kept_otherwise(hub, release, publication):
            text = f"Closed because the Hub does not hold what was published: {error.what}"
            close_as(hub, release.target, publication.number, "verification", text)
        raise


def _confirmed(
    hub: Hub, release: Release, publication: Publication, cache: Path, progress: Progress | None
) -> Verification:
    found = verify(hub, release.target, publication.revision, cache, progress, edited=publication.edited)
    require(found)
    # What this run sent has to be this very record; an earlier run may have sent other figures of the same release.
    same = found.release == release if publication.uploaded_bytes else found.release.identity == release.identity
    if not same and Release.PATH not in publication.edited:
        raise VerificationError(
            f"holds release {found.release.identity} where {release.identity} was published, or other figures of it.",
            where=f"{release.target}@{publication.revision}",
            remedy="Somebody changed it in the meantime. Look at its history before you merge it.",
        )
    return found


def _kept_otherwise(hub: Hub, release: Release, publication: Publication) -> bool:
    """Whether the Hub's own list of files says that it keeps something else than what was released.

    If it does not, the content is right and only the way to us is bad: no reason to close anything.
    """
    tree = hub.tree(release.target, publication.revision)
    try:
        manifest = manifest_at(hub, release.target, publication.revision, tree)
    except Garbled:
        return False
    if manifest is None or manifest.identity != release.identity:
        return True
    wrong = (path for path, ids in manifest.files.items() if not ids.are_of(tree.get(path)))
    named = (
        sha256 != tree[place].sha256
        for places, sha256, _ in named_files(release)
        for place in places
        if place in tree and tree[place].sha256
    )
    return any(path not in publication.edited for path in wrong) or any(named)


@dataclass
class _Check:
    hub: Hub
    repo: str
    commit: str
    tree: Mapping[str, TreeFile]
    cache: Path
    progress: Progress | None
    edited: frozenset[str]
    digests: dict[str, str] = field(default_factory=dict)

    def fetch(self, path: str) -> str:
        """Downloads a file, once, and returns its sha256: of what came, whatever the Hub promises of it."""
        if path not in self.digests:
            size, progress = self.tree[path].bytes, self.progress
            on_bytes = (lambda done: progress(done, size, path)) if progress else None
            self.digests[path] = self.hub.download(
                self.repo, self.commit, path, self.cache / path, Expected(bytes=size), on_bytes=on_bytes
            )
        return self.digests[path]

    def files(self, release: Release) -> list[FileCheck]:
        """Checks everything that the record and the list of files name, and looks for what nobody named."""
        checks = {check.path: check for check in self._listed(release)}
        for places, sha256, size in named_files(release):
            path = next((place for place in places if place in self.tree), places[0])
            check = self._compare(path, sha256, size)
            if checks.get(path, check).status in ("ok", "edited"):
                checks[path] = check
        rendered = self._card()
        if rendered is not None and checks.get(CARD, rendered).status == "ok":
            checks[CARD] = rendered
        manifest = self._manifest() or Manifest(release.identity, {})
        for path, kept in manifest.kept.items():
            if path not in checks:
                checks[path] = self._kept(path, kept)
        for path in self.tree:
            if path.startswith(OWN_FOLDERS) and path not in checks and path not in manifest.others:
                checks[path] = FileCheck(path, "edited" if path in self.edited else "unexpected", "", self.fetch(path))
        return list(checks.values())

    def _listed(self, release: Release) -> list[FileCheck]:
        """The files in `release/files.json`; that list itself has to be of this release."""
        if MANIFEST not in self.tree:
            return [FileCheck(MANIFEST, "missing", "", "")]
        digest, manifest = self.fetch(MANIFEST), self._manifest()
        if manifest is None or manifest.identity != release.identity:
            return [FileCheck(MANIFEST, "edited" if MANIFEST in self.edited else "different", "", digest)]
        listed = [self._compare(path, ids.sha256, ids.bytes) for path, ids in manifest.files.items()]
        return [self._list_itself(release, digest), *listed]

    def _manifest(self) -> Manifest | None:
        return Manifest.from_json((self.cache / MANIFEST).read_bytes()) if MANIFEST in self.tree else None

    def _kept(self, path: str, kept: Kept) -> FileCheck:
        """A file that the release left where it was, by what the Hub lists of it: it is not part of the release.

        One that is not frozen may be gone: a person may tidy up.
        """
        there = self.tree.get(path)
        if kept.ids.are_of(there) or (there is None and not kept.frozen):
            return FileCheck(path, "ok", kept.ids.sha256, kept.ids.sha256)
        if path in self.edited:
            return FileCheck(path, "edited", kept.ids.sha256, "")
        if there is None:
            return FileCheck(path, "missing", kept.ids.sha256, "")
        return FileCheck(path, "different", kept.ids.sha256, there.sha256 or self.fetch(path))

    def _list_itself(self, release: Release, digest: str) -> FileCheck:
        """The list of files, which has to be the one that the release's own commit brought.

        Without that, a card could be changed together with every file that tells what it was. A history that does not
        name the release, as after a squash, tells nothing.
        """
        commit = self._own_commit(release.identity)
        then = self.hub.files_at(self.repo, commit, [MANIFEST]).get(MANIFEST) if commit else self.tree[MANIFEST]
        if then is None or then.blob == self.tree[MANIFEST].blob:
            return FileCheck(MANIFEST, "ok", digest, digest)
        first = hashlib.sha256(self.hub.read_bytes(self.repo, commit, MANIFEST)).hexdigest()
        return FileCheck(MANIFEST, "edited" if MANIFEST in self.edited else "different", first, digest)

    def _own_commit(self, identity: str) -> str:
        """The newest commit of a release by the account that first committed it; empty if the history names none.

        A later commit by somebody else that calls itself the release is none.
        """
        named = [
            commit
            for commit in self.hub.commits(self.repo, self.commit, limit=HISTORY)
            if trailers_of(commit.message).get(IDENTITY) == identity
        ]
        return next((commit.sha for commit in named if commit.authors == named[-1].authors), "")

    def _compare(self, path: str, sha256: str, size: int | None) -> FileCheck:
        if path not in self.tree:
            return FileCheck(path, "edited" if path in self.edited else "missing", sha256, "")
        found = self.fetch(path)
        if found == sha256 and size in (None, self.tree[path].bytes):
            return FileCheck(path, "ok", sha256, found)
        return FileCheck(path, "edited" if path in self.edited else "different", sha256, found)

    def _card(self) -> FileCheck | None:
        """The card: the one that was rendered, or, with a person's edits merged into it, the one that was recorded."""
        if README_RECORD in self.tree:
            self.fetch(README_RECORD)
            return self._compare(CARD, _recorded_card((self.cache / README_RECORD).read_bytes()), None)
        if CARD_AS_RENDERED in self.tree:
            return self._compare(CARD, self.fetch(CARD_AS_RENDERED), None)
        return None


def _recorded_card(data: bytes) -> str:
    """The sha256 of the card in `release/readme.json`; empty, which no card has, if it cannot be read."""
    try:
        return str(json.loads(data)["sha256"])
    except (ValueError, KeyError, TypeError):
        return ""


def _sentence(file: FileCheck) -> str:
    if file.status == "different":
        return f"{file.path} has the sha256 {file.found}, and {file.expected or 'another'} was recorded"
    return f"{file.path} is {file.status}"
