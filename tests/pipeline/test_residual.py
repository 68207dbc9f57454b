"""The peak of a source's residual stream becomes a measurement where fp16 cannot hold it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bot.canonical import file_sha256
from bot.measure.arrays import npy_name
from bot.pipeline.context import Context
from bot.pipeline.residual import residual_peaks
from bot.pipeline.samples import Samples
from bot.records import Measurement
from bot.work import WorkFolder
from bot.worker import Worker

MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"


class Listener:
    """Keeps what the reporter is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def update(self, done: int, total: int, what: str) -> None:
        assert 0 <= done <= total

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def _peaks(
    folder: Path, model: Path, faces: np.ndarray, dtype: str = "float16", **names: str
) -> tuple[dict[str, list[Measurement]], Listener]:
    """What is measured of a source with two artifacts, the first of which has weights of the dtype."""
    name, listener = names.get("name", "face"), Listener()
    feeds = folder / "work" / npy_name(name)
    feeds.parent.mkdir(exist_ok=True)
    np.save(feeds, faces)
    artifacts = [("first", {dtype: 10}), ("second", {"float16": 10})]
    built: Any = [
        SimpleNamespace(artifact=SimpleNamespace(name=key, made_from="net", census=SimpleNamespace(parameters=kinds)))
        for key, kinds in artifacts
    ]
    source = SimpleNamespace(files={"net": SimpleNamespace(sha256=file_sha256(model))})
    models = {"net": SimpleNamespace(is_module=False, sha256=file_sha256(model))}
    prepared: Any = SimpleNamespace(source_files={"net": model}, source=source, models=models)
    samples = Samples(digest="d", digests=("s",), feeds={"net": {name: feeds}}, skipped={})  # type: ignore[arg-type]
    hub: Any = None
    reporter: Any = listener
    context = Context(hub=hub, work=WorkFolder(folder / "work"), worker=Worker(), reporter=reporter)
    return residual_peaks(context, prepared, built, samples), listener


def _faces(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 3, 224, 224)).astype(np.float32)


@pytest.mark.parametrize(("dtype", "told_with"), [("float16", "first"), ("float32", "second")])
def test_the_peak_is_told_once_with_the_first_artifact_in_fp16(dtype: str, told_with: str, tmp_path: Path) -> None:
    found, listener = _peaks(tmp_path, MINI, _faces(2), dtype)
    assert list(found) == [told_with]
    peak, channel = found[told_with]
    assert (peak.key, peak.artifact, peak.samples, peak.samples_digest) == (
        "residual.largest_magnitude",
        "source:net",
        2,
        "d",
    )
    assert peak.value == pytest.approx(1.6e5, rel=0.05)
    assert (channel.key, channel.value, channel.artifact) == ("residual.massive_channel", 37, "source:net")
    assert (peak.provider, peak.batch) == ("cpu", 1)
    assert peak.device
    assert peak.runtime.startswith("onnxruntime ")
    assert not listener.warnings
    assert list((tmp_path / "work" / "ranges").glob("*/scratch")) == []


def _stream(folder: Path) -> Path:
    nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])]
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    made = helper.make_model(
        helper.make_graph(nodes, "g", shapes[:1], shapes[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    onnx.save(made, folder / "stream.onnx")
    return folder / "stream.onnx"


def test_a_stream_that_fits_is_not_worth_a_figure(tmp_path: Path) -> None:
    found, _ = _peaks(tmp_path, _stream(tmp_path), np.ones((2, 4), np.float32), name="x")
    assert found == {"first": []}
    (tmp_path / "large").mkdir()
    found, _ = _peaks(tmp_path / "large", _stream(tmp_path), np.full((2, 4), 30000, np.float32), name="x")
    assert [each.value for each in found["first"]] == [90000]


def test_a_source_that_cannot_be_run_here_is_warned_of_and_withholds_nothing(tmp_path: Path) -> None:
    found, listener = _peaks(tmp_path, _stream(tmp_path), np.ones((2, 5), np.float32), name="x")
    assert found == {"first": []}
    assert "was not measured" in listener.warnings[0]
