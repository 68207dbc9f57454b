"""Reads finished releases from where they lie, in the work folder or on a Hub: record, card, and list of files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import file_sha256
from bot.card.published import Published
from bot.errors import RecipeError, VerificationError
from bot.recipe import Recipe
from bot.records import FileRecord, Release
from bot.work import WorkFolder

if TYPE_CHECKING:
    from bot.hub.client import Hub

CARD = "README.md"
CARD_AS_RENDERED = "release/card.md"
README_RECORD = "release/readme.json"
"""Which README.md the release brings, and what became of a person's edits of the last one."""

LIST_OF_FILES = "release/files.json"
"""Written when a release is published; it names every file but itself."""


def newest_in(work: WorkFolder, recipe: Recipe) -> tuple[Published, Path]:
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
            return Published(
                release, str(folder), _text(folder / CARD), _text(folder / CARD_AS_RENDERED), files_of(folder)
            ), folder
    raise RecipeError(
        f"no release of {recipe.name!r} was made here yet",
        where=str(work.root),
        remedy=f"Run: bot build {recipe.name}. Or name a published one, OWNER/NAME[@REVISION].",
    )


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def files_of(folder: Path, known: Mapping[str, str] | None = None) -> tuple[FileRecord, ...]:
    """The files of a laid-out folder, as records.

    Args:
        folder: The folder.
        known: sha256 of large files that was worked out before, by path.
    """
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return tuple(
        FileRecord(path=name, bytes=path.stat().st_size, sha256=(known or {}).get(name) or file_sha256(path))
        for name, path in sorted(names.items())
        if name != LIST_OF_FILES
    )


def published_at(hub: Hub, repo: str, revision: str) -> Published | None:
    """What a repository holds at a revision: with a release, or only a README.md; None if it has no commit.

    Raises:
        NotFound: There is no such repository or revision.
        HubError: The Hub could not be read.
    """
    from bot.hub.target import manifest_at

    commit = hub.head(repo, revision).sha
    if not commit:
        return None
    tree = hub.tree(repo, commit)

    def text(path: str) -> str:
        return hub.read_bytes(repo, commit, path).decode("utf-8", errors="replace") if path in tree else ""

    release = None
    if Release.PATH in tree:
        with suppress(VerificationError):  # Written by another version of the bot, or damaged.
            release = Release.from_json(hub.read_bytes(repo, commit, Release.PATH), where=f"{repo}@{revision}")
    manifest = manifest_at(hub, repo, commit, tree)
    listed = manifest.files if manifest is not None and release is not None else {}
    files = tuple(FileRecord(path=path, bytes=ids.bytes, sha256=ids.sha256) for path, ids in sorted(listed.items()))
    return Published(release, f"{repo}@{commit}", text(CARD), text(CARD_AS_RENDERED), files)


def published(hub: Hub, repo: str, revision: str) -> Published:
    """As `published_at`, for somebody who asked for just this release.

    Raises:
        VerificationError: It holds none that can be read.
    """
    found = published_at(hub, repo, revision)
    if found is None or found.release is None:
        raise VerificationError(
            f"holds no {Release.PATH} that can be read",
            where=f"{repo}@{revision}",
            remedy="Name a repository that the bot published in, and a revision since then.",
        )
    return found
