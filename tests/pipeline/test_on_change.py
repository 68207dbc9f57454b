"""Upstream changes after a release: the new bytes go beside the old ones, or in their place, as the recipe says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnxruntime
import pytest

from bot.errors import VerificationError
from bot.hub.client import Hub
from bot.hub.pins import show
from bot.hub.verify import require, verify
from bot.records import Release
from tests.pipeline.in_process import hub_of, publish_here
from tests.world import RECIPE, TARGET, UPSTREAM, World, network

FIRST, SECOND = "network-fp16.onnx", "network-second.onnx"
WEIGHTS = "weights.bin"
BOTH_WAYS = RECIPE.replace("file: network-second.onnx,", "file: network-second.onnx, on_change: replace,").replace(
    "steps: [float16]", "steps: [float16, weights_beside]"
)
CODE = """\
import onnx
from pydantic import BaseModel


class Nothing(BaseModel):
    pass


def weights_beside(source, output, parameters: Nothing, context):
    model = onnx.load(source)
    onnx.save(model, output, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return {}
"""


def content(world: World, path: str, revision: str = "main") -> bytes:
    return Path(world.api.hf_hub_download(TARGET, path, revision=revision)).read_bytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def published(world: World, hub: Hub, number: int) -> tuple[Release, dict[str, bytes], str]:
    """Publishes, merges, and returns the release, the models on the main branch, and the card in one line."""
    publication = publish_here(world, hub).publication
    assert publication is not None and publication.number == number
    world.api.merge_pull_request(TARGET, number)
    models = [path for path in world.api.list_repo_files(TARGET) if path.endswith(".onnx")]
    card = " ".join(content(world, "README.md").decode().split())
    release = Release.from_json(content(world, "release.json"))
    return release, {path: content(world, path) for path in models}, card


def test_new_bytes_go_beside_the_old_ones_or_in_their_place(world: World) -> None:
    """Three releases: first bytes, other bytes, and the same bytes without the copy that lay beside them."""
    hub, cache = hub_of(world), world.folder / "cache"
    world.write_recipe(BOTH_WAYS).with_name("recipe.py").write_text(CODE)
    _, old, card = published(world, hub, 1)
    assert set(old) == {FIRST, SECOND} and "took the place" not in card and "comes after" not in card
    head, weights = world.api.model_info(TARGET).sha, content(world, WEIGHTS)

    world.upload(UPSTREAM, {"model.onnx": network(1)})
    two, new, card = published(world, hub, 2)
    # The first one names its weights relative to itself, so that both move into a folder.
    folder = f"network-fp16-{two.short_identity}"
    renamed = f"{folder}/{FIRST}"
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
    assert content(world, WEIGHTS) == weights != content(world, f"{folder}/{WEIGHTS}")
    onnxruntime.InferenceSession(
        world.api.snapshot_download(TARGET) + f"/{renamed}", providers=["CPUExecutionProvider"]
    )
    pins = [[pin.file for pin in each.pins] for each in show(hub, TARGET).artifacts]
    assert pins == [[renamed, f"{folder}/{WEIGHTS}"], [SECOND]]
    require(verify(hub, TARGET, "main", cache))

    # The same bytes keep the names that they have, though the release is another one: it is without a copy, which goes.
    world.write_recipe(BOTH_WAYS.replace(", copies: [config.json]", ""))
    three, same, card = published(world, hub, 3)
    assert same == new and three.identity != two.identity
    assert [artifact.file for artifact in three.artifacts] == [renamed, SECOND]
    assert three.artifact("second").before == second.before and f"commit `{head}`" in card
    assert "source/config.json" not in world.api.list_repo_files(TARGET)
    assert content(world, "source/config.json", head) == b"{}\n"

    # What an earlier release left behind is looked after still: it may go, and may not be another file.
    world.upload(TARGET, {FIRST: b"something else"}, message="Better")
    with pytest.raises(VerificationError, match=FIRST):
        require(verify(hub, TARGET, "main", cache))
    world.api.delete_file(FIRST, TARGET)
    require(verify(hub, TARGET, "main", cache))
