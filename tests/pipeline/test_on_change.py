"""Upstream changes after a release: the new bytes go beside the old ones, or in their place, as the recipe says."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bot.records import Release
from tests.world import RECIPE, TARGET, UPSTREAM, World, network

FIRST, SECOND = "network-fp16.onnx", "network-second.onnx"
BOTH_WAYS = RECIPE.replace("file: network-second.onnx,", "file: network-second.onnx, on_change: replace,")


def content(world: World, path: str, revision: str = "main") -> bytes:
    return Path(world.api.hf_hub_download(TARGET, path, revision=revision)).read_bytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def published(world: World, number: int) -> tuple[Release, dict[str, bytes], str]:
    """Publishes, merges, and returns the release, the models on the main branch, and the card in one line."""
    assert world.publish()["publication"]["number"] == number
    world.api.merge_pull_request(TARGET, number)
    models = [path for path in world.api.list_repo_files(TARGET) if path.endswith(".onnx")]
    card = " ".join(content(world, "README.md").decode().split())
    release = Release.from_json(content(world, "release.json"))
    return release, {path: content(world, path) for path in models}, card


def test_new_bytes_go_beside_the_old_ones_or_in_their_place(world: World) -> None:
    """Three releases: first bytes, other bytes, and the same bytes without the copy that lay beside them."""
    world.write_recipe(BOTH_WAYS)
    _, old, card = published(world, 1)
    assert set(old) == {FIRST, SECOND} and "took the place" not in card and "comes after" not in card
    head = world.api.model_info(TARGET).sha

    world.upload(UPSTREAM, {"model.onnx": network(1)})
    two, new, card = published(world, 2)
    renamed = f"network-fp16-{two.short_identity}.onnx"
    assert set(new) == {FIRST, SECOND, renamed} and new[FIRST] == old[FIRST] and new[SECOND] != old[SECOND]
    fp16, second = two.artifact("fp16"), two.artifact("second")
    assert (fp16.file, sha256(new[renamed])) == (renamed, fp16.sha256)
    assert fp16.before is not None and (fp16.before.path, fp16.before.sha256) == (FIRST, sha256(old[FIRST]))
    assert second.before is not None and (second.before.path, second.before.revision) == (SECOND, head)
    # The card speaks of the new name in its table, its example and its pins, and of the old bytes.
    assert f"run('{renamed}'" in card or f'run("{renamed}"' in card
    assert f'"file": "{renamed}"' in card and f"`{FIRST}` (sha256 `{sha256(old[FIRST])}`)" in card
    assert f"`{SECOND}` took the place of a file with the sha256 `{sha256(old[SECOND])}`; commit `{head}`" in card
    assert content(world, SECOND, head) == old[SECOND], "which commit holds, for ever"
    done = world.bot("verify", TARGET)
    assert done.returncode == 0, done.stderr

    # The same bytes keep the names that they have, though the release is another one: it is without a copy, which goes.
    world.write_recipe(BOTH_WAYS.replace(", copies: [config.json]", ""))
    three, same, card = published(world, 3)
    assert same == new and three.identity != two.identity
    assert [artifact.file for artifact in three.artifacts] == [renamed, SECOND]
    assert three.artifact("second").before == second.before and f"commit `{head}`" in card
    assert "source/config.json" not in world.api.list_repo_files(TARGET)
    assert content(world, "source/config.json", head) == b"{}\n"

    # What an earlier release left behind is looked after still: it may go, and may not be another file.
    world.upload(TARGET, {FIRST: b"something else"}, message="Better")
    tampered = world.bot("verify", TARGET)
    assert tampered.returncode == 8 and FIRST in tampered.stderr
    world.api.delete_file(FIRST, TARGET)
    done = world.bot("verify", TARGET)
    assert done.returncode == 0, done.stderr
