"""Weights in eight bits in a graph that computes in float: what is rounded, how it is read, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import INT64, model, node, run, save, tensor, value

from bot.errors import StepError
from bot.graph.int8.choosing import KEEP, WITHIN
from bot.graph.int8.storing import ELSEWHERE, FEW, INFINITE
from bot.graph.int8.weights import EightBits, scales_of, tiles
from bot.graph.rebuild.weights import ArrayPayload
from bot.graph.steps import parse_parameters

Step = Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]

GENERATOR = np.random.default_rng(5)


def encoder(opset: int = 17) -> onnx.ModelProto:
    """Ids to logits: a table that is looked up in and, as its transpose, multiplied with; two MatMul, two Gemm."""
    generator = np.random.default_rng(5)
    weights = {
        "table": generator.normal(0, 1, (80, 32)) * generator.uniform(0.1, 3, (80, 1)),
        "up": generator.normal(0, 0.2, (32, 64)) * generator.uniform(0.1, 3, (1, 64)),
        "down": generator.normal(0, 0.2, (64, 32)),
        "turned": generator.normal(0, 0.2, (48, 32)),
        "straight": generator.normal(0, 0.2, (48, 32)),
        "bias": generator.normal(0, 0.2, (48,)),
    }
    nodes = [
        node("Gather", ["table", "ids"], ["e"], name="look_up"),
        node("MatMul", ["e", "up"], ["u"], name="up"),
        node("Relu", ["u"], ["r"], name="relu"),
        node("MatMul", ["r", "down"], ["d"], name="down"),
        node("Reshape", ["d", "shape"], ["f"], name="flat"),
        node("Gemm", ["f", "turned", "bias"], ["t"], name="turned", transB=1, alpha=0.5),
        node("Gemm", ["t", "straight"], ["s"], name="straight"),
        node("Gemm", ["s", "table"], ["y"], name="logits", transB=1),
    ]
    constants = [tensor(name, array) for name, array in weights.items()]
    constants.append(tensor("shape", [-1, 32], np.int64))
    return model(nodes, [value("ids", ["N", "L"], INT64)], [value("y", ["M", 80])], constants, opset=opset)


def ids() -> dict[str, np.ndarray]:
    return {"ids": np.random.default_rng(2).integers(-80, 80, (3, 7))}


def initializers(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}


def rounded(proto: onnx.ModelProto, name: str, block: int | None = None) -> np.ndarray:
    """A matrix of the file as its DequantizeLinear gives it."""
    (found,) = (
        each for each in proto.graph.node if each.op_type == "DequantizeLinear" and each.name == f"{name}_float"
    )
    given = initializers(proto)
    axis = next(each.i for each in found.attribute if each.name == "axis")
    numbers, scales = given[found.input[0]].astype(np.float32), given[found.input[1]]
    if block:
        scales = np.take(np.repeat(scales, block, axis=axis), range(numbers.shape[axis]), axis=axis)
    else:
        scales = np.expand_dims(scales, 1 - axis)
    return np.asarray(numbers * scales)


# -- what is rounded

magnitudes = st.floats(0, 2.0**127, width=32) | st.floats(0, 1, width=32) | st.just(0.0)


@settings(max_examples=80)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    axis=st.sampled_from([0, 1]),
    block=st.sampled_from([None, 1, 3, 4, 7]),
    size=magnitudes,
    seed=st.integers(0, 999),
    cuts=st.lists(st.integers(0, 400), max_size=5),
)
def test_no_weight_is_further_off_than_half_a_step(
    shape: tuple[int, int], axis: int, block: int | None, size: float, seed: int, cuts: list[int]
) -> None:
    """However the contents are cut into pieces: each tile's scale is its largest magnitude over 127, and rounds so."""
    matrix = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32) * np.float32(size)
    flat = matrix.reshape(-1)
    places = [0, *sorted(min(cut, flat.size) for cut in cuts), flat.size]
    pieces = [flat[start:stop].view(np.uint8) for start, stop in pairwise(places)]
    parted = tiles(shape, axis, block)
    scales = scales_of(pieces, parted)
    assert scales is not None
    stored = EightBits(ArrayPayload(matrix), parted, scales)
    numbers = stored.read().view(np.int8).reshape(shape).astype(np.float64)
    each = np.kron(scales, np.ones((parted.rows, parted.columns)))[: shape[0], : shape[1]]
    assert stored.length == matrix.size and np.abs(numbers).max() <= 127
    assert (np.abs(numbers * each - matrix) <= each / 2 * (1 + 1e-5)).all()
    tile = np.abs(matrix[: parted.rows, : parted.columns]).max()
    assert scales[0, 0] == max(tile / np.float32(127), np.finfo(np.float32).tiny)
    changed, whole = stored.squared_error()
    assert changed == pytest.approx(((numbers * each - matrix) ** 2).sum(), rel=1e-3, abs=1e-12 * whole)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_has_no_scale(bad: float) -> None:
    matrix = np.ones((40, 40), np.float32)
    matrix[17, 3] = bad
    assert scales_of([matrix.reshape(-1).view(np.uint8)], tiles((40, 40), 1, None)) is None


# -- what is written


@pytest.mark.parametrize("block", [None, 16])
def test_every_reader_gets_what_its_channel_scale_leaves(step: Step, block: int | None) -> None:
    source = encoder()
    found, report = step("quantize_weights", source, **({"block": block} if block else {}))
    assert report["operators"] == {"Gather": 1, "Gemm": 3, "MatMul": 2}
    assert report["nodes_kept"] == 0 and report["kept_because"] == {}
    before = initializers(source)
    for name, axis in (("up", 1), ("down", 1), ("turned", 0), ("straight", 1), ("table", 0)):
        error = np.abs(rounded(found, name, block) - before[name])
        largest = np.abs(before[name]).max(axis=1 - axis, keepdims=True)
        assert (error <= largest / 254 * (1 + 1e-5)).all()
    kinds = {each.data_type for each in found.graph.initializer if len(each.dims) == 2 and "scale" not in each.name}
    assert kinds == {TensorProto.INT8}
    exact = run(source, ids())[0]
    assert np.linalg.norm(run(found, ids())[0] - exact) < 0.03 * np.linalg.norm(exact)
    assert [each.version for each in found.opset_import] == [21 if block else 17]
    assert found.ir_version == 10 and found.producer_name == "test"


def test_it_computes_what_onnx_says_that_its_nodes_compute(step: Step) -> None:
    """Any other runtime reads it, too: no operator but ONNX's own."""
    from onnx.reference import ReferenceEvaluator

    for block in (None, 32):
        found, _ = step("quantize_weights", encoder(19), **({"block": block} if block else {}))
        assert {each.domain for each in found.graph.node} == {""}
        exact = run(encoder_like(found, block), ids())[0]
        answers: Any = ReferenceEvaluator(found).run(None, ids())
        np.testing.assert_allclose(answers[0], exact, rtol=2e-4, atol=2e-4)


def encoder_like(found: onnx.ModelProto, block: int | None) -> onnx.ModelProto:
    """The float graph around the rounded matrices."""
    proto = encoder()
    for each in proto.graph.initializer:
        if each.name in ("up", "down", "turned", "straight"):
            each.CopyFrom(tensor(each.name, rounded(found, each.name, block)))
    given = initializers(found)
    look_up = given["table_int8"].astype(np.float32) * given["table_row_scale"]
    proto.graph.initializer.append(tensor("looked_up", look_up))
    proto.graph.node[0].input[0] = "looked_up"
    (table,) = (each for each in proto.graph.initializer if each.name == "table")
    table.CopyFrom(tensor("table", rounded(found, "table", block)))
    return proto


def test_rows_of_a_table_are_read_in_eight_bits(step: Step) -> None:
    """Only the rows that are asked for become float: the table is never unpacked."""
    found, _ = step("quantize_weights", encoder())
    readers = {each.input[0]: each.op_type for each in found.graph.node if each.input}
    assert readers["table_row_scale"] == "Gather"
    looked_up = [each for each in found.graph.node if each.op_type == "Gather" and each.input[0] == "table_int8"]
    assert len(looked_up) == 1
    one = run(found, {"ids": np.array([[-1]])})[0]
    np.testing.assert_array_equal(one, run(found, {"ids": np.array([[79]])})[0])


def test_what_two_nodes_read_is_there_once(step: Step) -> None:
    proto = encoder()
    proto.graph.node.append(node("MatMul", ["r", "down"], ["d2"], name="again"))
    proto.graph.output.append(value("d2", None))
    found, report = step("quantize_weights", proto)
    assert report["nodes_quantized"] == 7 and report["weights"]["matrices"] == 5
    names = Counter(each.name for each in found.graph.initializer)
    assert set(names.values()) == {1} and "table_int8" in names and "down_int8" in names
    assert [each.op_type for each in found.graph.node].count("DequantizeLinear") == 5


def test_a_square_matrix_that_is_read_both_ways_has_both_kinds_of_scale(step: Step) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="columns"),
        node("Gemm", ["a", "w"], ["y"], name="rows", transB=1),
    ]
    matrix = GENERATOR.normal(0, 1, (32, 32)) * GENERATOR.uniform(0.01, 9, (1, 32))
    proto = model(nodes, [value("x", ["N", 32])], [value("y", ["N", 32])], [tensor("w", matrix)])
    found, report = step("quantize_weights", proto)
    assert report["weights"]["matrices"] == 2
    given = initializers(found)
    assert given["w_scale"].shape == given["w_scale_1"].shape == (32,)
    assert not np.array_equal(given["w_int8"], given["w_int8_1"])
    x = {"x": GENERATOR.normal(0, 1, (4, 32)).astype(np.float32)}
    exact = run(proto, x)[0]
    assert np.linalg.norm(run(found, x)[0] - exact) < 0.02 * np.linalg.norm(exact)


def test_constant_nodes_are_weights_too(step: Step) -> None:
    weight = tensor("", GENERATOR.normal(0, 1, (48, 32)))
    nodes = [node("Constant", [], ["w"], name="c", value=weight), node("MatMul", ["x", "w"], ["y"], name="m")]
    found, report = step("quantize_weights", model(nodes, [value("x", ["N", 48])], [value("y", ["N", 32])]))
    assert report["operators"] == {"MatMul": 1}
    assert [each.op_type for each in found.graph.node] == ["DequantizeLinear", "MatMul"]


def test_a_block_may_be_cut_short_by_the_end_of_its_channel(step: Step) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"], name="m")]
    matrix = GENERATOR.normal(0, 1, (50, 32))
    matrix[48:] *= 50
    proto = model(nodes, [value("x", ["N", 50])], [value("y", ["N", 32])], [tensor("w", matrix)])
    found, _ = step("quantize_weights", proto, block=16)
    assert initializers(found)["w_scale"].shape == (4, 32)
    assert np.abs(rounded(found, "w", 16) - matrix)[:48].max() <= np.abs(matrix[:48]).max() / 254 * (1 + 1e-5)
    x = {"x": GENERATOR.normal(0, 1, (4, 50)).astype(np.float32)}
    exact = run(proto, x)[0]
    assert np.linalg.norm(run(found, x)[0] - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize(("opset", "block", "becomes"), [(11, None, 13), (13, None, 13), (18, 32, 21), (21, 32, 21)])
def test_the_opset_is_raised_only_as_far_as_it_must_be(step: Step, opset: int, block: int | None, becomes: int) -> None:
    found, _ = step("quantize_weights", encoder(opset), **({"block": block} if block else {}))
    assert [each.version for each in found.opset_import] == [becomes]


def test_an_answer_depends_on_no_batch_mate(step: Step) -> None:
    found, _ = step("quantize_weights", encoder())
    rows = ids()["ids"]
    together = run(found, {"ids": rows})[0].reshape(3, 7, -1)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(run(found, {"ids": row[None]})[0], together[place])


def test_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    source = save(encoder(), tmp_path / "m.onnx")
    script = (
        "import sys; from bot.graph import tasks; tasks.step({'step': 'quantize_weights', 'source': sys.argv[1], "
        "'output': sys.argv[2], 'parameters': {'block': 16}, 'scratch': sys.argv[3]}, lambda *_: None)"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, str(source), str(tmp_path / f"{seed}.onnx"), str(tmp_path)]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}, cwd=Path(__file__).parents[2])
    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "2.onnx").read_bytes()


# -- what stays float


def test_keep_and_operators(step: Step) -> None:
    found, report = step("quantize_weights", encoder(), keep=["look_up", "nothing"], keep_within=1)
    assert report["kept_because"] == {KEEP: 1, WITHIN: 2} and report["keep_without_match"] == ["nothing"]
    assert {"table", "straight"} <= set(initializers(found))
    found, report = step("quantize_weights", encoder(), operators=["Gemm"])
    assert report["operators"] == {"Gemm": 2} and report["kept_because"] == {ELSEWHERE: 1}
    with pytest.raises(StepError, match="cannot quantise Conv"):
        step("quantize_weights", encoder(), operators=["Conv"])


def test_reasons_to_stay_float(step: Step) -> None:
    proto = encoder()
    weights = {each.name: each for each in proto.graph.initializer}
    broken = numpy_helper.to_array(weights["up"]).copy()
    broken[3, 3] = np.inf
    weights["up"].CopyFrom(tensor("up", broken))
    proto.graph.input.append(value("down", [64, 32]))
    proto.graph.initializer.append(tensor("small", GENERATOR.normal(0, 1, (80, 4))))
    proto.graph.node.append(node("MatMul", ["y", "small"], ["z"], name="small"))
    proto.graph.node.append(node("Shape", ["turned"], ["n"], name="shape"))
    proto.graph.output.extend([value("z", None), value("n", None, INT64)])
    found, report = step("quantize_weights", proto)
    assert report["kept_because"] == {INFINITE: 1, ELSEWHERE: 2, FEW: 1}
    assert {"up", "down", "turned", "small"} <= set(initializers(found))
    assert report["operators"] == {"Gather": 1, "Gemm": 2}


def test_what_a_branch_reads_stays_float(step: Step) -> None:
    inner = helper.make_graph([node("Identity", ["down"], ["o"], name="i")], "g", [], [value("o", [64, 32])])
    proto = encoder()
    proto.graph.input.append(value("c", [], TensorProto.BOOL))
    proto.graph.node.append(node("If", ["c"], ["z"], name="if", then_branch=inner, else_branch=inner))
    proto.graph.output.append(value("z", [64, 32]))
    _, report = step("quantize_weights", proto)
    assert report["kept_because"] == {ELSEWHERE: 1}


def test_weights_of_a_branch_are_none_of_the_graph(step: Step) -> None:
    """They stay as they are, and the runtime's own operators in a branch keep their import."""
    inner = helper.make_graph(
        [node("Gelu", ["e"], ["o"], name="i", domain="com.microsoft")], "g", [], [value("o", ["N", "L", 32])]
    )
    proto = encoder()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.input.append(value("c", [], TensorProto.BOOL))
    proto.graph.node.append(node("If", ["c"], ["z"], name="if", then_branch=inner, else_branch=inner))
    proto.graph.output.append(value("z", ["N", "L", 32]))
    found, _ = step("quantize_weights", proto)
    assert {each.domain for each in found.opset_import} == {"", "com.microsoft"}


def test_what_has_no_weights_or_is_quantised_already_is_refused(step: Step) -> None:
    once, _ = step("quantize_weights", encoder())
    with pytest.raises(StepError, match="quantised already"):
        step("quantize_weights", once)
    proto = model([node("Relu", ["x"], ["y"], name="r")], [value("x", [2])], [value("y", [2])])
    with pytest.raises(StepError, match="no node to quantise"):
        step("quantize_weights", proto)
    nodes = [node("MatMul", ["x", "w"], ["y"], name="m")]
    proto = model(nodes, [value("x", ["N", 4])], [value("y", ["N", 4])], [tensor("w", np.eye(4))])
    with pytest.raises(StepError, match=f"1 nodes: {FEW}"):
        step("quantize_weights", proto)


@pytest.mark.parametrize(
    ("raw", "says"), [({"block": 20}, "block"), ({"activations": "int8"}, "activations"), ({"kep": "a"}, "'keep'")]
)
def test_wrong_parameters_are_named(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_parameters("quantize_weights", raw)
