"""The other recipes that export from torch, from a checkpoint as upstream lays it out to a verified release."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_export_recipes import TEXTS, copy_recipe, published, sidecar_of, verified, wav

from bot.records import Release
from tests.hub_server import start_hub
from tests.world import ROOT, World, picture

sys.path.insert(0, str(ROOT / "tools"))

import make_random_checkpoint
import make_random_torch

PROVIDERS = "providers: {cpu: required, cuda: optional}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Hub for all, with the samples that the recipes measure on."""
    import numpy as np

    folder = tmp_path_factory.mktemp("more-exports")
    hub = start_hub(folder / "hub")
    made = World(folder, hub)
    pictures = {f"images/{number}.png": picture(number) for number in range(2)}
    sounds = {f"sounds/{number}.wav": wav(np.sin(np.arange(16_000) * number) * 0.3) for number in (1, 2)}
    for repository, files in (("local-user/face-photographs", pictures), ("local-user/speech", sounds)):
        listed = "".join(json.dumps({"file_name": name}) + "\n" for name in files)
        made.upload(repository, {**files, "metadata.jsonl": listed.encode()}, repo_type="dataset")
    made.upload("local-user/declaration", {"texts.txt": "\n".join(TEXTS).encode()}, repo_type="dataset")
    yield made
    hub.stop()


def recipe(world: World, name: str, license_id: str, written: list[Path], **changes: str) -> None:
    """The repository's recipe, with little to measure, and its upstream."""
    text = (ROOT / "recipes" / name / "recipe.yaml").read_text("utf-8")
    upstream = text.split("upstream:\n  repo: ")[1].splitlines()[0]
    card = f"---\nlicense: {license_id}\n---\n# A network\n"
    world.upload(upstream, {**{path.name: path.read_bytes() for path in written}, "README.md": card.encode()})
    count = text.split("count: ")[1].split("}")[0]
    copy_recipe(world, name, {PROVIDERS: "providers: {}", f"count: {count}": "count: 2", **changes})


def released(world: World, name: str) -> tuple[Release, Path]:
    said, folder = published(world, name)
    release = Release.from_json((folder / "release.json").read_bytes())
    verified(world, release.target, f"refs/pr/{said['publication']['number']}")
    assert release.random_weights
    return release, folder


def checkpoint(world: World, architecture: str) -> list[Path]:
    return [make_random_checkpoint.write(architecture, "tiny", 0, world.folder / architecture)]


@pytest.mark.parametrize(
    ("name", "architecture", "license_id", "widths"),
    [("emotieffnet-b0", "emotieffnet", "apache-2.0", [160]), ("farl-b16-ep64", "farl", "mit", [16])],
)
def test_networks_of_pictures(world: World, name: str, architecture: str, license_id: str, widths: list[int]) -> None:
    recipe(world, name, license_id, checkpoint(world, architecture))
    release, folder = released(world, name)
    assert {artifact.name for artifact in release.published} == {"fp32", "fp16"}
    assert sidecar_of(folder, release.artifact("fp32").file)["output_dims"] == widths


def test_emotion2vec(world: World) -> None:
    recipe(world, "emotion2vec-plus", "other", checkpoint(world, "emotion2vec"), **{"seconds: 2": "seconds: 1"})
    release, folder = released(world, "emotion2vec-plus")
    assert {artifact.name for artifact in release.published} == {"fp32", "fp16"}
    sidecar = sidecar_of(folder, release.artifact("fp32").file)
    assert sidecar["sample_rates"] == [16_000] and sidecar["frame_rates"] == [50.0]
    assert "FunASR Model Open Source License" in (folder / "MODEL_LICENSE").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "architecture", "license_id"),
    [("mmbert-base", "modernbert", "mit"), ("xlm-roberta-mpnet", "xlm_roberta", "apache-2.0")],
)
def test_encoders_of_text(world: World, name: str, architecture: str, license_id: str) -> None:
    folder = world.folder / architecture
    written = make_random_torch.write(architecture, "tiny", 0, folder)
    written.append(make_random_torch.write_tokenizer(folder / "tokenizer.json"))
    recipe(world, name, license_id, written, **{"max_length: 128": "max_length: 12"})
    release, published_folder = released(world, name)
    sidecar = sidecar_of(published_folder, release.artifact("fp32").file)
    assert sidecar["tokenizers"][0]["file"] == "tokenizer.json" and sidecar["output_dims"] == [32]
    assert (published_folder / "source" / "tokenizer.json").is_file()


@pytest.mark.usefixtures("linmult")
def test_linmult_says_which_python_it_takes(world: World) -> None:
    """The library asks for Python 3.12; in an older one the recipe says so before anything is fetched."""
    recipe(world, "linmult", "mit", checkpoint(world, "linmult"))
    if sys.version_info >= (3, 12):
        release, _ = released(world, "linmult")
        assert release.published
        return
    done = world.bot("publish", "linmult")
    assert done.returncode == 2, done.stderr
    assert f"Python >=3.12 is required; this is {platform.python_version()}" in done.stderr
    assert "Install such a Python" in done.stderr


@pytest.fixture(scope="module")
def linmult() -> Iterator[Any]:
    """The library, to make a checkpoint with."""
    sys.path.insert(0, str(ROOT / "tests" / "graph" / "export"))
    from packages import default_cache, fetch_archive
    from stand_ins import LINMULT, wheel_on_path

    with wheel_on_path(fetch_archive(LINMULT, default_cache())):
        yield
