"""The usage snippet runs as it stands, and prepares a picture as the samples of the measurements were."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from releases import template

from bot.card.card import render_card
from bot.measure.preprocess import parse_image_spec, to_tensor
from bot.records import Release


def snippets(release: Release) -> list[str]:
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text
    return re.findall(r"```python\n(.*?)```", card, re.DOTALL)


def model_for(release: Release, name: str, folder: Path) -> Path:
    """A model with the artifact's signature: each output is the picture's mean, once per class, times its index."""
    artifact = release.artifact(name)
    (face,) = artifact.signature.inputs
    nodes, constants, outputs = [helper.make_node("ReduceMean", [face.name, "axes"], ["mean"], keepdims=0)], [], []
    constants.append(helper.make_tensor("axes", TensorProto.INT64, [3], [1, 2, 3]))
    nodes.append(helper.make_node("Reshape", ["mean", "column"], ["means"]))
    constants.append(helper.make_tensor("column", TensorProto.INT64, [2], [-1, 1]))
    for output in artifact.signature.outputs:
        classes = int(output.shape[-1])  # type: ignore[index,arg-type]
        weights = np.linspace(-0.01, 0.02, classes, dtype=np.float32)[None]
        constants.append(helper.make_tensor(f"w_{output.name}", TensorProto.FLOAT, [1, classes], weights))
        nodes.append(helper.make_node("MatMul", ["means", f"w_{output.name}"], [output.name]))
        outputs.append(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, list(output.shape or ())))
    source = helper.make_tensor_value_info(face.name, TensorProto.FLOAT, list(face.shape or ()))
    graph = helper.make_graph(nodes, "mean", [source], outputs, constants)
    path = folder / artifact.file
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def run(code: str, picture: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs a snippet as a script; its downloads come from a folder, everything else is as it stands."""
    asked = []

    def download(repo: str, file: str) -> str:
        asked.append(repo)
        return str(folder / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr(sys, "argv", ["example.py", str(picture)])
    script = folder / "example.py"
    script.write_text(code)
    return {**runpy.run_path(str(script)), "asked": asked}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (61, 47, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("name", ["seed", "two_networks"])
def test_it_runs_and_decodes(
    name: str,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    release = request.getfixturevalue(name)
    for artifact in release.published:
        model_for(release, artifact.name, tmp_path)
    (code,) = snippets(release)
    found = run(code, picture, tmp_path, monkeypatch)
    assert set(found["asked"]) == {release.target}
    assert re.fullmatch(r"age \[[\d.]+\]\ngender \['(fe)?male'\]\n", capsys.readouterr().out)


@pytest.mark.parametrize("box", [None, (10, 12, 40, 50), (0, 0, 47, 61)])
@pytest.mark.parametrize(("name", "key"), [("seed", "face"), ("two_networks", "age/images")])
def test_it_prepares_as_the_measurements_do(
    name: str,
    key: str,
    box: tuple[int, int, int, int] | None,
    picture: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    release = request.getfixturevalue(name)
    for artifact in release.published:
        model_for(release, artifact.name, tmp_path)
    prepare = run(snippets(release)[0], picture, tmp_path, monkeypatch)["prepare"]
    declared: Any = release.declared["inputs"]
    spec = parse_image_spec(key, declared[key]["image"])
    opened = Image.open(picture).convert("RGB")
    corner = None if box is None else (box[0], box[1], box[2] - box[0], box[3] - box[1])
    expected = to_tensor(opened, corner, spec)
    found = prepare(opened, (spec.size[1], spec.size[0]), box)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found[0], expected, atol=2e-5)
