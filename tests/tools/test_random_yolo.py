"""The detector with random weights is what it says it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import make_random_yolo
import numpy as np
import onnx
import onnxruntime

from bot.measure.detection.heads import read_yolo
from bot.measure.detection.plan import DetectionPlan

TINY = make_random_yolo.SIZES["tiny"]


def test_a_seed_gives_a_file(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 0, 1):
        make_random_yolo.write(tmp_path / "m.onnx", "tiny", seed)
        digests.append(hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest())
    assert digests[0] == digests[1] != digests[2]


def test_it_is_a_valid_detector_that_says_that_its_weights_are_random(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    make_random_yolo.write(path, "tiny")
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(path)
    assert {each.key: each.value for each in proto.metadata_props}["random_weights"] == "true"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"images": make_random_yolo.drawn(TINY.pixels, 5)})
    anchors = sum((TINY.pixels // stride) ** 2 for stride in (8, 16, 32))
    assert output.shape == (1, 4 + TINY.classes, anchors)
    assert output[:, 4:].min() >= 0 and output[:, 4:].max() <= 1
    centres = output[0, :2]
    assert -TINY.pixels < centres.min() and centres.max() < 2 * TINY.pixels
    assert (output[0, 2:4] >= 0).all()


def test_it_finds_something_and_not_everything(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    make_random_yolo.write(path, "tiny")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    counts = []
    for seed in range(6):
        (output,) = session.run(None, {"images": make_random_yolo.drawn(TINY.pixels, seed)})
        (found,) = read_yolo(output, DetectionPlan(), 0.25)
        counts.append(len(found))
    assert 0 < np.mean(counts) < 60


def test_the_real_size_has_the_real_networks_weights() -> None:
    """YOLO11n has 2.6 million of them."""
    proto = make_random_yolo.make(make_random_yolo.SIZES["n"])
    count = sum(int(np.prod(tensor.dims)) for tensor in proto.graph.initializer)
    assert 2.4e6 < count < 3.0e6
    assert [each.dim_value for each in proto.graph.output[0].type.tensor_type.shape.dim] == [1, 84, 8400]
