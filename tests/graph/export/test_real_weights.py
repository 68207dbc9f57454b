"""Real weights: a DINOv2 ViT-S/14, held against another export of the very same ones, made with another tool."""

from __future__ import annotations

from pathlib import Path

import dinov2_small
import numpy as np
import onnx
import onnxruntime
import pytest
from packages import default_cache

from bot.graph.export.interface import Files
from bot.graph.export.pictures import smooth_pictures
from bot.graph.export.truth import answers_of
from bot.graph.export_torch import load_exportable
from bot.graph.steps import STEPS, StepContext

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

LAST = "/backbone/layernorm/Add_1_output_0"
"""What the saliency network calls the token states after the backbone's last normalisation."""


@pytest.fixture(scope="module")
def saliency() -> Path:
    return dinov2_small.fetch(CACHE)


def test_the_backbone_answers_as_it_does_inside_the_saliency_network(saliency: Path, tmp_path: Path) -> None:
    config, weights = dinov2_small.write(saliency, tmp_path)
    files = Files({"config": config, "weights": weights})
    exportable = load_exportable("dinov2", {"normalize": False}, files, None)
    assert not exportable.random_weights
    model = onnx.load(saliency)
    model.graph.output.append(onnx.helper.make_tensor_value_info(LAST, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = exportable.example({"batch": 2}, np.random.default_rng(0))
    wanted = session.run([LAST], {"input_image": feeds["pixel_values"]})[0][:, 0]
    found = answers_of(exportable, feeds)["embedding"]
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_what_was_exported_can_be_fused(saliency: Path, tmp_path: Path) -> None:
    """The recipe's steps on real weights: in float32 the same answers, in half precision the same embedding."""
    config, weights = dinov2_small.write(saliency, tmp_path)
    files = {"config": config, "weights": weights}
    context, plain = StepContext(tmp_path, files=files), tmp_path / "plain.onnx"
    export = STEPS["export_torch"]
    export.load()(weights, plain, export.parameters(architecture="dinov2", size=112), context)
    feeds = {"pixel_values": smooth_pictures(3, 112, np.random.default_rng(0))}
    (wanted,) = onnxruntime.InferenceSession(plain).run(None, feeds)
    rebuild = STEPS["rebuild"]
    for precision, least in (("fp32", 0.999999), ("fp16", 0.9999)):
        fused = tmp_path / f"{precision}.onnx"
        parameters = rebuild.parameters(architecture="dinov2", precision=precision)
        report = rebuild.load()(plain, fused, parameters, StepContext(tmp_path))
        assert (report["layers"], report["heads"], report["width"], report["tokens"]) == (12, 6, 384, 65)
        (found,) = onnxruntime.InferenceSession(fused).run(None, feeds)
        assert (found * wanted).sum(axis=1).min() > least  # both are of length one
