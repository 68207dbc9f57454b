from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_graphs import BOOL, FLOAT, FLOAT16, INT64, graph, model, node, run, tensor, value

from bot.graph.cast_pairs import remove_round_trips
from bot.graph.model_file import Model

MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"
BIG = np.array([1e5, 1.0, -3e5], np.float32)

Step = Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]


def _down(source: str, result: str) -> onnx.NodeProto:
    return node("Cast", [source], [result], to=FLOAT16)


def _up(source: str, result: str) -> onnx.NodeProto:
    return node("Cast", [source], [result], to=FLOAT)


def _ops(proto: onnx.ModelProto) -> list[str]:
    return [each.op_type for each in proto.graph.node]


def test_a_round_trip_is_removed_and_large_values_survive(step: Step) -> None:
    made = model(
        [node("Neg", ["x"], ["a"]), _down("a", "h"), _up("h", "f"), node("Neg", ["f"], ["y"])],
        [value("x", [3])],
        [value("y", [3])],
    )
    made.graph.value_info.extend([value("h", [3], FLOAT16), value("f", [3]), value("a", [3])])
    assert np.isinf(run(made, {"x": BIG})[0]).any()
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 1, "down_casts_removed": 1}
    assert _ops(result) == ["Neg", "Neg"]
    assert [each.name for each in result.graph.value_info] == ["a"]
    assert np.array_equal(run(result, {"x": BIG})[0], BIG)


def test_a_cast_down_that_others_read_stays(step: Step) -> None:
    made = model(
        [_down("x", "h"), _up("h", "f"), node("Neg", ["f"], ["y"]), node("Neg", ["h"], ["z"])],
        [value("x", [3])],
        [value("y", [3]), value("z", [3], FLOAT16)],
    )
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 1, "down_casts_removed": 0}
    assert _ops(result) == ["Cast", "Neg", "Neg"]


def test_a_cast_down_that_is_an_output_stays(step: Step) -> None:
    made = model(
        [_down("x", "h"), _up("h", "f"), node("Neg", ["f"], ["y"])],
        [value("x", [3])],
        [value("y", [3]), value("h", [3], FLOAT16)],
    )
    _, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 1, "down_casts_removed": 0}


def test_an_output_that_was_cast_up_keeps_its_name(step: Step) -> None:
    made = model([_down("x", "h"), _up("h", "y")], [value("x", [3])], [value("y", [3])])
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 1, "down_casts_removed": 1}
    assert _ops(result) == ["Identity"]
    assert np.array_equal(run(result, {"x": BIG})[0], BIG)


def test_a_chain_comes_down_to_its_beginning(step: Step) -> None:
    made = model(
        [_down("x", "h1"), _up("h1", "f1"), _down("f1", "h2"), _up("h2", "f2"), node("Neg", ["f2"], ["y"])],
        [value("x", [3])],
        [value("y", [3])],
    )
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 2, "down_casts_removed": 2}
    assert list(result.graph.node[0].input) == ["x"]


def test_casts_of_integers_and_of_halves_are_no_round_trips(step: Step) -> None:
    made = model(
        [_down("i", "h"), _up("h", "y"), _down("g", "h2"), _up("h2", "z")],
        [value("i", [3], INT64), value("g", [3], FLOAT16)],
        [value("y", [3]), value("z", [3])],
    )
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 0, "down_casts_removed": 0}
    assert _ops(result) == ["Cast"] * 4


def test_a_branch_that_casts_up_what_was_cast_down_outside_reads_the_original(step: Step) -> None:
    then = graph([_up("h", "f"), node("Neg", ["f"], ["a"])], [], [value("a", [3])])
    other = graph([_up("h", "b")], [], [value("b", [3])])
    made = model(
        [node("Neg", ["x"], ["n"]), _down("n", "h"), node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [value("x", [3]), value("c", [], BOOL)],
        [value("y", [3])],
    )
    result, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 2, "down_casts_removed": 1}
    assert _ops(result) == ["Neg", "If"]
    assert np.array_equal(run(result, {"x": BIG, "c": np.array(True)})[0], BIG)
    assert np.array_equal(run(result, {"x": BIG, "c": np.array(False)})[0], -BIG)


def test_a_name_that_means_two_tensors_is_left_alone(step: Step) -> None:
    def branch(output: str) -> onnx.GraphProto:
        return graph(
            [_down("t", "h"), _up("h", "f"), node("Add", ["f", "t"], [output])],
            [],
            [value(output, [3])],
            [tensor("t", BIG)],
        )

    made = model(
        [node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))],
        [value("c", [], BOOL)],
        [value("y", [3])],
    )
    _, report = step("drop_cast_round_trips", made)
    assert report == {"up_casts_removed": 0, "down_casts_removed": 0}


def test_after_the_common_conversion_of_the_mini_network(step: Step) -> None:
    """The seed's two steps, on its network with three blocks and random weights."""
    kept = ["LayerNormalization", "Softmax", "Add", "Mul"]
    half, _ = step("float16_common", MINI, keep=kept)
    result, report = step("drop_cast_round_trips", half)
    assert report == {"up_casts_removed": 13, "down_casts_removed": 5}
    before = sum(each.op_type == "Cast" for each in half.graph.node)
    after = sum(each.op_type == "Cast" for each in result.graph.node)
    assert before - after == 18
    feeds = {"face": np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)}
    shape = [axis.dim_value or 2 for axis in result.graph.input[0].type.tensor_type.shape.dim]
    feeds = {result.graph.input[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    for ours, source in zip(run(result, feeds), run(MINI, feeds), strict=True):
        assert np.abs(ours - source).max() < 0.01 * max(1.0, np.abs(source).max())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["down", "up", "neg"]), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_no_round_trip_is_left_and_values_that_fit_do_not_change(kinds: list[str], random: Any) -> None:
    """Random chains with side branches: the float32 answer for numbers that float16 holds exactly stays the same."""
    nodes, dtypes = [], {"x": FLOAT}
    for number, kind in enumerate(kinds):
        wanted = {"down": FLOAT, "up": FLOAT16}.get(kind)
        choices = [name for name, dtype in dtypes.items() if wanted in (None, dtype)]
        if not choices:
            continue
        source, result = random.choice(choices), f"t{number}"
        maker = {"down": _down, "up": _up}.get(kind)
        nodes.append(maker(source, result) if maker else node("Neg", [source], [result]))
        dtypes[result] = {"down": FLOAT16, "up": FLOAT}.get(kind, dtypes[source])
    if not nodes:
        return
    read = {name for each in nodes for name in each.input}
    outputs = [value(name, [2], dtype) for name, dtype in dtypes.items() if name not in read and name != "x"]
    made = model(nodes, [value("x", [2])], outputs)
    feeds = {"x": np.array([0.5, -1024.0], np.float32)}
    before = run(made, feeds)
    remove_round_trips(Model(made))
    onnx.checker.check_model(made, full_check=True)
    for old, new in zip(before, run(made, feeds), strict=True):
        assert np.array_equal(old, new)
    down = {
        each.output[0]: each for each in made.graph.node if each.op_type == "Cast" and each.attribute[0].i == FLOAT16
    }
    ups = [each for each in made.graph.node if each.op_type == "Cast" and each.attribute[0].i == FLOAT]
    assert not any(each.input[0] in down for each in ups)
