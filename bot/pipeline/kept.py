"""Finished releases as they lie in the work folder or on a Hub: the record, the card, and the list of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import file_sha256
from bot.errors import RecipeError, VerificationError
from bot.pipeline.assembling import CARD, CARD_AS_RENDERED
from bot.recipe import Recipe
from bot.records import FileRecord, Release
from bot.work import WorkFolder

if TYPE_CHECKING:
    from bot.hub.client import Hub


@dataclass(frozen=True)
class Kept:
    """A release as it was laid out or published.

    Attributes:
        release: The record.
        where: The folder, or repository and revision.
        card: README.md as it is there; empty if it is not.
        rendered: The card as it was rendered then, the base of later merges; empty if it is not there.
        files: Every file of the release.
    """

    release: Release
    where: str
    card: str
    rendered: str
    files: tuple[FileRecord, ...]


def newest_in(work: WorkFolder, recipe: Recipe) -> tuple[Kept, Path]:
    """The release of a recipe that was assembled last on this machine, and its folder.

    Raises:
        RecipeError: There is none.
    """
    records = sorted((work.root / "releases").glob(f"*/publish/{Release.PATH}"), key=lambda path: path.stat().st_mtime)
    for path in reversed(records):
        try:
            release = Release.from_json(path.read_bytes(), where=str(path))
        except VerificationError:
            continue  # Written by another version of the bot.
        if release.recipe == recipe.name:
            folder = path.parent
            return Kept(
                release, str(folder), _text(folder / CARD), _text(folder / CARD_AS_RENDERED), files_of(folder)
            ), folder
    raise RecipeError(
        f"no release of {recipe.name!r} was made here yet",
        where=str(work.root),
        remedy=f"Run: bot build {recipe.name}. Or name a published one, OWNER/NAME[@REVISION].",
    )


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def files_of(folder: Path) -> tuple[FileRecord, ...]:
    """The files of a laid-out folder, as records."""
    return tuple(
        FileRecord(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=file_sha256(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )


def published_at(hub: Hub, repo: str, revision: str) -> Kept | None:
    """The release that a repository holds at a revision; None if it holds none that can be read.

    Raises:
        NotFound: There is no such repository or revision.
        HubError: The Hub could not be read.
    """
    from bot.hub.target import manifest_at

    commit = hub.head(repo, revision).sha
    tree = hub.tree(repo, commit)
    if Release.PATH not in tree:
        return None
    try:
        release = Release.from_json(hub.read_bytes(repo, commit, Release.PATH), where=f"{repo}@{revision}")
    except VerificationError:
        return None

    def text(path: str) -> str:
        return hub.read_bytes(repo, commit, path).decode("utf-8", errors="replace") if path in tree else ""

    manifest = manifest_at(hub, repo, commit, tree)
    listed = manifest.files if manifest is not None else {}
    files = tuple(FileRecord(path=path, bytes=ids.bytes, sha256=ids.sha256) for path, ids in sorted(listed.items()))
    return Kept(release, f"{repo}@{commit}", text(CARD), text(CARD_AS_RENDERED), files)


def published(hub: Hub, repo: str, revision: str) -> Kept:
    """As `published_at`, for somebody who asked for just this release.

    Raises:
        VerificationError: It holds none that can be read.
    """
    found = published_at(hub, repo, revision)
    if found is None:
        raise VerificationError(
            f"holds no {Release.PATH} that can be read",
            where=f"{repo}@{revision}",
            remedy="Name a repository that the bot published in, and a revision since then.",
        )
    return found
