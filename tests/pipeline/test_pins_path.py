"""Pins over the whole path: published, merged, said on the pull request, checked, moved to the next release."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.world import TARGET, UPSTREAM, World, network


def pins(world: World, *arguments: str, **more: Any) -> Any:
    """One `bot pins` command against this Hub."""
    where = ("--hub", world.hub.endpoint)
    return world.bot("pins", *arguments, *where, hub=False, **more)


def comments(world: World) -> list[str]:
    events = world.api.get_discussion_details(TARGET, 1).events
    return [event.content for event in events if event.type == "comment"]


def test_pins_from_release_to_release(world: World, tmp_path: Path) -> None:
    world.publish()
    before = pins(world, "show", f"{TARGET}@refs/pr/1")
    assert before.returncode == 0 and "is not merged" in before.stderr
    said = len(comments(world))
    world.publish()
    assert len(comments(world)) == said
    world.api.merge_pull_request(TARGET, 1)

    # A dry run says nothing; the first run after the merge says the pins, and no other does.
    assert world.bot("publish", "network", "--dry-run").returncode == 0
    assert len(comments(world)) == said
    world.hub.fault("status", f"*/{TARGET}/discussions/1/comment", "POST", status=500)
    failed = world.bot("publish", "network")
    assert failed.returncode == 0 and "the pins could not be said" in failed.stderr
    world.hub.clear_faults()
    world.publish()
    world.publish()
    (comment,) = comments(world)[said:]

    shown = pins(world, "show", TARGET, "--json")
    assert shown.returncode == 0 and shown.stderr == ""
    answer = json.loads(shown.stdout)
    blocks = [artifact["pins"][0] for artifact in answer["artifacts"]]
    assert [block["file"] for block in blocks] == ["network-fp16.onnx", "network-second.onnx"]
    for block, artifact in zip(blocks, answer["artifacts"], strict=True):
        assert json.dumps(block, indent=2) in comment
        url = f"{world.hub.endpoint}/{block['repo']}/resolve/{block['revision']}/{block['file']}"
        data = urllib.request.urlopen(url, timeout=10).read()
        assert hashlib.sha256(data).hexdigest() == block["sha256"] and len(data) == artifact["bytes"]
        assert artifact["measured_on"] == ["cpu"] and artifact["not_on"] == []
        assert [tensor["name"] for tensor in artifact["inputs"]] == ["images"]
    full = pins(world, "show", TARGET, "--full").stdout
    assert json.dumps(blocks[0], indent=2) in full and "input images: float32 [N, 3, 32, 32]" in full

    manifest = tmp_path / "exports.json"
    text = json.dumps({"version": 3, "exports": {"network": blocks[0]}}, indent=4) + "\n"
    manifest.write_text(text)
    secret = {"HF_TOKEN": "hf_secret", "HF_ENDPOINT": world.hub.endpoint}
    checked = pins(world, "check", str(manifest), "--json", env=secret)
    assert checked.returncode == 0, checked.stderr
    (found,) = json.loads(checked.stdout)["pins"]
    assert (found["status"], found["newest"], found["key"]) == ("ok", True, "exports.network")

    world.upload(UPSTREAM, {"model.onnx": network(7)})
    number = world.publish()["publication"]["number"]
    assert pins(world, "bump", str(manifest)).returncode == 0 and manifest.read_text() == text
    world.api.merge_pull_request(TARGET, number)
    plan = pins(world, "bump", str(manifest), "--dry-run", "--runtime", "onnxruntime==1.22")
    assert plan.returncode == 0 and "would be moved" in plan.stdout and manifest.read_text() == text
    moved = pins(world, "bump", str(manifest), "--runtime", "onnxruntime==1.22")
    assert moved.returncode == 0, moved.stderr
    new = json.loads(pins(world, "show", TARGET, "--json").stdout)["artifacts"][0]["pins"][0]
    expected = text
    for name in ("revision", "sha256", "file"):
        expected = expected.replace(blocks[0][name], new[name])
    assert manifest.read_text() == expected and new["sha256"] != blocks[0]["sha256"]

    manifest.write_text(expected.replace(new["sha256"], "0" * 64))
    broken = pins(world, "check", str(manifest))
    assert broken.returncode == 8 and "Traceback" not in broken.stderr
    assert "exports.json:8: exports.network.sha256" in broken.stderr.replace("\n", "")
