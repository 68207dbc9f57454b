"""The recipes of INT8 detectors, from upstream to a verified pull request on an embedded Hub.

The recipes are those of the repository; only their numbers of pictures are smaller. YuNet has its real weights, YOLO11n
the architecture with random ones, small.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.records import Release
from tests.hub_server import start_hub
from tests.world import ROOT, World

sys.path.insert(0, str(ROOT / "tools"))

import make_random_yolo
import photographs
import seed_upstreams
from packages import default_cache, fetch_file

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

COUNTS = {"calibration: {count: 24": "calibration: {count: 4", "count: 40": "count: 8", "count: 32": "count: 6"}


@pytest.fixture(scope="module")
def hub_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An embedded Hub with both upstreams photographs as WIDER FACE has them, and the recipes with fewer pictures."""
    folder = tmp_path_factory.mktemp("int8")
    world = World(folder, start_hub(folder / "hub"))
    yunet = fetch_file(seed_upstreams.YUNET, seed_upstreams.YUNET_FILE, seed_upstreams.YUNET_SHA256, CACHE)
    make_random_yolo.write(folder / "yolo11n.onnx", "tiny")
    pictures = photographs.fill_up(photographs.fetch_originals(CACHE, npm=False), 40, 10)
    photographs.write_wider_face(pictures, folder / "data")
    data = {f"data/{path.name}": path for path in sorted((folder / "data").iterdir())}
    licenses = {name: ROOT / "recipes" / name / "licenses" / "LICENSE" for name in ("yunet-int8", "yolo11n-int8")}
    repositories = [
        (
            "model",
            "local-user/yunet",
            seed_upstreams.YUNET_README,
            {"face_detection_yunet_2023mar.onnx": yunet, "LICENSE": licenses["yunet-int8"]},
        ),
        (
            "model",
            "Ultralytics/YOLO11",
            seed_upstreams.YOLO_README,
            {"yolo11n.onnx": folder / "yolo11n.onnx", "LICENSE": licenses["yolo11n-int8"]},
        ),
        ("dataset", "CUHK-CSE/wider_face", seed_upstreams.WIDER_README, data),
    ]
    for kind, name, readme, files in repositories:
        seed_upstreams.push(world.api, seed_upstreams.Repository(kind, name, {"README.md": readme, **files}))
    for name in licenses:
        shutil.copytree(ROOT / "recipes" / name, world.recipes / name)
        edit(world, name, COUNTS)
    edit(world, "yolo11n-int8", {"size: [640, 640]": "size: [128, 128]"})
    yield world
    world.hub.stop()


def edit(world: World, name: str, changes: dict[str, str]) -> None:
    """Replaces words of a recipe."""
    path = world.recipes / name / "recipe.yaml"
    text = path.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    path.write_text(text)


def published(world: World, name: str) -> tuple[dict[str, Any], Release, str]:
    """Publishes a recipe: what the command says, the record that lies on the Hub, and its card."""
    done = world.bot("publish", name, "--json")
    assert done.returncode == 0, done.stderr
    outcome = dict(json.loads(done.stdout))
    target, revision = f"local-user/{name}", outcome["publication"]["revision"]
    texts = [
        Path(world.api.hf_hub_download(target, path, revision=revision)).read_text("utf-8")
        for path in (Release.PATH, "README.md")
    ]
    verified = world.bot("verify", f"{target}@{revision}")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return outcome, Release.from_json(texts[0].encode()), texts[1]


def figure(release: Release, key: str) -> float:
    (found,) = (each.value for each in release.measurements if each.key == key and each.artifact == "int8")
    return found


def test_yunet_keeps_its_faces_in_eight_bits(hub_world: World) -> None:
    _, release, card = published(hub_world, "yunet-int8")
    assert release.withheld == () and not release.random_weights
    assert figure(release, "faces.found") >= 5
    assert figure(release, "faces.kept") >= 0.95
    assert figure(release, "faces.map") > 0.98
    assert 0 <= figure(release, "faces.label_map") <= 1
    (artifact,) = release.artifacts
    source = release.source.files["network"]
    assert artifact.bytes < 0.7 * source.bytes
    assert artifact.signature.opsets == {"ai.onnx": 13} and artifact.census.parameters["int8"] > 40_000
    (step,) = artifact.steps
    report: Any = step.report
    assert report["calibration"] == {"samples": 4, "available": 4, "method": "percentile", "percentile": 99.99}
    said = " ".join(card.split())
    assert "calibrated on 4 other samples of the same data set" in said
    assert "at the left and top of a picture of that size" in said and "the pixels as they are" in said
    assert re.search(r"\| share of the detections that are kept, faces \| [\d.]+ \| at least 0.95 \|", card)
    assert "base_model_relation: quantized" in card


def test_yolo11n_survives_with_its_head_in_float_and_not_without(hub_world: World) -> None:
    _, release, card = published(hub_world, "yolo11n-int8")
    assert release.withheld == () and release.random_weights
    assert figure(release, "objects.found") >= 5 and figure(release, "objects.kept") >= 0.9
    assert "Random weights" in card and "at most 12 nodes away from an output" in " ".join(card.split())
    assert "the recipe's limits hold, so that a search found no other node" in " ".join(card.split())
    shutil.copytree(hub_world.recipes / "yolo11n-int8", hub_world.recipes / "yolo-everything")
    whole = {"{operators: [Conv], keep: auto, keep_within: 12, method: percentile, percentile: 99.99}": "{}"}
    edit(hub_world, "yolo-everything", {**whole, "repo: local-user/yolo11n-int8": "repo: local-user/yolo-everything"})
    done = hub_world.bot("publish", "yolo-everything")
    assert done.returncode == 5, done.stderr
    said = " ".join(done.stderr.split())
    assert "became exactly zero" in said and "objects.kept on cpu is 0" in said
    assert not hub_world.api.repo_exists("local-user/yolo-everything") or not any(
        path.endswith(".onnx") for path in hub_world.api.list_repo_files("local-user/yolo-everything")
    )


def test_nothing_is_published_twice(hub_world: World) -> None:
    for name in ("yunet-int8", "yolo11n-int8"):
        done = hub_world.bot("publish", name, "--json")
        assert json.loads(done.stdout)["publication"]["kind"] == "nothing", done.stderr


def refused(world: World, name: str, changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `bot build` says of a copy of the YuNet recipe with other words in it."""
    shutil.copytree(world.recipes / "yunet-int8", world.recipes / name)
    edit(world, name, {**changes, "repo: local-user/yunet-int8": f"repo: local-user/{name}"})
    return world.bot("build", name)


def test_what_is_judged_is_not_calibrated_on(hub_world: World) -> None:
    done = refused(hub_world, "overlapping", {"portion: [0, 0.4]": "portion: [0, 0.5]"})
    assert done.returncode == 2
    assert "have 0.4 to 0.5 in common" in " ".join(done.stderr.split())
    done = refused(hub_world, "without", {"calibration: {count: 4, portion: [0, 0.4]}": ""})
    assert done.returncode == 4
    assert "needs samples to calibrate on" in " ".join(done.stderr.split())
    both = {"calibration: {count: 4, portion: [0, 0.4]}": "calibration: {count: 4, judged: true}"}
    assert refused(hub_world, "both", both).returncode == 2
