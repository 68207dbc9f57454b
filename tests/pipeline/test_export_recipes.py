"""The recipes that export from torch, from upstream's weights to a verified release, on tiny random networks.

The recipes are the repository's own; only where they publish, how much they measure, and how large the pictures are, is
made smaller here. Each network is built by the library that builds the real one.
"""

from __future__ import annotations

import io
import json
import re
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnxruntime
import pytest

from bot.records import Release
from tests.hub_server import HubServer, start_hub
from tests.world import ROOT, World, picture

sys.path.insert(0, str(ROOT / "tools"))

import make_random_torch

TEXTS = [
    "All human beings are born free",
    "and equal in dignity and rights.",
    "They are endowed with reason",
    "dignity",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One Hub for all, with the recipes' upstreams as far as they are put there."""
    folder = tmp_path_factory.mktemp("exports")
    hub: HubServer = start_hub(folder / "hub")
    yield World(folder, hub)
    hub.stop()


def copy_recipe(world: World, name: str, changes: dict[str, str]) -> Path:
    """One of the repository's recipes with some of its text changed, in the world's own folder."""
    source, target = ROOT / "recipes" / name, world.recipes / name
    for path in source.rglob("*"):
        if path.is_file() and path.name != "recipe.yaml":
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    text = (source / "recipe.yaml").read_text("utf-8")
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    (target / "recipe.yaml").write_text(text, "utf-8")
    return target / "recipe.yaml"


def upstream(world: World, repository: str, architecture: str, license_id: str) -> dict[str, bytes]:
    """A tiny network of random weights in the repository that a recipe reads."""
    folder = world.folder / architecture
    files = {path.name: path.read_bytes() for path in make_random_torch.write(architecture, "tiny", 0, folder)}
    if architecture == "bert":
        files["tokenizer.json"] = make_random_torch.write_tokenizer(folder / "tokenizer.json").read_bytes()
    world.upload(repository, {**files, "README.md": f"---\nlicense: {license_id}\n---\n# A network\n".encode()})
    return files


def published(world: World, name: str) -> tuple[dict[str, Any], Path]:
    """`bot publish NAME --json`, which must succeed; what it says, and the folder that it published."""
    done = world.bot("publish", name, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(json.loads(done.stdout))
    return said, world.work / "releases" / said["identity"] / "publish"


def verified(world: World, repository: str, revision: str) -> None:
    done = world.bot("verify", f"{repository}@{revision}")
    assert done.returncode == 0, done.stderr[-3000:]


def sidecar_of(folder: Path, file: str) -> dict[str, Any]:
    """The sidecar beside a graph, which is as its schema says."""
    found = json.loads((folder / f"{file}.json").read_text("utf-8"))
    jsonschema.validate(found, json.loads((ROOT / "recipes" / "sidecar.schema.json").read_text("utf-8")))
    return dict(found)


def snippet(folder: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    return str(code)


def run_snippet(
    folder: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    """Runs the card's example as it stands; its downloads come from the folder that was published."""
    import runpy

    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file: str(folder / file))
    monkeypatch.setattr(sys, "argv", ["example.py", *arguments])
    script = folder.parent / "example.py"
    script.write_text(snippet(folder))
    return runpy.run_path(str(script)), capsys.readouterr().out


def wav(values: Any, rate: int = 16_000, channels: int = 1) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes((np.asarray(values) * 32767).astype("<i2").tobytes())
    return stream.getvalue()


def test_a_text_encoder_with_three_artifacts_and_its_tokenizer(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream(world, "local-user/all-MiniLM-L6-v2", "bert", "apache-2.0")
    texts = "\n".join(TEXTS)
    world.upload("local-user/declaration", {"texts.txt": texts.encode()}, repo_type="dataset")
    changes = {"max_length: 128": "max_length: 12", "count: 64": "count: 4", "batches: [1, 8]": "batches: [1]"}
    changes["providers: {cpu: required, cuda: optional}"] = "providers: {}"
    changes["meaning.min_cosine: {min: 0.999}"] = "meaning.min_cosine: {min: 0.99}"
    copy_recipe(world, "minilm", changes)
    said, folder = published(world, "minilm")
    target = "local-user/all-MiniLM-L6-v2-onnx"
    verified(world, target, "refs/pr/1")

    release = Release.from_json((folder / "release.json").read_bytes())
    assert release.random_weights
    assert {artifact.name for artifact in release.published} == {"fp32", "fp16", "int8"}
    first = release.artifact("fp32")
    assert first.sidecar is not None and first.sidecar.path == "all-MiniLM-L6-v2.onnx.json"
    assert {
        figure.metric: figure.value < 1e-4 for figure in release.measurements_of("fp32") if figure.subject == "export"
    } == {
        "max_absolute": True,
        "mean_absolute": True,
        "min_cosine": False,
    }
    assert first.steps[0].report["environment"] == "the bot's own" and "torch" in first.built_with
    eight = release.artifact("int8")
    assert [step.name for step in eight.steps] == ["export_torch", "quantize_weights"]
    assert eight.signature.opsets == {"ai.onnx": 21} and eight.census.parameters["int8"] > 3000
    assert sidecar_of(folder, eight.file)["opset"] == 21
    card = " ".join((folder / "README.md").read_text("utf-8").split())
    assert "are stored as int8, with a scale for every 16 numbers of a channel, and all computing is in float" in card

    sidecar = sidecar_of(folder, first.file)
    assert sidecar["sha256"] == first.sha256 and sidecar["opset"] == 17 and sidecar["feature_names"] == ["tokens"]
    assert sidecar["masks"][0]["input"] == "attention_mask" and sidecar["normalizations"] == ["l2"]
    assert sidecar["tokenizers"][0]["file"] == "tokenizer.json"
    assert sidecar["preprocessings"]["input_ids"]["text"]["max_length"] == 12

    found, printed = run_snippet(folder, TEXTS, monkeypatch, capsys)
    assert printed == "embedding (4, 32)\n"
    # What the example feeds is what was measured on: same tokens, same answers.
    feeds = {path.stem: np.load(path) for path in world.work.glob("samples/*/*.npy")}
    answers = onnxruntime.InferenceSession(folder / first.file).run(["embedding"], feeds)[0]
    nearest = np.abs(answers[:, None] - found["outputs"]["embedding"][None]).max(axis=2).min(axis=0)
    assert nearest.max() < 1e-5

    where = ["--hub", world.hub.endpoint, "--token-file", str(world.folder / "token")]
    pins = world.bot("pins", "show", f"{target}@refs/pr/1", *where, hub=False)
    assert "all-MiniLM-L6-v2.onnx.json" in pins.stdout, pins.stderr
    again = world.bot("publish", "minilm", "--json")
    assert again.returncode == 0 and json.loads(again.stdout)["identity"] == said["identity"]


def test_a_sidecar_that_somebody_changed_does_not_verify(world: World) -> None:
    target, file = "local-user/all-MiniLM-L6-v2-onnx", "all-MiniLM-L6-v2.onnx.json"
    from huggingface_hub import CommitOperationAdd

    world.api.create_commit(target, [CommitOperationAdd(file, b"{}")], commit_message="Change it", revision="refs/pr/1")
    done = world.bot("verify", f"{target}@refs/pr/1")
    assert done.returncode == 8 and file in done.stderr


def test_wavlm_over_sounds_of_another_rate(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream(world, "microsoft/wavlm-base-plus", "wavlm", "cc-by-sa-3.0")
    rng = np.random.default_rng(0)
    tones = [np.sin(np.arange(8000) * step) * 0.3 + rng.normal(0, 0.01, 8000) for step in (0.05, 0.11, 0.2)]
    sounds = {f"sounds/{number}.wav": wav(tone, 8000) for number, tone in enumerate(tones)}
    listed = "".join(json.dumps({"file_name": name}) + "\n" for name in sounds)
    world.upload("local-user/speech", {**sounds, "metadata.jsonl": listed.encode()}, repo_type="dataset")
    changes = {"seconds: 2": "seconds: 1", "count: 10": "count: 3"}
    changes["providers: {cpu: required, cuda: optional}"] = "providers: {}"
    copy_recipe(world, "wavlm-base-plus", changes)
    _, folder = published(world, "wavlm-base-plus")
    verified(world, "local-user/wavlm-base-plus-onnx", "refs/pr/1")
    release = Release.from_json((folder / "release.json").read_bytes())
    assert [each.name for each in release.published] == ["fp32", "fp16"]
    artifact = release.artifact("fp32")
    sizes = {row["sizes"]["samples"] for row in artifact.steps[0].report["truth"]}  # type: ignore[index,union-attr,call-overload]
    assert len(sizes) >= 4
    sidecar = sidecar_of(folder, artifact.file)
    assert sidecar["sample_rates"] == [16_000] and sidecar["frame_rates"] == [50.0] and sidecar["output_dims"] == [32]
    assert sidecar["axes"][1] == {"name": "samples", "minimum": 400, "maximum": None, "multiple_of": 1}

    (folder.parent / "speech.wav").write_bytes(wav(np.sin(np.arange(16_000) * 0.05) * 0.3))
    _, printed = run_snippet(folder, [str(folder.parent / "speech.wav")], monkeypatch, capsys)
    assert printed == "features (1, 49, 32)\n"


def test_dinov2_over_pictures(world: World) -> None:
    upstream(world, "facebook/dinov2-base", "dinov2", "apache-2.0")
    pictures = {f"images/{number}.png": picture(number) for number in range(3)}
    listed = "".join(json.dumps({"file_name": name}) + "\n" for name in pictures)
    world.upload("local-user/face-photographs", {**pictures, "metadata.jsonl": listed.encode()}, repo_type="dataset")
    step = "export_torch: {architecture: dinov2, size: 224, normalize: true}"
    without = f"  fp16:\n    file: dinov2-base-fp16.onnx\n    steps: [{{{step}}}, float16]\n"
    changes = {without: "", "  fp16: {embedding.min_cosine: {min: 0.999}}\n": "", "count: 16": "count: 3"}
    changes |= {"size: 224": "size: 56", "size: [224, 224]": "size: [56, 56]"}
    changes |= {"providers: {cpu: required, cuda: optional}": "providers: {}"}
    copy_recipe(world, "dinov2-base", changes)
    _, folder = published(world, "dinov2-base")
    verified(world, "local-user/dinov2-base-onnx", "refs/pr/1")
    release = Release.from_json((folder / "release.json").read_bytes())
    assert [artifact.name for artifact in release.published] == ["fp32", "fused"]
    for artifact in release.published:
        sidecar = sidecar_of(folder, artifact.file)
        assert sidecar["normalizations"] == ["l2"] and sidecar["sha256"] == artifact.sha256
        assert sidecar["preprocessings"]["pixel_values"]["image"]["size"] == [56, 56]
    assert_fused(release)


def assert_fused(release: Release) -> None:
    """The fused artifact is one, of the same signature, and was judged as it computes in half precision."""
    plain, fused = release.artifact("fp32"), release.artifact("fused")
    assert [step.name for step in fused.steps] == ["export_torch", "rebuild"]
    assert fused.signature.inputs == plain.signature.inputs and fused.signature.outputs == plain.signature.outputs
    assert 3 * fused.census.nodes < plain.census.nodes and fused.bytes < 0.7 * plain.bytes
    assert {figure.provider for figure in release.measurements_of("fused")} >= {"cpu", "fp16-emulation"}
