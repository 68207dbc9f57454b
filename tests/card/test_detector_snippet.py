"""The code on a detector's card runs as it stands, and finds what the measurements find."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from releases import ROOT, release_of, tensor

from bot.card.card import render_card
from bot.measure.detection.heads import read
from bot.measure.detection.plan import YUNET_OUTPUTS, DetectionPlan
from bot.measure.preprocess import parse_image_spec, placement, to_tensor
from bot.recipe import load_recipe
from bot.records import Release

SIZE = 64
"""Height and width of the input here, in place of the recipes' 640."""


def outputs_of(name: str, seed: int) -> dict[str, np.ndarray]:
    """What a detector might answer to a picture of that size."""
    generator = np.random.default_rng(seed)
    if name == "yunet-int8":
        found = {}
        for output in YUNET_OUTPUTS:
            part, stride = output.split("_")
            columns = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}[part]
            low, high = (0, 1) if part in {"cls", "obj"} else (-1, 1)
            cells = (SIZE // int(stride)) ** 2
            found[output] = generator.uniform(low, high, (1, cells, columns)).astype(np.float32)
        return found
    boxes = generator.uniform(5, SIZE, (1, 4, 84))
    scores = generator.uniform(0, 1, (1, 80, 84)) ** 40
    return {"output0": np.concatenate([boxes, scores], axis=1).astype(np.float32)}


def release_with(name: str, outputs: dict[str, np.ndarray]) -> Release:
    """The recipe's release, of a small input."""
    release = release_of(load_recipe(ROOT / "recipes" / name))
    declared: Any = release.declared
    ((key, given),) = declared["inputs"].items()
    given["image"]["size"] = [SIZE, SIZE]
    (artifact,) = release.artifacts
    signature = artifact.signature.model_copy(
        update={
            "inputs": (tensor(key, 1, 3, SIZE, SIZE),),
            "outputs": tuple(tensor(each, *array.shape) for each, array in outputs.items()),
        }
    )
    return release.model_copy(update={"artifacts": (artifact.model_copy(update={"signature": signature}),)})


def save_model(release: Release, outputs: dict[str, np.ndarray], folder: Path) -> None:
    """A model that answers with these outputs, whatever it is fed."""
    (artifact,) = release.artifacts
    (fed,) = artifact.signature.inputs
    nodes = [helper.make_node("Identity", [f"c_{name}"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "answers",
        [helper.make_tensor_value_info(fed.name, TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in outputs.items()],
        [numpy_helper.from_array(array, f"c_{name}") for name, array in outputs.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(made, folder / artifact.file)


def run(release: Release, folder: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs the snippet of the card as a script; only its download is another."""
    template = (ROOT / "recipes" / release.recipe / "card.md.j2").read_text("utf-8")
    card = render_card(release, template=template, template_name="card.md.j2").text
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, file: str(folder / file))
    monkeypatch.setattr(sys, "argv", ["example.py", str(picture)])
    (folder / "example.py").write_text(code)
    return runpy.run_path(str(folder / "example.py"))


@pytest.mark.parametrize("name", ["yunet-int8", "yolo11n-int8"])
@pytest.mark.parametrize("shape", [(90, 40), (40, 90), (64, 64)])
def test_it_finds_what_the_measurements_find(
    name: str,
    shape: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = outputs_of(name, seed=sum(shape))
    release = release_with(name, outputs)
    save_model(release, outputs, tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    found = run(release, tmp_path, tmp_path / "picture.png", monkeypatch)

    declared: Any = release.declared
    ((key, given),) = declared["inputs"].items()
    spec = parse_image_spec(key, given["image"])
    picture = Image.fromarray(pixels)
    np.testing.assert_allclose(found["prepare"](picture, (SIZE, SIZE))[0], to_tensor(picture, None, spec), atol=2e-5)

    ((_, accuracy),) = declared["accuracy"].items()
    plan = DetectionPlan.model_validate(accuracy["detection"])
    (expected,) = read(accuracy["decode"], outputs, plan, (SIZE, SIZE), plan.score)
    assert len(expected) >= 3
    kept = found["kept"]
    np.testing.assert_allclose(found["scores"][kept], expected.scores, atol=1e-6)
    np.testing.assert_allclose(found["boxes"][kept], expected.boxes, atol=1e-3)
    assert list(found["classes"][kept]) == expected.classes.tolist()

    placed = placement(picture.size, spec)
    back = found["faces" if name == "yunet-int8" else "objects"]
    for box, original in zip(back, expected.boxes, strict=True):
        left, top, width, height = placed.box((box[0], box[1], box[2] - box[0], box[3] - box[1]))
        np.testing.assert_allclose([left, top, left + width, top + height], original, atol=1e-3)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(expected)
    if name == "yolo11n-int8":
        assert lines[0].split("0.")[0].strip() == accuracy["labels"][expected.classes[0]]
