"""The checks that every artifact passes through: interface, finite outputs, dynamic axes, batch mates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from measuring_material import FLOAT, ignore_progress, save_graph, save_rows
from onnx import TensorProto, helper

from bot.measure import tasks

RANDOM = np.random.default_rng(2)
ROWS = RANDOM.normal(size=(12, 4)).astype(np.float32)


def check(folder: Path, source: Path, candidate: Path, rows: np.ndarray = ROWS, name: str = "x") -> dict[str, Any]:
    """What each rule says, by its name."""
    feeds = {name: save_rows(folder / "rows.npy", rows)}
    outputs = []
    for role, model in (("source", source), ("candidate", candidate)):
        (folder / role).mkdir(exist_ok=True)
        answer = tasks.run(
            {"model": str(model), "feeds": feeds, "batch": 4, "out": str(folder / role)}, ignore_progress
        )
        outputs.append({name: each["file"] for name, each in answer["outputs"].items()})  # type: ignore[call-overload, index, union-attr]
    answer = tasks.checks(
        {
            "source_model": str(source),
            "candidate_model": str(candidate),
            "feeds": feeds,
            "source": outputs[0],
            "candidate": outputs[1],
            "provider": "cpu",
            "threads": 1,
        },
        ignore_progress,
    )
    return {each["rule"]: each for each in answer["checks"]}  # type: ignore[call-overload, index, union-attr]


def statuses(found: dict[str, Any]) -> dict[str, str]:
    return {rule: each["status"] for rule, each in found.items()}


RULES = ["same inputs and outputs", "finite outputs", "no dead outputs", "dynamic axes", "batch invariance"]


def test_a_model_passes_against_itself(tmp_path: Path, linear: Callable[..., Path]) -> None:
    found = check(tmp_path, linear(), linear())
    assert statuses(found) == dict.fromkeys(RULES, "passed")
    assert all(each["provider"] == "cpu" and each["reason"] for each in found.values())


def test_a_slightly_other_model_passes(tmp_path: Path, linear: Callable[..., Path]) -> None:
    assert set(statuses(check(tmp_path, linear(), linear("other.onnx", factor=1.001))).values()) == {"passed"}


def test_an_output_that_is_not_finite(tmp_path: Path, linear: Callable[..., Path]) -> None:
    """A source whose weights fit into half precision, and a candidate whose do not."""
    node = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], to=FLOAT),
    ]
    weights = {"w": (np.eye(4, 3) * 60_000).astype(np.float32)}
    candidate = save_graph(tmp_path / "half.onnx", node, {"x": ["N", 4]}, {"y": ["N", 3]}, weights)
    source = save_graph(
        tmp_path / "source.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": ["N", 4]},
        {"y": ["N", 3]},
        weights,
    )
    everything = check(tmp_path, source, candidate)
    assert everything["dynamic axes"]["status"] == everything["batch invariance"]["status"] == "not measured"
    found = everything["finite outputs"]
    assert found["status"] == "failed"
    assert found["value"] == np.count_nonzero(np.abs(ROWS[:, :3] * 60_000) >= 65_520)
    assert found["reason"].startswith("y is not finite, first on sample number")


def test_a_mask_of_infinity_in_the_source_is_the_source_s(tmp_path: Path) -> None:
    weights = {"mask": np.array([0, -np.inf, 0, 0], np.float32)}
    node = [helper.make_node("Add", ["x", "mask"], ["y"])]
    model = save_graph(tmp_path / "mask.onnx", node, {"x": ["N", 4]}, {"y": ["N", 4]}, weights)
    assert set(statuses(check(tmp_path, model, model)).values()) == {"passed"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        ({"image": ["N", 4]}, {"y": ["N", 4]}, "the inputs are image instead of x"),
        ({"x": ["N", 4]}, {"z": ["N", 4]}, "the outputs are z instead of y"),
        ({"x": [4, 4]}, {"y": [4, 4]}, "the input x has shape [4, 4] instead of [N, 4]"),
        ({"x": ["N", "width"]}, {"y": ["N", "width"]}, "the input x has shape [N, width] instead of [N, 4]"),
    ],
)
def test_another_interface(
    tmp_path: Path, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], words: str
) -> None:
    from bot.measure.interface import check_interface
    from bot.measure.sessions import open_session

    plain = save_graph(tmp_path / "a.onnx", [helper.make_node("Abs", ["x"], ["y"])], {"x": ["N", 4]}, {"y": ["N", 4]})
    node = helper.make_node("Abs", list(inputs), list(outputs))
    other = save_graph(tmp_path / "b.onnx", [node], inputs, outputs)
    found = check_interface(open_session(plain), open_session(other))
    assert found.status == "failed"
    assert words in found.reason


def test_a_candidate_with_other_outputs_fails_without_a_fault_of_ours(
    tmp_path: Path, linear: Callable[..., Path]
) -> None:
    node = helper.make_node("Abs", ["x"], ["z"])
    other = save_graph(tmp_path / "other.onnx", [node], {"x": ["N", 4]}, {"z": ["N", 4]})
    found = check(tmp_path, linear(), other)
    assert set(statuses(found).values()) <= {"failed", "not measured"}
    assert "the outputs are z instead of y" in found["same inputs and outputs"]["reason"]
    assert found["finite outputs"]["reason"] == "the output y is missing"

    node = helper.make_node("Abs", ["image"], ["y"])
    renamed = save_graph(tmp_path / "renamed.onnx", [node], {"image": ["N", 4]}, {"y": ["N", 4]})
    from bot.measure.checks import run_checks

    rows = {"x": tmp_path / "rows.npy"}
    answers = {"y": tmp_path / "source" / "y.npy"}
    checks = run_checks((linear(), renamed), rows, (answers, answers), "cpu", 1, ignore_progress)
    assert [each.status for each in checks] == ["failed", "passed", "passed", "failed", "failed"]
    assert "takes the inputs ['image'] and was fed ['x']" in checks[3].reason


@pytest.mark.parametrize(
    ("described", "status"),
    [
        (["N", 4], "passed"),
        (["N", "columns"], "passed"),
        (["rows", 4], "passed"),
        ([1, 4], "failed"),
        (["N", 5], "failed"),
    ],
)
def test_how_much_of_an_output_is_described(tmp_path: Path, described: list[Any], status: str) -> None:
    """An output may be described in more or less detail, but not tied down where it follows the input."""
    from bot.measure.interface import check_interface
    from bot.measure.sessions import open_session

    node = helper.make_node("Abs", ["x"], ["y"])
    source = save_graph(tmp_path / "a.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]})
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])
    graph = helper.make_graph(
        [reshape],
        "described",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", FLOAT, described)],
        [helper.make_tensor("shape", TensorProto.INT64, [2], [-1, described[1] if described[1] == 5 else 4])],
    )
    other = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    found = check_interface(open_session(source), open_session(other.SerializeToString()))
    assert found.status == status, found.reason


def test_half_precision_inputs_are_another_interface(tmp_path: Path) -> None:
    from bot.measure.interface import check_interface
    from bot.measure.sessions import open_session

    models = []
    for name, dtype in (("a", FLOAT), ("b", TensorProto.FLOAT16)):
        node = helper.make_node("Abs", ["x"], ["y"])
        models.append(save_graph(tmp_path / f"{name}.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]}, dtype=dtype))
    found = check_interface(*(open_session(model) for model in models))
    assert "the input x is a tensor(float16) instead of a tensor(float)" in found.reason
    assert found.value == 2


def test_the_name_of_a_dynamic_axis_does_not_matter(tmp_path: Path) -> None:
    from bot.measure.interface import check_interface
    from bot.measure.sessions import open_session

    node = helper.make_node("Abs", ["x"], ["y"])
    first = save_graph(tmp_path / "a.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]})
    second = save_graph(tmp_path / "b.onnx", [node], {"x": ["batch", 4]}, {"y": ["batch", 4]})
    assert check_interface(open_session(first), open_session(second)).status == "passed"


def convolution(path: Path, baked: np.ndarray | None = None) -> Path:
    """A small network over pictures of any size; one with a size baked in adds a table that only fits by repetition."""
    weights = {"w": np.random.default_rng(8).normal(size=(2, 3, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])]
    if baked is None:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    else:
        weights["table"] = baked
        nodes += [helper.make_node("Add", ["c", "table"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    axes: list[Any] = ["batch", 3, "height", "width"]
    return save_graph(path, nodes, {"x": axes}, {"y": ["batch", 2, "height", "width"]}, weights)


PICTURES = RANDOM.normal(size=(5, 3, 8, 8)).astype(np.float32)


def test_a_size_baked_into_a_graph_that_calls_it_dynamic(tmp_path: Path) -> None:
    source = convolution(tmp_path / "source.onnx")
    candidate = convolution(tmp_path / "baked.onnx", np.zeros((1, 2, 8, 8), np.float32))
    found = check(tmp_path, source, candidate, PICTURES)
    assert found["dynamic axes"]["status"] == "failed"
    assert "axis height at x [1, 3, 16, 8]: the source runs and this does not" in found["dynamic axes"]["reason"]
    assert found["no dead outputs"]["status"] == found["batch invariance"]["status"] == "passed"


def test_a_length_that_changes_the_answer_without_an_error(tmp_path: Path) -> None:
    """The mean over a length that was baked in as a number."""
    axes: dict[str, list[Any]] = {"x": ["N", "length"]}
    output: dict[str, list[Any]] = {"y": ["N"]}
    source = save_graph(
        tmp_path / "mean.onnx", [helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0, axes=[1])], axes, output,
        opset=17,
    )  # fmt: skip
    sums = helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0)
    graph = helper.make_graph(
        [sums, helper.make_node("Div", ["s", "length"], ["y"])],
        "baked",
        [helper.make_tensor_value_info("x", FLOAT, axes["x"])],
        [helper.make_tensor_value_info("y", FLOAT, output["y"])],
        [
            helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
            helper.make_tensor("length", FLOAT, [], [10.0]),
        ],
    )
    candidate = tmp_path / "baked.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), candidate)

    found = check(tmp_path, source, candidate, (RANDOM.normal(size=(6, 10)) + 3).astype(np.float32))

    assert found["dynamic axes"]["status"] == "failed"
    assert "axis length at x [1, 20]" in found["dynamic axes"]["reason"]
    assert found["dynamic axes"]["value"] > 1


def test_sizes_that_the_source_refuses_are_no_fault(tmp_path: Path) -> None:
    """A network that takes any batch and, in truth, one size only."""
    source = convolution(tmp_path / "source.onnx", RANDOM.normal(size=(1, 2, 8, 8)).astype(np.float32))
    found = check(tmp_path, source, source, PICTURES)["dynamic axes"]
    assert found["status"] == "passed"
    assert "exercised at other sizes: batch" in found["reason"]
    assert "the source itself runs at no other size of height, width" in found["reason"]


def test_axes_that_must_change_together(tmp_path: Path) -> None:
    """A graph that only takes squares: x times itself."""
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    square: dict[str, list[Any]] = {"x": ["N", "rows", "columns"]}
    model = save_graph(tmp_path / "square.onnx", [node], square, {"y": ["N", "rows", "columns"]})
    found = check(tmp_path, model, model, RANDOM.normal(size=(4, 6, 6)).astype(np.float32))["dynamic axes"]
    assert found["status"] == "passed"
    assert "exercised at other sizes: N, rows and columns" in found["reason"]


def test_an_answer_that_depends_on_its_batch_mates(tmp_path: Path) -> None:
    """The candidate subtracts the mean over the batch, a little of it."""
    source = save_graph(
        tmp_path / "source.onnx", [helper.make_node("Abs", ["x"], ["y"])], {"x": ["N", 4]}, {"y": ["N", 4]}
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=1, axes=[0]),
        helper.make_node("Mul", ["top", "little"], ["shift"]),
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Sub", ["a", "shift"], ["y"]),
    ]
    weights = {"little": np.float32([0.03])}
    candidate = save_graph(tmp_path / "c.onnx", nodes, {"x": ["N", 4]}, {"y": ["N", 4]}, weights, opset=17)
    found = check(tmp_path, source, candidate)["batch invariance"]
    assert found["status"] == "failed"
    assert found["value"] > 1
    assert "an answer in y moves by" in found["reason"]


def test_a_fixed_batch_has_no_mates(tmp_path: Path, linear: Callable[..., Path]) -> None:
    found = check(tmp_path, linear(batch=2), linear("same.onnx", batch=2))
    assert found["batch invariance"]["reason"] == "the graph fixes the batch at 2"
    assert found["dynamic axes"]["reason"] == "no axis is declared dynamic"


def test_one_sample_tells_nothing_of_mates(tmp_path: Path, linear: Callable[..., Path]) -> None:
    assert check(tmp_path, linear(), linear(), ROWS[:1])["batch invariance"]["status"] == "not measured"


def test_integer_quantisation_of_a_real_network(tmp_path: Path, age_model: Path, real_faces: np.ndarray) -> None:
    """Dynamic quantisation takes one scale from the whole batch, and is caught; static quantisation does not."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rows = iter(real_faces[:8])

        def get_next(self) -> dict[str, np.ndarray] | None:
            row = next(self.rows, None)
            return None if row is None else {"images": row[None]}

    quantize_dynamic(age_model, tmp_path / "dynamic.onnx", weight_type=QuantType.QInt8)
    quantize_static(
        age_model,
        tmp_path / "static.onnx",
        Reader(),
        op_types_to_quantize=["Conv", "Gemm"],
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
    )
    dynamic = check(tmp_path, age_model, tmp_path / "dynamic.onnx", real_faces, "images")
    static = check(tmp_path, age_model, tmp_path / "static.onnx", real_faces, "images")
    assert statuses(dynamic) == {**dict.fromkeys(RULES, "passed"), "batch invariance": "failed"}
    assert statuses(static) == dict.fromkeys(RULES, "passed")
