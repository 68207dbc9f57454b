"""How large and small tensors become, against numpy; the residual stream; and what `keep: auto` makes of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from float16_kinds import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_graphs import BOOL, graph, model, node, run, save, tensor, value

from bot.errors import StepError
from bot.graph import stream, tasks
from bot.graph.model_file import read_model
from bot.graph.parameters import Float16Parameters
from bot.graph.ranges import Ranges, measure_ranges
from bot.graph.steps import parse_parameters

MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"
MINI_CHANNEL = 37
"""Where the mini network's maker put its massive activation."""

Measure = Callable[..., Ranges]


def _silent(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total
    assert what


def _feeds(folder: Path, arrays: dict[str, Any]) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    files = {}
    for index, (name, array) in enumerate(arrays.items()):
        files[name] = folder / f"{index}.npy"
        np.save(files[name], array)
    return files


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    def measured(source: onnx.ModelProto | Path, arrays: dict[str, Any], limit: int = 0) -> Ranges:
        path = source if isinstance(source, Path) else save(source, tmp_path / "m.onnx")
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return measure_ranges(read_model(path), _feeds(tmp_path / "feeds", arrays), scratch, _silent, limit)

    return measured


def _doubling(shape: list[Any], opset: int = 18) -> onnx.ModelProto:
    return model([node("Add", ["x", "x"], ["y"], name="twice")], [value("x", shape)], [value("y", shape)], opset=opset)


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 22, 24])
@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 3, 7), (5, 7, 3, 2), (5, 2, 3, 2, 7)])
def test_every_figure_is_what_numpy_says(shape: tuple[int, ...], opset: int, measure: Measure) -> None:
    numbers = np.random.default_rng(len(shape))
    x = (numbers.standard_normal(shape) * 10.0 ** numbers.integers(-9, 6, shape)).astype(np.float32)
    x.reshape(-1)[[0, 1, 2]] = [0.0, -40000.0, 1e-8]
    found = measure(_doubling(["n", *shape[1:]], opset), {"x": x})
    assert found.samples == found.available == 5
    for name, array in (("x", x), ("y", 2 * x)):
        seen, magnitude = found.tensors[name], np.abs(array)
        axis = None if len(shape) < 2 else 1 if len(shape) == 4 else len(shape) - 1
        assert seen.values == array.size
        assert seen.largest == magnitude.max()
        assert (seen.most_positive, seen.most_negative) == (array.max(), array.min())
        assert seen.smallest == magnitude[magnitude > 0].min()
        assert seen.beyond == np.count_nonzero(magnitude >= 65520)
        with np.errstate(over="ignore"):
            halves = np.abs(array.astype(np.float16))
        assert seen.vanished == np.count_nonzero((halves == 0) & (magnitude > 0))
        assert seen.subnormal == np.count_nonzero((magnitude < 2**-14) & (magnitude > 2**-25))
        if axis is None:
            assert seen.channel is None
        else:
            per_channel = np.moveaxis(magnitude, axis, 0).reshape(shape[axis], -1).max(1)
            assert np.array_equal(seen.peaks, per_channel)
            assert seen.channel == per_channel.argmax()
            assert seen.typical == np.median(per_channel)


def test_infinities_are_counted_and_left_out(measure: Measure) -> None:
    x = np.array([[1.0, -np.inf, 70000.0], [np.nan, 2.0, 0.5]], np.float32)
    for name in ("x", "y"):
        seen = measure(_doubling(["n", 3]), {"x": x}).tensors[name]
        factor = 1 if name == "x" else 2
        assert (seen.infinite, seen.beyond) == (2, 1)
        assert (seen.largest, seen.channel, seen.smallest) == (70000.0 * factor, 2, 0.5 * factor)
        json.dumps(seen.to_plain(), allow_nan=False)


def test_moved_values_and_what_is_in_branches_are_left_out_and_said_to_be(measure: Measure) -> None:
    branch = graph([node("Neg", ["e"], ["t"])], [], [value("t", ["n", 4])])
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Transpose", ["e"], ["f"], perm=[1, 0]),
        node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
        node("Add", ["b", "e"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(np.array(True), "c")]
    made = model(nodes, [value("x", ["n", 4])], [value("y", ["n", 4]), value("f", [4, "n"])], constants)
    found = measure(made, {"x": np.zeros((2, 4), np.float32)})
    assert list(found.tensors) == ["x", "e", "b", "y"]
    assert found.left_out == {"moved values": 1, "nodes within If, Loop, Scan, SequenceMap": 2}


def test_samples_are_taken_evenly_and_fixed_batches_are_filled(measure: Measure) -> None:
    x = np.arange(1, 12, dtype=np.float32).reshape(11, 1)
    found = measure(_doubling(["n", 1]), {"x": x}, limit=3)
    assert (found.samples, found.available, found.tensors["x"].values) == (3, 11, 3)
    assert (found.tensors["x"].smallest, found.tensors["x"].largest) == (1, 11)
    found = measure(_doubling([4, 1]), {"x": x})
    assert (found.tensors["x"].values, found.tensors["y"].largest) == (12, 22)


def test_arrays_of_different_lengths_are_one_run(measure: Measure) -> None:
    made = model([node("MatMul", ["a", "b"], ["y"])], [value("a", [2, 3]), value("b", [3, 4])], [value("y", [2, 4])])
    found = measure(made, {"a": np.ones((2, 3), np.float32), "b": np.full((3, 4), 7, np.float32)})
    assert (found.samples, found.tensors["y"].largest) == (1, 21)


def test_names_of_the_graph_may_look_like_ours(measure: Measure) -> None:
    made = model([node("Exp", ["ranges/0/size"], ["y"])], [value("ranges/0/size", ["n"])], [value("y", ["n"])])
    assert measure(made, {"ranges/0/size": np.zeros(3, np.float32)}).tensors["y"].largest == 1


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"z": np.zeros((2, 3), np.float32)}, r"inputs \['x'\] and was given samples of \['z'\]"),
        ({"x": np.zeros((2, 3), np.int64)}, "takes float32 as 'x' and was given int64"),
        ({"x": np.zeros((2, 5), np.float32)}, "fails when it is run"),
        ({"x": np.zeros((0, 3), np.float32)}, "was given no sample"),
    ],
)
def test_samples_that_do_not_fit_are_refused(arrays: dict[str, Any], sentence: str, measure: Measure) -> None:
    with pytest.raises(StepError, match=sentence):
        measure(_doubling(["n", 3]), arrays)


@given(st.floats(1e-3, 1e9))
def test_the_scale_is_the_largest_power_of_two_that_fits(peak: float) -> None:
    scale = stream.scale_that_fits(peak)
    assert math.log2(scale).is_integer()
    assert peak * scale <= 65504
    assert scale == 1 or peak * scale * 2 > 65504


def _faces(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 3, 224, 224)).astype(np.float32)


def test_the_massive_activation_of_the_mini_network_is_found(measure: Measure) -> None:
    """Its channel and size, and the power of two, from the graph and the samples alone."""
    found = measure(MINI, {"face": _faces(2)})
    plain: Any = found.to_plain(3)
    assert plain["massive_activation"]["channel"] == MINI_CHANNEL
    assert plain["massive_activation"]["size"] == pytest.approx(1.6e5, rel=0.05)
    assert plain["massive_activation"]["tensor"] in found.stream
    assert plain["residual_stream"] == {
        "additions": 6,
        "peak": plain["massive_activation"]["size"],
        "scale": 0.25,
    }
    assert [each["channel"] for each in plain["tensors"]] == [MINI_CHANNEL] * 3
    exposed = onnx.load(MINI)
    for name in found.stream:
        exposed.graph.output.append(value(name, None))
    peaks = [np.abs(array).max() for array in run(exposed, {"face": _faces(2)}, optimise=False)[2:]]
    assert [found.tensors[name].largest for name in found.stream] == pytest.approx(peaks, rel=1e-5)


def test_the_stream_is_found_without_names_and_with_fused_normalisations() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "bias"], ["b"]),
        node("Add", ["x", "b"], ["first"]),
        node("SkipLayerNormalization", ["first", "b", "g"], ["n", "", "", "second"], domain="com.microsoft"),
        node("MatMul", ["n", "w"], ["m"]),
        node("Add", ["m", "second"], ["third"]),
    ]
    made = graph(nodes, [], [], [tensor("w", np.eye(4)), tensor("bias", [0.0] * 4), tensor("g", [1.0] * 4)])
    names = {name for each in nodes for name in each.output if name}
    assert stream.residual_stream(made, names) == ("first", "second", "third")


def test_the_task_answers_in_plain_data(tmp_path: Path) -> None:
    feeds = _feeds(tmp_path / "feeds", {"x": np.full((2, 3), 1e5, np.float32)})
    arguments = {
        "model": str(save(_doubling(["n", 3]), tmp_path / "m.onnx")),
        "feeds": {name: str(path) for name, path in feeds.items()},
        "scratch": str(tmp_path),
        "top": 1,
        "limit": 0,
    }
    answer: Any = tasks.ranges(arguments, _silent)
    json.dumps(answer, allow_nan=False)
    assert (answer["measured"], answer["beyond_float16"], len(answer["tensors"])) == (2, 2, 1)
    assert (answer["massive_activation"], answer["residual_stream"]) == (None, None)


def test_the_command_names_channel_size_and_scale(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", face=_faces(1))
    command = [sys.executable, "-m", "bot", "inspect", str(MINI), "--ranges"]
    without = subprocess.run(command, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "Give --samples FEEDS.npz" in without.stderr
    command += ["--samples", str(tmp_path / "feeds.npz"), "--top", "2"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"on channel {MINI_CHANNEL} of add_" in told
    assert "in fp16's range at 1/4 of it" in told
    assert "its weights are random" in told
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert len(found["tensors"]) == 2
    assert found["massive_activation"]["channel"] == MINI_CHANNEL


# --- keep: auto -----------------------------------------------------------------------------------------------------

Converted = tuple[onnx.ModelProto, dict[str, Any], Path]


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., Converted]:
    def converted(source: onnx.ModelProto | Path, arrays: dict[str, Any] | None, keep: Any = "auto") -> Converted:
        path = source if isinstance(source, Path) else save(source, tmp_path / "source.onnx")
        feeds = _feeds(tmp_path / "samples", arrays) if arrays is not None else {}
        (tmp_path / "scratch").mkdir(exist_ok=True)
        output = tmp_path / "half.onnx"
        arguments = {
            "step": "float16",
            "source": str(path),
            "output": str(output),
            "parameters": {"keep": keep},
            "scratch": str(tmp_path / "scratch"),
            "feeds": {name: str(file) for name, file in feeds.items()},
            "code": None,
        }
        answer: Any = tasks.step(arguments, _silent)
        assert tasks.check({"model": str(output)}, _silent) == {"ok": True, "reason": ""}
        return onnx.load(output), answer["report"], output

    return converted


def _as_hardware(path: Path, arrays: dict[str, Any], folder: Path) -> list[np.ndarray]:
    from bot.measure.fp16_emulation import emulate

    done = emulate(path, folder / "emulated.onnx")
    assert done.status == "emulated", done.reason
    return run(folder / "emulated.onnx", arrays, optimise=False)


def test_auto_is_right_on_the_mini_network_with_fewer_casts_than_two_steps(
    convert: Callable[..., Converted], tmp_path: Path
) -> None:
    faces = {"face": _faces(2)}
    source = run(MINI, faces)
    _, _, path = convert(MINI, faces, keep=[])
    assert np.isnan(_as_hardware(path, faces, tmp_path)[0]).all(), (
        "without auto it must be wrong, or this shows nothing"
    )
    result, report, path = convert(MINI, faces)
    answers = _as_hardware(path, faces, tmp_path)
    for ours, theirs in zip(source, answers, strict=True):
        assert np.abs(ours - theirs).max() < 5e-3 * np.abs(ours).max()
    casts = sum(each.op_type == "Cast" for each in result.graph.node)
    assert casts <= 16, "the two steps leave 127"
    products = [each for each in result.graph.node if each.op_type == "MatMul"]
    weights = {each.name: each.data_type for each in result.graph.initializer}
    assert {weights[each.input[1]] for each in products if each.input[1] in weights} == {onnx.TensorProto.FLOAT16}
    kept = report["kept_by_measurement"]
    assert {each["channel"] for each in kept} == {MINI_CHANNEL}
    assert {each["because"] for each in kept} == {
        "makes what was measured beyond float16's range",
        "reads what was measured beyond float16's range",
    }
    assert all(each["largest"] == pytest.approx(1.6e5, rel=0.05) for each in kept)
    assert report["ranges"]["residual_stream"]["scale"] == 0.25


def test_auto_gives_the_same_bytes_again(convert: Callable[..., Converted]) -> None:
    faces = {"face": _faces(1)}
    _, first, path = convert(MINI, faces)
    written = path.read_bytes()
    _, second, path = convert(MINI, faces)
    assert path.read_bytes() == written
    assert first == second


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"clip_bounds_as_attributes"}))
def test_auto_is_no_worse_on_any_kind_of_graph(name: str, convert: Callable[..., Converted], tmp_path: Path) -> None:
    each = KINDS[name]()
    expected = run(each.proto, each.feeds)
    try:
        _, _, path = convert(each.proto, each.feeds)
    except StepError as error:
        assert "no node that can be converted" in str(error) or "ranges are measured from" in str(error)
        return
    for ours, theirs in zip(expected, _as_hardware(path, each.feeds, tmp_path), strict=True):
        finite = np.isfinite(ours)
        assert np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
        scale = max(float(np.abs(ours[finite]).max(initial=0)), 1e-9)
        assert float(np.abs(ours[finite].astype(np.float64) - theirs[finite]).max(initial=0)) <= each.tolerance * scale


def _kept(report: dict[str, Any]) -> set[str]:
    return {each["node"] for each in report["kept_by_measurement"]}


CASES: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], np.ndarray, set[str]]] = {
    "a product beyond the range, and what moves and reads it": (
        [
            node("Mul", ["x", "x"], ["a"], name="square"),
            node("Mul", ["a", "x"], ["b"], name="cube"),
            node("Transpose", ["b"], ["t"], name="moved", perm=[0, 1]),
            node("Tanh", ["t"], ["y"], name="bounded"),
        ],
        [],
        np.full((2, 4), 60.0),
        {"Mul cube", "Transpose moved", "Tanh bounded"},
    ),
    "a mean whose sum is beyond the range": (
        [
            node("Mul", ["x", "two"], ["a"], name="twice"),
            node("ReduceMean", ["a"], ["m"], name="mean", keepdims=1),
            node("Add", ["m", "x"], ["y"], name="sum"),
        ],
        [tensor("two", [2.0])],
        np.full((1, 8, 2048), 10.0),
        {"ReduceMean mean"},
    ),
    "a norm whose squares are beyond the range": (
        [node("Mul", ["x", "two"], ["a"], name="twice"), node("ReduceL2", ["a"], ["y"], name="norm", keepdims=1)],
        [tensor("two", [2.0])],
        np.full((2, 4), 150.0),
        {"ReduceL2 norm"},
    ),
    "a divisor that float16 makes zero": (
        [
            node("Mul", ["x", "x"], ["a"], name="square"),
            node("Sqrt", ["a"], ["s"], name="root"),
            node("Div", ["x", "s"], ["y"], name="quotient"),
        ],
        [],
        np.array([[1e-5, 1.0, 0.5, -2.0]]),
        {"Mul square", "Sqrt root"},
    ),
    "a tensor that float16 cannot tell from noise": (
        [node("Mul", ["x", "small"], ["a"], name="shrink"), node("Mul", ["a", "large"], ["y"], name="grow")],
        [tensor("small", [1e-6]), tensor("large", [6e4])],
        np.array([[0.5, 1.0, -1.0, 0.25]]),
        {"Mul shrink", "Mul grow"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_auto_keeps_what_float16_cannot_hold(name: str, convert: Callable[..., Converted], tmp_path: Path) -> None:
    nodes, constants, x, kept = CASES[name]
    shape = ["n", *x.shape[1:]]
    made = model(
        [node("Tanh", ["z"], ["other"], name="other"), *nodes],
        [value("x", shape), value("z", shape)],
        [value("y", None), value("other", shape)],
        constants,
    )
    feeds = {"x": x.astype(np.float32), "z": np.zeros_like(x, np.float32)}
    _, report, path = convert(made, feeds)
    assert _kept(report) == kept
    expected, answer = run(made, feeds)[0], _as_hardware(path, feeds, tmp_path)[0]
    assert np.abs(expected - answer).max() < 2e-3 * np.abs(expected).max()


def test_a_result_of_a_branch_beyond_the_range_stays_in_both_branches(convert: Callable[..., Converted]) -> None:
    nodes = [
        node("Tanh", ["x"], ["h"], name="before"),
        node(
            "If",
            ["c"],
            ["b"],
            then_branch=graph([node("Mul", ["h", "w"], ["t"], name="in_then")], [], [value("t", ["n", 4])]),
            else_branch=graph([node("Add", ["h", "w"], ["e"], name="in_else")], [], [value("e", ["n", 4])]),
        ),
        node("Mul", ["b", "b"], ["y"], name="after"),
    ]
    made = model(nodes, [value("x", ["n", 4]), value("c", [], BOOL)], [value("y", ["n", 4])], [tensor("w", [6e4] * 4)])
    _, report, _ = convert(made, {"x": np.ones((2, 4), np.float32), "c": np.array(True)})
    assert {"Mul in_then", "Add in_else", "Mul after"} <= _kept(report)


def test_auto_stands_beside_other_entries(convert: Callable[..., Converted]) -> None:
    _, report, _ = convert(MINI, {"face": _faces(1)}, keep=["auto", "Softmax"])
    assert report["kept_because"]["named in keep"] == 3
    assert "keep_without_match" not in report
    assert Float16Parameters(keep="auto").keep == ("auto",)  # type: ignore[arg-type]
    assert parse_parameters("float16", {"keep": "auto"}) == {"keep": ["auto"]}


def test_auto_without_samples_says_what_to_do(convert: Callable[..., Converted]) -> None:
    with pytest.raises(StepError, match="needs samples for keep: auto") as caught:
        convert(_doubling(["n", 4]), None)
    assert "--samples FEEDS.npz" in caught.value.remedy


@settings(max_examples=30)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8))
def test_inputs_of_the_graph_are_looked_at_as_numpy_does(numbers: list[float]) -> None:
    from bot.graph.ranges import Range, _look

    seen = Range("x", "Input", "")
    seen.add(_look(np.array(numbers, np.float32)))
    magnitude = np.abs(np.array(numbers, np.float32))
    assert (seen.values, seen.largest) == (len(numbers), magnitude.max())
    assert seen.smallest == min(magnitude[magnitude > 0], default=np.inf)
