"""The example of a consumer reads everything from sidecars, and says what does not go together."""

from __future__ import annotations

import hashlib
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import predict_clip
import pytest
from onnx import TensorProto, helper
from PIL import Image
from predict_clip import UnsuitableError

from bot.measure.preprocess import ImageSpec, to_tensor

INPUTS = {"x": ["batch", "time", 2], "mask": ["batch", "time"]}


def write_regressor(folder: Path, **changes: Any) -> Path:
    """A graph that adds up what its mask keeps, and its sidecar with something changed."""
    path = folder / "sum.onnx"
    nodes = [
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["x", "column"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "time"], ["sums"], keepdims=0),
    ]
    constants = [helper.make_tensor(name, TensorProto.INT64, [1], [axis]) for name, axis in (("last", 2), ("time", 1))]
    kinds = {"x": TensorProto.FLOAT, "mask": TensorProto.BOOL}
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in INPUTS.items()],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["batch", 2])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    sidecar = {
        "schema_version": 1,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "inputs": [
            {"name": "x", "dtype": "float32", "shape": INPUTS["x"]},
            {"name": "mask", "dtype": "bool", "shape": INPUTS["mask"]},
        ],
        "outputs": [{"name": "sums", "dtype": "float32", "shape": ["batch", 2]}],
        "axes": [
            {"name": "batch", "minimum": 1, "maximum": None, "multiple_of": 1},
            {"name": "time", "minimum": 1, "maximum": 6, "multiple_of": 1},
        ],
        "feature_names": ["voice"],
        "input_dims": [2],
        "output_dims": [2],
        "trait_names": ["warm", "calm"],
        "masks": [{"input": "mask", "of": "x", "keeps": 1, "partial": "right", "whole": "right"}],
        "sample_rates": [None],
        "preprocessings": {"x": {"tensor": {}}},
        "tokenizers": [],
        **changes,
    }
    Path(f"{path}.json").write_text(json.dumps(sidecar))
    return path


def test_a_series_that_is_not_given_is_hidden(tmp_path: Path) -> None:
    graph = predict_clip.open_graph(write_regressor(tmp_path))
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    assert predict_clip.predict(graph, {"voice": rows}) == {"warm": 9.0, "calm": 12.0}
    assert predict_clip.predict(graph, {}) == {"warm": 0.0, "calm": 0.0}


@pytest.mark.parametrize("whole", ["refused", "not tried"])
def test_nothing_is_hidden_where_the_sidecar_does_not_say_that_it_may_be(tmp_path: Path, whole: str) -> None:
    mask = {"input": "mask", "of": "x", "keeps": 1, "partial": "right", "whole": whole}
    graph = predict_clip.open_graph(write_regressor(tmp_path, masks=[mask]))
    with pytest.raises(UnsuitableError, match="cannot do without voice"):
        predict_clip.predict(graph, {})


def test_the_value_that_keeps_is_the_sidecars(tmp_path: Path) -> None:
    mask = {"input": "mask", "of": "x", "keeps": 0, "partial": "right", "whole": "right"}
    graph = predict_clip.open_graph(write_regressor(tmp_path, masks=[mask]))
    assert predict_clip.predict(graph, {"voice": np.ones((2, 2), np.float32)}) == {"warm": 0.0, "calm": 0.0}


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({"gaze": (2, 2)}, "reads voice, and not gaze"),
        ({"voice": (2, 3)}, "voice is 3 wide, and sum.onnx reads 2"),
        ({"voice": (7, 2)}, "x may not have the size 7 for time"),
    ],
)
def test_series_that_do_not_fit_are_named(tmp_path: Path, series: dict[str, tuple[int, int]], words: str) -> None:
    graph = predict_clip.open_graph(write_regressor(tmp_path))
    with pytest.raises(UnsuitableError, match=words):
        predict_clip.predict(graph, {name: np.zeros(shape, np.float32) for name, shape in series.items()})


def test_a_sidecar_of_another_graph_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_regressor(tmp_path, sha256="0" * 64)
    with pytest.raises(SystemExit) as stopped:
        predict_clip.main([str(path)])
    assert stopped.value.code == 2 and "is not of this sum.onnx" in capsys.readouterr().err
    Path(f"{path}.json").unlink()
    with pytest.raises(UnsuitableError, match=r"sum\.onnx\.json should lie beside each other"):
        predict_clip.open_graph(path)


def test_a_regressor_is_no_extractor(tmp_path: Path) -> None:
    graph = predict_clip.open_graph(write_regressor(tmp_path))
    with pytest.raises(UnsuitableError, match="no extractor"):
        predict_clip.series_of(graph, tmp_path)


def test_a_sound_of_another_rate_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "clip.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(100))
    graph = predict_clip.open_graph(write_regressor(tmp_path, sample_rates=[16_000]))
    spec = {"channels": "mean", "normalize": "none"}
    with pytest.raises(UnsuitableError, match=r"16-bit PCM at 16000 Hz: ffmpeg"):
        next(predict_clip.sound(graph, "x", spec, path))


@pytest.mark.parametrize(
    "spec",
    [
        {"resample": "bicubic", "mean": (0.48, 0.46, 0.41), "std": (0.27, 0.26, 0.28)},
        {"resample": "area", "fit": "letterbox", "place": "center", "pad_value": 114, "color": "BGR"},
        {"resample": "lanczos", "fit": "letterbox", "place": "top-left", "pad_value": 7},
    ],
)
@pytest.mark.parametrize("size", [(31, 70), (90, 40)])
def test_pictures_are_made_ready_as_the_recipes_samples_are(spec: dict[str, Any], size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    described = ImageSpec(size=(40, 56), scale=1 / 255, **spec)
    found = predict_clip._pixels(Image.fromarray(pixels), described.model_dump())
    assert np.array_equal(found, to_tensor(Image.fromarray(pixels), None, described))
