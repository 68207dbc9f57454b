"""A release that somebody tampered with, in every way there is: `verify` has to find it and to name it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.faulty import Scene, begin
from tests.chaos.place import Place
from tests.chaos.table import Result

OTHER = b"tampered with\n"


def _change(path: str, data: bytes = OTHER) -> Callable[[Place, str, str], None]:
    def work(place: Place, repo: str, revision: str) -> None:
        place.hand_made(repo, {path: data}, "alice", revision=revision)

    return work


def _remove(path: str) -> Callable[[Place, str, str], None]:
    def work(place: Place, repo: str, revision: str) -> None:
        from huggingface_hub import CommitOperationDelete

        place.server.api("alice").create_commit(
            repo, [CommitOperationDelete(path)], commit_message="Remove", revision=revision
        )

    return work


def _change_record(place: Place, repo: str, revision: str) -> None:
    """Another figure in a record that is as well-formed as before."""
    from bot.canonical import canonical_json

    record = json.loads(place.oracle.content(repo, revision, "release.json"))
    record["runtime"] = "onnxruntime>=9.99"
    place.hand_made(repo, {"release.json": canonical_json(record)}, "alice", revision=revision)


def _change_with_list(path: str) -> Callable[[Place, str, str], None]:
    """A file, and the list of files with it, so that the list agrees."""

    def work(place: Place, repo: str, revision: str) -> None:
        from bot.hub.bundle import MANIFEST, Manifest, ids_of_bytes

        manifest = Manifest.from_json(place.oracle.content(repo, revision, MANIFEST))
        assert manifest is not None
        forged = Manifest(manifest.identity, dict(manifest.files) | {path: ids_of_bytes(OTHER)})
        place.hand_made(repo, {path: OTHER, MANIFEST: forged.to_json()}, "alice", revision=revision)

    return work


def _change_card_everywhere(place: Place, repo: str, revision: str) -> None:
    """The card, the copy of it as it was rendered, and the list of files: all of them agree."""
    from bot.hub.bundle import CARD, CARD_AS_RENDERED, MANIFEST, Manifest, ids_of_bytes

    manifest = Manifest.from_json(place.oracle.content(repo, revision, MANIFEST))
    assert manifest is not None
    card = b"---\nlicense: mit\n---\n# Other words\n"
    listed = dict(manifest.files) | {path: ids_of_bytes(card) for path in (CARD, CARD_AS_RENDERED)}
    forged = Manifest(manifest.identity, listed).to_json()
    message = {"commit_description": f"Release-Id: {manifest.identity}\nRecipe: faceage"}
    files = {CARD: card, CARD_AS_RENDERED: card, MANIFEST: forged}
    place.hand_made(repo, files, "alice", revision=revision, **message)


def _swap_object(place: Place, repo: str, revision: str) -> None:
    """The bytes of a large file in the Hub's own storage, under the id of the old ones."""
    oid, size = place.oracle.snapshot(repo).tree.get("model.onnx", ("", "", 0))[1:]
    if not oid:
        pulls = place.oracle.snapshot(repo).pulls
        oid, size = next(tree["model.onnx"][1:] for _, tree in pulls.values())
    (stored,) = [path for path in Path(place.server.folder).rglob(f"*{oid}*") if path.stat().st_size == size]
    stored.chmod(0o600)
    stored.write_bytes(bytes(size))


TAMPERINGS: dict[str, tuple[str, Callable[[Place, str, str], None]]] = {
    "model changed": ("model.onnx", _change("model.onnx")),
    "model removed": ("model.onnx", _remove("model.onnx")),
    "large file swapped in storage": ("model.onnx", _swap_object),
    "model and list changed": ("model.onnx", _change_with_list("model.onnx")),
    "licence changed": ("LICENSE", _change("LICENSE")),
    "licence removed": ("LICENSE", _remove("LICENSE")),
    "licence and list changed": ("LICENSE", _change_with_list("LICENSE")),
    "card changed": ("README.md", _change("README.md", b"---\nlicense: mit\n---\n# Other words\n")),
    "card and list changed": ("README.md", _change_with_list("README.md")),
    "card changed everywhere": ("release/files.json", _change_card_everywhere),
    "card removed": ("README.md", _remove("README.md")),
    "card as rendered changed": ("release/card.md", _change("release/card.md")),
    "record changed": ("release.json", _change_record),
    "record no record any more": ("release.json", _change("release.json", b"{}")),
    "record removed": ("release.json", _remove("release.json")),
    "list of files changed": ("release/files.json", _change("release/files.json")),
    "list of files removed": ("release/files.json", _remove("release/files.json")),
    "recipe changed": ("release/recipe.yaml", _change("release/recipe.yaml")),
    "copy changed": ("source/config.json", _change("source/config.json")),
    "copy removed": ("source/config.json", _remove("source/config.json")),
    "file added under source/": ("source/evil.py", _change("source/evil.py")),
    "file added under release/": ("release/evil.json", _change("release/evil.json")),
}


def carry_out(place: Place, kind: str, mode: str) -> Result:
    """One release that is right, tampered with, and verified."""
    name, group = f"tamper/{kind}/{mode}", "verify | tampering is found and named, exit code 8"
    repo, case, _ = begin(place, Scene(mode, "lfs", "fresh"))
    ran = place.run(case, mode)
    revision = "main" if mode == "commit" else "refs/pr/1"
    if ran.error is not None or (error := _verify(place, repo, revision)) is not None:
        return Result(name, group, f"a release that nobody touched does not pass: {ran.error or error}")
    path, work = TAMPERINGS[kind]
    work(place, repo, revision)
    error = _verify(place, repo, revision)
    code, text = getattr(error, "exit_code", None), str(error or "")
    if error is None:
        return Result(name, group, "it passes", "missed")
    if code != 8 or path not in text:
        return Result(name, group, f"exit code {code}, and {path} is {'' if path in text else 'not '}named", "", text)
    return Result(name, group, "", "found", text)


def _verify(place: Place, repo: str, revision: str) -> Any:
    from bot.hub.verify import require, verify

    try:
        require(verify(place.hub(), repo, revision, place.scratch()))
    except Exception as error:
        return error
    return None
