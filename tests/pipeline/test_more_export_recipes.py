"""The other recipes that export from torch, from a checkpoint as upstream lays it out to a verified release; and a clip
that goes through their graphs without torch."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_export_recipes import TEXTS, assert_fused, copy_recipe, published, sidecar_of, verified, wav

from bot.records import Release
from tests.hub_server import start_hub
from tests.world import ROOT, World, picture

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests" / "graph" / "export"))

import make_random_checkpoint
import make_random_torch
from packages import default_cache, fetch_archive
from stand_ins import LINMULT

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

PROVIDERS = "providers: {cpu: required, cuda: optional}"
FEATURES = {"emotion2vec": 32, "farl": 16, "xlm_roberta": 32}
"""What the regressor reads: a sound, pictures and a text, as wide as the other recipes' tiny networks give them."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Hub for all, with the samples that the recipes measure on."""
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


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of packages with the library linmult: pure Python, which runs on older versions of it than it asks for.

    Such a wheel is installed by unpacking it; that it is the one, its hash tells.
    """
    folder = tmp_path_factory.mktemp("linmult") / "site-packages"
    with zipfile.ZipFile(fetch_archive(LINMULT, CACHE)) as wheel:
        wheel.extractall(folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


# ---- the recipes, each published once


def checkpoint(folder: Path, architecture: str) -> list[Path]:
    return [make_random_checkpoint.write(architecture, "tiny", 0, folder)]


def of_transformers(folder: Path, architecture: str) -> list[Path]:
    written = make_random_torch.write(architecture, "tiny", 0, folder)
    return [*written, make_random_torch.write_tokenizer(folder / "tokenizer.json")]


def regressor(folder: Path, architecture: str) -> list[Path]:
    import torch

    torch.manual_seed(0)
    made = make_random_checkpoint.linmult("tiny", FEATURES)
    folder.mkdir()
    path = folder / make_random_checkpoint.MAKERS[architecture][0]
    torch.save({"random_weights": "true", **made}, path)
    return [path]


@dataclass(frozen=True)
class Smaller:
    """One of the repository's recipes with a tiny network, what its text is changed in, and whether it is timed."""

    architecture: str
    license_id: str
    make: Callable[[Path, str], list[Path]] = checkpoint
    changes: dict[str, str] = field(default_factory=dict)
    timed: bool = False


SERIES = "".join(f"  x_{place}: {{tensor: {{shape: [9, {width}]}}}}\n" for place, width in enumerate(FEATURES.values()))
MASKS = "".join(
    f"  mask_{place}: {{tensor: {{shape: [9], values: mask, dtype: bool}}}}\n" for place in range(len(FEATURES))
)
TWO_SERIES = """\
  x_0: {tensor: {shape: [60, 768]}}
  x_1: {tensor: {shape: [40, 768]}}
  mask_0: {tensor: {shape: [60], values: mask, dtype: bool}}
  mask_1: {tensor: {shape: [40], values: mask, dtype: bool}}
"""
AT_HAND = {
    'python: ">=3.12"': f'python: ">=3.{min(sys.version_info.minor, 12)}"',
    "pyyaml==6.0.3": f"pyyaml=={version('pyyaml')}",
}
"""The Python and the YAML reader that the tests run with: the environment of the recipe's own lock is of gigabytes."""

RECIPES = {
    "emotieffnet-b0": Smaller("emotieffnet", "apache-2.0"),
    "farl-b16-ep64": Smaller("farl", "mit"),
    "emotion2vec-plus": Smaller("emotion2vec", "other", changes={"seconds: 2": "seconds: 1"}),
    "mmbert-base": Smaller("modernbert", "mit", of_transformers, {"max_length: 128": "max_length: 12"}),
    "xlm-roberta-mpnet": Smaller("xlm_roberta", "apache-2.0", of_transformers, {"max_length: 128": "max_length: 12"}),
    "linmult": Smaller("linmult", "mit", regressor, {TWO_SERIES: SERIES + MASKS, **AT_HAND}, timed=True),
}

Releases = Callable[[str], tuple[Release, Path]]


@pytest.fixture(scope="module")
def releases(world: World, packages: Path) -> Releases:
    """Publishes a recipe that was not published yet, and gives its release and the folder that was published."""

    @cache
    def released(name: str) -> tuple[Release, Path]:
        with pytest.MonkeyPatch.context() as patch:
            if name == "linmult":
                patch.setenv("PYTHONPATH", str(packages))
            place_recipe(world, name)
            said, folder = published(world, name)
            release = Release.from_json((folder / "release.json").read_bytes())
            verified(world, release.target, f"refs/pr/{said['publication']['number']}")
        assert release.random_weights
        return release, folder

    return released


def place_recipe(world: World, name: str) -> None:
    """The repository's recipe, with little to measure, and its upstream."""
    smaller = RECIPES[name]
    text = (ROOT / "recipes" / name / "recipe.yaml").read_text("utf-8")
    upstream = text.split("upstream:\n  repo: ")[1].splitlines()[0]
    card = f"---\nlicense: {smaller.license_id}\n---\n# A network\n"
    written = smaller.make(world.folder / smaller.architecture, smaller.architecture)
    world.upload(upstream, {**{path.name: path.read_bytes() for path in written}, "README.md": card.encode()})
    count = text.split("count: ")[1].split("}")[0]
    timings = {"batches: [1, 4]": "batches: [1]"} if smaller.timed else {PROVIDERS: "providers: {}"}
    copy_recipe(world, name, {**timings, f"count: {count}": "count: 2", **smaller.changes})


@pytest.mark.parametrize(("name", "widths"), [("emotieffnet-b0", [160]), ("farl-b16-ep64", [16])])
def test_networks_of_pictures(releases: Releases, name: str, widths: list[int]) -> None:
    release, folder = releases(name)
    assert {artifact.name for artifact in release.published} == {"fp32", "fp16"}
    assert sidecar_of(folder, release.artifact("fp32").file)["output_dims"] == widths


def test_emotion2vec(releases: Releases) -> None:
    release, folder = releases("emotion2vec-plus")
    assert {artifact.name for artifact in release.published} == {"fp32", "fp16"}
    sidecar = sidecar_of(folder, release.artifact("fp32").file)
    assert sidecar["sample_rates"] == [16_000] and sidecar["frame_rates"] == [50.0]
    assert "FunASR Model Open Source License" in (folder / "MODEL_LICENSE").read_text("utf-8")


@pytest.mark.parametrize("name", ["mmbert-base", "xlm-roberta-mpnet"])
def test_encoders_of_text(releases: Releases, name: str) -> None:
    release, folder = releases(name)
    sidecar = sidecar_of(folder, release.artifact("fp32").file)
    assert sidecar["tokenizers"][0]["file"] == "tokenizer.json" and sidecar["output_dims"] == [32]
    assert (folder / "source" / "tokenizer.json").is_file()
    if name == "xlm-roberta-mpnet":
        assert_fused(release)
        assert sidecar_of(folder, release.artifact("fused").file)["axes"] == sidecar["axes"]


def test_linmult(releases: Releases) -> None:
    release, folder = releases("linmult")
    (artifact,) = release.published
    assert artifact.built_with["linmult"] == LINMULT.version
    sidecar = sidecar_of(folder, artifact.file)
    assert sidecar["feature_names"] == list(FEATURES) and sidecar["input_dims"] == list(FEATURES.values())
    assert sidecar["trait_names"] == make_random_checkpoint.TRAITS
    assert [mask["whole"] for mask in sidecar["masks"]] == ["right"] * len(FEATURES)
    # Timed against torch itself, which is the source.
    (speedup,) = [figure for figure in release.measurements if figure.subject == "speedup"]
    assert speedup.against == "source:weights" and len(speedup.runs_against) >= 5


def test_linmult_says_which_python_it_takes(world: World, tmp_path: Path) -> None:
    """The library asks for Python 3.12; in an older one the recipe says so before anything is fetched."""
    mine = sys.version_info[:2]
    newer = ">=3.12" if mine < (3, 12) else f">={mine[0]}.{mine[1] + 1}"
    elsewhere = World(tmp_path, world.hub)
    copy_recipe(elsewhere, "linmult", {'python: ">=3.12"': f'python: "{newer}"'})
    # A Python that this machine happens to have besides would be taken.
    done = elsewhere.bot("publish", "linmult", env={"PATH": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert f"Python {newer} is required; this is {platform.python_version()}" in done.stderr
    assert "Install such a Python" in done.stderr


# ---- from a clip to predictions, without torch

SHUT_OUT = ("torch", "transformers", "timm", "linmult", "exordium", "safetensors", "onnx", "bot")
ALONE = f"""
import importlib, runpy, sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SHUT_OUT}:
            raise ModuleNotFoundError(name + " is shut out")

sys.meta_path.insert(0, Wall())
for name in {SHUT_OUT}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name + " can be imported")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound in stereo, pictures, and what was said, by the feature that is made of each."""
    folder = tmp_path_factory.mktemp("clip")
    time = np.arange(21_000) / 16_000
    sides = [np.sin(2 * np.pi * pitch * time) * 0.3 for pitch in (180, 310)]
    (folder / "clip.wav").write_bytes(wav(np.stack(sides, axis=1), channels=2))
    (folder / "frames").mkdir()
    for number in range(11):
        (folder / "frames" / f"{number:02}.png").write_bytes(picture(number))
    (folder / "said.txt").write_text("All human beings are born free and equal\n")
    return {"emotion2vec": folder / "clip.wav", "farl": folder / "frames", "xlm_roberta": folder / "said.txt"}


MAKERS = {"emotion2vec": "emotion2vec-plus", "farl": "farl-b16-ep64", "xlm_roberta": "xlm-roberta-mpnet"}


def predicted(releases: Releases, material: dict[str, Path]) -> dict[str, Any]:
    """What the script for consumers says, in a process that has no torch, of graphs that were published."""

    def graph(name: str) -> str:
        release, folder = releases(name)
        return str(folder / release.artifact("fp32").file)

    features = [each for name, path in material.items() for each in ("--feature", name, graph(MAKERS[name]), str(path))]
    command = [sys.executable, "-c", ALONE, str(ROOT / "tools" / "predict_clip.py"), graph("linmult"), *features]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=material["farl"])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def in_torch(world: World, material: dict[str, Path]) -> tuple[dict[str, float], dict[str, int]]:
    """The same from the checkpoints, in torch, with the preprocessing that the recipes' samples go through.

    Returns:
        The predictions, and the steps of each series.
    """
    import torch

    from bot.graph.export.interface import Files
    from bot.graph.export_torch import load_exportable
    from bot.measure.images import decode
    from bot.measure.preprocess import ImageSpec, to_tensor
    from bot.measure.sounds import AudioSpec, decode_wav, to_waveform
    from bot.measure.texts import open_tokenizer
    from bot.recipe import load_recipe

    def module(name: str) -> Any:
        recipe, folder = load_recipe(world.recipes / name), world.folder / RECIPES[name].architecture
        files = Files({key: folder / Path(path).name for key, path in recipe.plan.upstream.files.items()})
        (step, *_) = recipe.plan.artifacts["fp32"].steps
        own = {key: value for key, value in step.parameters.items() if key != "architecture"}
        return load_exportable(RECIPES[name].architecture, own, files, None).module

    sound = decode_wav(material["emotion2vec"].read_bytes())
    seconds = sound.samples.shape[1] / sound.rate
    waveform = to_waveform(sound, AudioSpec(sample_rate=16_000, seconds=seconds))
    image = load_recipe(world.recipes / "farl-b16-ep64").plan.inputs["pixel_values"].image
    assert image is not None
    spec = ImageSpec(**image.model_dump())
    frames = [to_tensor(decode(path.read_bytes()), None, spec) for path in sorted(material["farl"].iterdir())]
    series = {
        "emotion2vec": module("emotion2vec-plus")(torch.from_numpy(waveform[None]))[0],
        "farl": module("farl-b16-ep64")(torch.from_numpy(np.stack(frames))),
    }
    if "xlm_roberta" in material:
        tokenizer = open_tokenizer(str(world.folder / "xlm_roberta" / "tokenizer.json"), 12)
        tokens = tokenizer.encode(material["xlm_roberta"].read_text().strip())
        ids, mask = torch.tensor([tokens.ids]), torch.tensor([tokens.attention_mask])
        series["xlm_roberta"] = module("xlm-roberta-mpnet")(ids, mask)[0, : int(mask.sum())]
    given = [series.get(name, torch.zeros(1, width))[None] for name, width in FEATURES.items()]
    masks = [
        torch.full(rows.shape[:2], name in series, dtype=torch.bool) for name, rows in zip(FEATURES, given, strict=True)
    ]
    (traits,) = module("linmult")(*given, *masks)
    return dict(zip(make_random_checkpoint.TRAITS, traits.tolist(), strict=True)), {
        name: len(rows) for name, rows in series.items()
    }


@pytest.mark.parametrize("left_out", [(), ("xlm_roberta",)], ids=["whole", "nothing said"])
def test_a_clip_is_judged_without_torch_as_with_it(
    world: World, releases: Releases, clip: dict[str, Path], left_out: tuple[str, ...]
) -> None:
    material = {name: path for name, path in clip.items() if name not in left_out}
    found = predicted(releases, material)
    wanted, steps = in_torch(world, material)
    assert found["steps"] == steps and steps["emotion2vec"] == 65 and steps["farl"] == 11
    assert list(found["predictions"]) == list(wanted)
    assert max(abs(found["predictions"][trait] - value) for trait, value in wanted.items()) < 1e-5
    assert max(abs(value) for value in wanted.values()) > 0.1
