"""What a release may change in a target, and what never.

The bot changes and deletes only what it has published itself and nobody has changed since; README.md may be somebody
else's, in a pull request, where a person sees it. What was ever frozen is neither changed nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from bot.errors import OverwriteError
from bot.hub.bundle import CARD, MANIFEST, OWN_FOLDERS, Bundle, Ids, Kept, ids_of_bytes, paths_of
from bot.hub.client import Hub
from bot.hub.target import Target
from bot.records import Artifact, Release

Mode = Literal["pull-request", "commit"]


def settled(bundle: Bundle, target: Target) -> Bundle:
    """The bundle with a list of files that goes on from the target's own, and with what has to be deleted there.

    What the last release brought and this one does not bring:

    - Models stay where they are, for whoever uses them there, and so do licence texts, which hold for those models.
    - All else below `release/`, `source/` and `recipe/` belongs to one release alone and is deleted; the history keeps
      it.
    - Files with the weights of a graph that this release replaces are deleted: no graph reads them any more.
    """
    kept = dict(_carried_over(bundle, target)) | dict(_taken_over(bundle, target))
    gone = set(_outlived(bundle, target))
    deleted = tuple(sorted(path for path in gone if target.owns(path) and path not in target.frozen()))
    kept = {path: each for path, each in kept.items() if path not in gone}
    others = tuple(
        path
        for path in sorted(target.tree)
        if path.startswith(OWN_FOLDERS) and path not in {*bundle.files, *deleted, *kept, MANIFEST}
    )
    return bundle.listing(kept, others, deleted)


def _taken_over(bundle: Bundle, target: Target) -> Iterator[tuple[str, Kept]]:
    """Frozen files that this release describes and does not bring along."""
    for artifact in bundle.release.published:
        for path, (size, sha256) in described(artifact).items() if artifact.frozen else ():
            there = target.tree.get(path)
            if path not in bundle.files and there is not None:
                blob = "" if there.sha256 else there.blob
                yield path, Kept(Ids(size, sha256, blob), frozen=True, published=path in target.published())


def _carried_over(bundle: Bundle, target: Target) -> Iterator[tuple[str, Kept]]:
    """What earlier releases brought and left; and what was ever frozen, even if this release has it unfrozen."""
    frozen, published = target.frozen(), target.published()
    again = {path for artifact in bundle.release.published if artifact.frozen for path in described(artifact)}
    recorded = {path: each.ids for path, each in target.manifest.kept.items()} if target.manifest else {}
    for path, ids in (recorded | published).items():
        if path not in bundle.files or (path in frozen and path not in again):
            yield path, Kept(ids, frozen=path in frozen, published=path in published)


def _outlived(bundle: Bundle, target: Target) -> Iterator[str]:
    """Files of the last release that mean nothing without it."""
    brought = target.manifest.files if target.manifest is not None else {}
    replaced = {
        path
        for artifact in (target.release.published if target.release else ())
        if artifact.file in bundle.files and bundle.files[artifact.file].sha256 != artifact.sha256
        for path in paths_of(artifact)[1:]
    }
    papers = {license_.file for license_ in (target.release.licenses if target.release else ())}
    for path in brought:
        own = path.startswith(OWN_FOLDERS) and path not in papers
        if path not in bundle.files and (own or path in replaced):
            yield path


def described(artifact: Artifact) -> dict[str, tuple[int, str]]:
    """Size and sha256 of each file of an artifact, by path."""
    files = {artifact.file: (artifact.bytes, artifact.sha256)}
    return files | {weights.path: (weights.bytes, weights.sha256) for weights in artifact.weights}


def check_overwrites(hub: Hub, target: Target, bundle: Bundle, changed: list[str], mode: Mode) -> None:
    """Refuses to replace what must stay: frozen files, and files that are not the bot's own, unchanged.

    README.md may be replaced in a pull request, where a person sees it.

    Args:
        hub: Where the target is.
        target: What it holds.
        bundle: What is to be published.
        changed: The files of the bundle that the target lacks or holds with other content.
        mode: How it is to be published.

    Raises:
        OverwriteError: With the path, and its old and new sha256.
    """
    release, last = bundle.release, target.release
    if last is not None and last.recipe != release.recipe:
        raise OverwriteError(
            f"is the target of the recipe {last.recipe}, and this is {release.recipe}.",
            where=target.repo,
            remedy="Give each recipe a target of its own.",
        )
    _check_frozen(target, bundle)
    _check_absent(hub, target, bundle)
    declared = {path for artifact in release.published if artifact.frozen for path in described(artifact)}
    beside = {
        path for artifact in release.published if artifact.on_change == "new_name" for path in described(artifact)
    }
    for path in changed:
        if path not in target.tree:
            continue
        if path in declared:
            _refuse(hub, target, bundle, path, _FROZEN)
        if path == CARD and mode == "pull-request":
            continue
        if not target.owns(path):
            _refuse(hub, target, bundle, path, _whose(target, path))
        if path in beside:
            _refuse(hub, target, bundle, path, "was published since the release got its names, and must stay.")


_FROZEN = "is frozen: others rely on its bytes."


def _check_frozen(target: Target, bundle: Bundle) -> None:
    """What was ever frozen keeps its bytes, even where a person has deleted it since."""
    frozen = target.frozen()
    news = {path: ids.sha256 for path, ids in bundle.files.items()}
    for artifact in bundle.release.published:
        news |= {path: sha256 for path, (_, sha256) in described(artifact).items()}
    for path, sha256 in news.items():
        if frozen.get(path, sha256) != sha256:
            raise _refusal(target, path, _FROZEN, frozen[path], sha256)


def _check_absent(hub: Hub, target: Target, bundle: Bundle) -> None:
    """A frozen file that this release describes and does not bring along has to be there, as described."""
    for artifact in bundle.release.published:
        for path, (_, sha256) in described(artifact).items() if artifact.frozen else ():
            if path in bundle.files:
                continue
            found = sha256_at(hub, target, path) if path in target.tree else ""
            if found != sha256:
                raise OverwriteError(
                    f"is described as frozen with the sha256 {sha256}, and the target "
                    + (f"holds {found}." if found else "does not hold it."),
                    where=f"{target.repo}: {path}",
                    remedy="Correct the sha256 in the recipe, or restore the file.",
                )


def sha256_at(hub: Hub, target: Target, path: str) -> str:
    """The sha256 of a file at the target's head; a file that lies in git itself is small, and read."""
    return target.tree[path].sha256 or ids_of_bytes(hub.read_bytes(target.repo, target.head, path)).sha256


def _whose(target: Target, path: str) -> str:
    if path == Release.PATH and target.problem:
        return f"is a record that this bot cannot read ({target.problem}), so what it published before is not known."
    if path in target.published():
        return "was changed by somebody else since the bot published it."
    return "was not published by the bot."


def _refuse(hub: Hub, target: Target, bundle: Bundle, path: str, why: str) -> None:
    raise _refusal(target, path, why, sha256_at(hub, target, path), bundle.files[path].sha256)


def _refusal(target: Target, path: str, why: str, old: str, new: str) -> OverwriteError:
    remedy = "Give the artifact another file name, or restore the file."
    if path == CARD:
        remedy = "Publish by pull request (`open: pull-request`), where a person sees what changes."
    return OverwriteError(
        f"{why} Its sha256 is {old}; the release would make it {new}. Nothing was published.",
        where=f"{target.repo}: {path}",
        remedy=remedy,
    )
