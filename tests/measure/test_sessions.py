"""Opening and running models, and keeping their outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from measuring_material import ignore_progress, save_graph, save_rows
from onnx import TensorProto, helper

from bot.errors import RecipeError, StepError
from bot.measure import tasks
from bot.measure.arrays import RowWriter, npy_name, open_array
from bot.measure.sessions import fixed_batch, open_session, run_once

ROWS = np.random.default_rng(1).normal(size=(11, 4)).astype(np.float32)


def run(model: Path, feeds: dict[str, str], out: Path, **more: Any) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    answer = tasks.run({"model": str(model), "feeds": feeds, "out": str(out), **more}, ignore_progress)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize("batch", [1, 4, 11, 50])
def test_rows_come_back_in_order_whatever_the_batch(tmp_path: Path, linear: Callable[..., Path], batch: int) -> None:
    model = linear()
    answer = run(model, {"x": save_rows(tmp_path / "x.npy", ROWS)}, tmp_path / "out", batch=batch)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": ROWS})[0]
    output = answer["outputs"]["y"]
    assert output["dtype"] == "float32"
    assert output["shape"] == [11, 3]
    np.testing.assert_allclose(np.load(output["file"]), expected, rtol=1e-6)
    assert answer["provider"] == "cpu"
    assert answer["runtime"] == f"onnxruntime {onnxruntime.__version__}"
    assert answer["device"]


@pytest.mark.parametrize("fixed", [1, 3, 4])
def test_a_fixed_batch_is_filled_up_and_cut_again(tmp_path: Path, linear: Callable[..., Path], fixed: int) -> None:
    feeds = {"x": save_rows(tmp_path / "x.npy", ROWS)}
    free = run(linear("free.onnx"), feeds, tmp_path / "free", batch=11)
    bound = run(linear("bound.onnx", batch=fixed), feeds, tmp_path / "bound", batch=8)
    assert bound["outputs"]["y"]["shape"] == [11, 3]
    np.testing.assert_allclose(np.load(bound["outputs"]["y"]["file"]), np.load(free["outputs"]["y"]["file"]), rtol=1e-6)


def test_float_inputs_are_cast_to_the_graph_s_float_type(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    model = save_graph(tmp_path / "half.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]}, dtype=TensorProto.FLOAT16)
    answer = run(model, {"x": save_rows(tmp_path / "x.npy", ROWS)}, tmp_path / "out")
    assert answer["outputs"]["y"]["dtype"] == "float16"
    assert np.array_equal(np.load(answer["outputs"]["y"]["file"]), ROWS.astype(np.float16) * 2)


def test_an_output_without_a_batch_gets_one_row_per_sample(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    model = save_graph(tmp_path / "sum.onnx", [node], {"x": ["N", 4]}, {"y": []})
    feeds = {"x": save_rows(tmp_path / "x.npy", ROWS)}
    answer = run(model, feeds, tmp_path / "out", batch=1)
    np.testing.assert_allclose(np.load(answer["outputs"]["y"]["file"]), ROWS.sum(axis=1), rtol=1e-5)
    with pytest.raises(StepError, match="does not have a row for each of 5 samples") as caught:
        run(model, feeds, tmp_path / "more", batch=5)
    assert "batch of 1" in caught.value.remedy


def test_an_output_whose_shape_depends_on_the_sample_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("NonZero", ["x"], ["found"])
    cast = helper.make_node("Cast", ["found"], ["y"], to=TensorProto.FLOAT)
    model = save_graph(tmp_path / "nonzero.onnx", [node, cast], {"x": ["N", 4]}, {"y": ["axes", "found"]})
    feeds = {"x": save_rows(tmp_path / "x.npy", np.array([[1, 0, 0, 0], [1, 1, 0, 0]], np.float32))}
    with pytest.raises(StepError, match="follow rows of shape"):
        run(model, feeds, tmp_path / "out", batch=1)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "the inputs hold"),
        ({"z": ROWS}, r"takes the inputs \['x'\] and was fed \['z'\]"),
        ({"x": ROWS.astype(np.int64)}, "takes float32 and was fed int64"),
        ({"x": ROWS[:, :3]}, "cannot run it"),
        ({"x": ROWS[:0]}, "the inputs hold"),
    ],
)
def test_feeds_that_do_not_fit(
    tmp_path: Path, linear: Callable[..., Path], feeds: dict[str, np.ndarray], words: str
) -> None:
    paths = {name: save_rows(tmp_path / f"{name}.npy", array) for name, array in feeds.items()}
    with pytest.raises(StepError, match=words):
        run(linear(), paths, tmp_path / "out")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x0a not a model")
    with pytest.raises(StepError, match="cannot open it") as caught:
        open_session(tmp_path / "broken.onnx")
    assert caught.value.where == "broken.onnx"


def test_a_provider_that_is_not_here_is_never_the_cpu(tmp_path: Path, linear: Callable[..., Path]) -> None:
    feeds = {"x": save_rows(tmp_path / "x.npy", ROWS)}
    absent = next(name for name in ("rocm", "coreml") if name)
    with pytest.raises(StepError, match=f"the provider {absent} is not available here"):
        run(linear(), feeds, tmp_path / "out", provider=absent)
    with pytest.raises(RecipeError, match="no provider named 'abacus'"):
        run(linear(), feeds, tmp_path / "out", provider="abacus")


def test_names_of_outputs_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "x"], ["../../escaped"])
    model = save_graph(tmp_path / "names.onnx", [node], {"x": ["N", 4]}, {"../../escaped": ["N", 4]})
    feeds = {"x": save_rows(tmp_path / "x.npy", ROWS)}
    with pytest.raises(StepError, match="a name that no file can have"):
        run(model, feeds, tmp_path / "deep", batch=2)
    assert not list(tmp_path.parent.glob("escaped*"))

    node = helper.make_node("Add", ["x", "x"], ["head/logits"])
    model = save_graph(tmp_path / "slash.onnx", [node], {"x": ["N", 4]}, {"head/logits": ["N", 4]})
    answer = run(model, feeds, tmp_path / "slash")
    assert Path(answer["outputs"]["head/logits"]["file"]) == tmp_path / "slash" / "head__logits.npy"


def test_strings_are_no_numbers(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("Identity", ["x"], ["y"])],
        "strings",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4]),
            helper.make_tensor_value_info("t", TensorProto.STRING, [1]),
        ],
        [helper.make_tensor("s", TensorProto.STRING, [1], [b"text"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = open_session(model.SerializeToString())
    with pytest.raises(StepError, match="the output t is no tensor of numbers"):
        run_once(session, {"x": ROWS})


def test_the_fixed_batch_is_the_graph_s_first_axis(linear: Callable[..., Path]) -> None:
    assert fixed_batch(open_session(linear())) is None
    assert fixed_batch(open_session(linear(batch=6))) == 6


def test_an_array_with_objects_in_it_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(StepError, match="cannot be read as an array"):
        open_array(tmp_path / "objects.npy")
    np.savez(tmp_path / "several.npz", a=ROWS, b=ROWS)
    with pytest.raises(StepError, match="several arrays"):
        open_array(tmp_path / "several.npz")
    with pytest.raises(StepError, match="cannot be read"):
        open_array(tmp_path / "none.npy")


@pytest.mark.parametrize("rows", [0, 1, 9, 12_345])
@pytest.mark.parametrize("dtype", ["<f4", "<f2", "<i8", "|b1"])
def test_a_file_written_row_by_row_is_like_one_written_at_once(tmp_path: Path, rows: int, dtype: str) -> None:
    array = (np.arange(rows * 6) % 2000).reshape(rows, 2, 3).astype(dtype)
    with RowWriter(tmp_path / "rows.npy", (2, 3), dtype) as writer:
        for start in range(0, rows, 5000):
            writer.append(array[start : start + 5000])
    loaded = np.load(tmp_path / "rows.npy")
    assert loaded.dtype == array.dtype
    assert np.array_equal(loaded, array)
    assert npy_name("age/images") == "age__images.npy"
