"""A repository that was made by hand is taken over: its pinned file is measured and described, and never touched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bot.errors import VerificationError
from bot.hub.pins import show
from bot.hub.verify import require, verify
from bot.records import Release
from tests.pipeline.in_process import hub_of, publish_here
from tests.world import RECIPE, TARGET, UPSTREAM, World, network

PINNED = "network-fp16.onnx"
README = b"---\nlicense: mit\n---\n# By hand\n"
SCRIPT = b"print('convert')\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def taking_over(digest: str, *, steps: str = "", limit: str = "0.05") -> str:
    """The usual recipe, whose first artifact lies in the target already."""
    text = RECIPE.replace(
        "fp16: {file: network-fp16.onnx, steps: [float16]}", f"fp16: {{file: {PINNED}, frozen: {digest}{steps}}}"
    )
    return text.replace(
        "  fp16: {score.mean_absolute: {max: 0.05}}", f"  fp16: {{score.mean_absolute: {{max: {limit}}}}}"
    )


@pytest.fixture(scope="module")
def by_hand() -> bytes:
    """What a person made of the source: its weights went through half precision, so it answers a little otherwise."""
    model = onnx.load_from_string(network())
    for tensor in model.graph.initializer:
        half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half.astype(np.float32), tensor.name))
    return bytes(model.SerializeToString())


def take_over(world: World, model: bytes, **more: str) -> None:
    files = {PINNED: model, "README.md": README, "scripts/convert.py": SCRIPT, "source/notes.txt": b"mine\n"}
    world.upload(TARGET, files)
    world.write_recipe(taking_over(sha256(model), **more))


def content(world: World, path: str, revision: str = "main") -> bytes:
    return Path(world.api.hf_hub_download(TARGET, path, revision=revision)).read_bytes()


def release_at(world: World, revision: str) -> Release:
    return Release.from_json(content(world, "release.json", revision))


def test_a_repository_made_by_hand_is_taken_over(world: World, by_hand: bytes) -> None:
    hub = hub_of(world)
    take_over(world, by_hand)
    first = publish_here(world, hub).publication
    assert first is not None and first.kind == "pull-request"
    release = release_at(world, "refs/pr/1")
    pinned = release.artifact("fp16")
    assert (pinned.sha256, pinned.bytes, pinned.taken_over, pinned.frozen) == (
        sha256(by_hand),
        len(by_hand),
        True,
        True,
    )
    assert pinned.steps == () and pinned.built_with == {}
    (figure,) = [m for m in release.measurements_of("fp16") if m.key == "score.mean_absolute" and m.provider == "cpu"]
    assert 0 < figure.value < 0.05
    # Nothing that was there is otherwise, but for the card; the pinned file was not even sent.
    for path, data in {PINNED: by_hand, "scripts/convert.py": SCRIPT, "source/notes.txt": b"mine\n"}.items():
        assert content(world, path, "refs/pr/1") == data
    listed = json.loads(content(world, "release/files.json", "refs/pr/1"))
    assert PINNED not in [row["path"] for row in listed["files"]]
    assert [(row["path"], row["frozen"], row["published"]) for row in listed["kept"]] == [(PINNED, True, False)]
    card = " ".join(content(world, "README.md", "refs/pr/1").decode().split())
    assert "was made by hand and was here before" in card and sha256(by_hand) in card
    statement = json.loads(content(world, "release/provenance.json", "refs/pr/1"))
    assert [subject["name"] for subject in statement["subject"]] == ["network-second.onnx"]
    world.api.merge_pull_request(TARGET, 1)
    again = publish_here(world, hub).publication
    assert again is not None and again.kind == "nothing"
    require(verify(hub, TARGET, "main", world.folder / "cache"))
    assert show(hub, TARGET).artifacts[0].pins[0].sha256 == sha256(by_hand)

    # A person who changes the pinned file is found, by whoever verifies and by the next release.
    world.upload(TARGET, {PINNED: b"another file"}, message="Better weights")
    tampered = world.bot("verify", TARGET)
    assert tampered.returncode == 8 and PINNED in tampered.stderr and sha256(b"another file") in tampered.stderr
    world.upload(UPSTREAM, {"config.json": b"{ }\n"})
    refused = world.bot("publish", "network")
    assert refused.returncode == 6
    for word in (PINNED, sha256(by_hand), sha256(b"another file"), "recipe.yaml:"):
        assert word in refused.stderr
    assert len(world.pull_requests()) == 1


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_does_not_lie_there_stops_before_anything_is_built(world: World, there: bool) -> None:
    digest = "a" * 64
    if there:
        world.upload(TARGET, {"README.md": README})
    world.write_recipe(taking_over(digest))
    done = world.bot("publish", "network")
    assert done.returncode == 6 and digest in done.stderr and f"{TARGET}: {PINNED}" in done.stderr
    assert ("no such file" if there else "no such repository") in done.stderr
    assert "build" not in done.stderr


def beside_its_weights(model: bytes, folder: Path) -> tuple[bytes, bytes]:
    """The same model in two files: the graph, and its weights in `weights.bin`."""
    onnx.save(
        onnx.load_from_string(model),
        folder / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return (folder / "model.onnx").read_bytes(), (folder / "weights.bin").read_bytes()


def test_a_file_that_fails_a_gate_stays_and_the_failure_is_said(
    world: World, by_hand: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Here its weights lie in a file beside it, which is taken over with it."""
    hub = hub_of(world)
    graph, weights = beside_its_weights(by_hand, tmp_path_factory.mktemp("model"))
    world.upload(TARGET, {"weights.bin": weights})
    take_over(world, graph, limit="1e-9", steps=", steps: [float16, drop_cast_round_trips]")
    outcome = publish_here(world, hub)
    release = release_at(world, "refs/pr/1")
    assert release.withheld == () and {artifact.name for artifact in release.published} == {"fp16", "second"}
    failed = [verdict for verdict in release.verdicts if verdict.status == "failed"]
    assert failed and {verdict.artifact for verdict in failed} == {"fp16"} and not any(each.required for each in failed)
    card = " ".join(content(world, "README.md", "refs/pr/1").decode().split())
    assert "does not pass what withholds a file that is made here" in card and "the limit is ≤ 1e-09" in card
    assert "Nobody ran its steps again" in card and "casts" in card.lower()
    assert [step.name for step in release.artifact("fp16").steps] == ["float16", "drop_cast_round_trips"]
    assert outcome.review is not None
    assert "failed, not required" in outcome.review.with_name("summary.md").read_text()
    assert content(world, PINNED, "refs/pr/1") == graph
    (beside,) = release.artifact("fp16").weights
    assert (beside.path, beside.sha256) == ("weights.bin", sha256(weights))
    world.upload(TARGET, {"weights.bin": weights[::-1]}, message="Better weights")
    world.api.merge_pull_request(TARGET, 1)
    with pytest.raises(VerificationError, match=r"weights\.bin"):
        require(verify(hub, TARGET, "main", world.folder / "cache"))
