"""Small graphs of the kinds that conversions to half precision get wrong, with inputs to run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper
from onnx_graphs import BOOL, FLOAT, FLOAT16, INT64, graph, model, node, tensor, value

FLOAT_MIN = float(np.finfo(np.float32).min)


@dataclass
class Kind:
    """One graph.

    Attributes:
        proto: The graph.
        feeds: Inputs to run it on.
        tolerance: How far the answer may be from the source's, relative to the largest magnitude of the source's.
        judged_by_reference: ONNX's reference evaluator computes these operators as hardware would in true float16.
    """

    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    tolerance: float = 2e-3
    judged_by_reference: bool = True


KINDS: dict[str, Callable[[], Kind]] = {}


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make
    return make


def _numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


X34 = _numbers(3, 4)
W44 = _numbers(4, 4, seed=1)


def _attention(mask_nodes: list[onnx.NodeProto], mask: str, **parts: object) -> onnx.ModelProto:
    """Scores, a mask that is added, a softmax, and the values."""
    return model(
        [
            node("MatMul", ["q", "kt"], ["scores"]),
            *mask_nodes,
            node("Add", ["scores", mask], ["masked"]),
            node("Softmax", ["masked"], ["weights"], axis=-1),
            node("MatMul", ["weights", "v"], ["y"]),
        ],
        [value("q", [3, 4]), value("kt", [4, 5]), value("v", [5, 4]), *parts.get("inputs", [])],  # type: ignore[misc]
        [value("y", [3, 4])],
        parts.get("initializers", ()),  # type: ignore[arg-type]
    )


ATTENTION = {"q": _numbers(3, 4, seed=2), "kt": _numbers(4, 5, seed=3), "v": _numbers(5, 4, seed=4)}


@kind
def plain_layers() -> Kind:
    made = model(
        [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["s"]), node("Relu", ["s"], ["y"])],
        [value("x", ["n", 4])],
        [value("y", ["n", 4])],
        [tensor("w", W44), tensor("b", _numbers(4))],
    )
    return Kind(made, {"x": X34})


@kind
def cast_to_float_in_the_source() -> Kind:
    made = model(
        [node("Cast", ["i"], ["f"], to=FLOAT), node("Mul", ["x", "f"], ["m"]), node("MatMul", ["m", "w"], ["y"])],
        [value("x", [3, 4]), value("i", [3, 4], INT64)],
        [value("y", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34, "i": np.arange(12).reshape(3, 4)})


@kind
def casts_to_and_from_float16_in_the_source() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Cast", ["r"], ["h"], to=FLOAT16),
            node("Neg", ["h"], ["n"]),
            node("Cast", ["n"], ["f"], to=FLOAT),
            node("Mul", ["f", "x"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
    )
    return Kind(made, {"x": X34})


@kind
def initializer_shared_with_a_node_that_stays() -> Kind:
    made = model(
        [node("CumSum", ["w", "axis"], ["c"]), node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "c"], ["y"])],
        [value("x", [4, 4])],
        [value("y", [4, 4])],
        [tensor("w", W44), tensor("axis", 0, np.int64)],
    )
    return Kind(made, {"x": _numbers(4, 4)})


@kind
def weights_captured_by_a_branch() -> Kind:
    then = graph([node("MatMul", ["x", "w"], ["a"])], [], [value("a", [3, 4])])
    other = graph([node("MatMul", ["h", "w"], ["t"]), node("Neg", ["t"], ["b"])], [], [value("b", [3, 4])])
    made = model(
        [
            node("Tanh", ["x"], ["h"]),
            node("If", ["c"], ["z"], then_branch=then, else_branch=other),
            node("Relu", ["z"], ["y"]),
        ],
        [value("x", [3, 4]), value("c", [], BOOL)],
        [value("y", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34, "c": np.array(False)})


@kind
def equal_initializer_names_in_two_branches() -> Kind:
    def branch(output: str, factor: float) -> onnx.GraphProto:
        return graph([node("Mul", ["x", "w"], [output])], [], [value(output, [3, 4])], [tensor("w", [factor])])

    made = model(
        [node("If", ["c"], ["y"], then_branch=branch("a", 2), else_branch=branch("b", 3))],
        [value("x", [3, 4]), value("c", [], BOOL)],
        [value("y", [3, 4])],
    )
    return Kind(made, {"x": X34, "c": np.array(True)})


@kind
def initializer_that_hides_an_outer_one() -> Kind:
    """ONNX Runtime reads the inner one; ONNX's reference evaluator takes the outer one."""
    then = graph([node("Mul", ["a", "w"], ["t"])], [], [value("t", [3, 4])], [tensor("w", [2.0])])
    other = graph([node("Neg", ["a"], ["e"])], [], [value("e", [3, 4])])
    made = model(
        [node("Mul", ["x", "w"], ["a"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [value("x", [3, 4]), value("c", [], BOOL)],
        [value("y", [3, 4])],
        [tensor("w", [3.0])],
    )
    return Kind(made, {"x": X34, "c": np.array(True)}, judged_by_reference=False)


@kind
def number_beyond_the_range_in_one_branch() -> Kind:
    """What comes out of it is too large for float16, and what reads it behind the branches brings it back."""
    then = graph([node("Mul", ["a", "big"], ["t"])], [], [value("t", [3, 4])], [tensor("big", [1e6])])
    other = graph([node("Neg", ["a"], ["e"])], [], [value("e", [3, 4])])
    made = model(
        [
            node("Exp", ["x"], ["a"]),
            node("If", ["c"], ["b"], then_branch=then, else_branch=other),
            node("Sqrt", ["b"], ["y"]),
        ],
        [value("x", [3, 4]), value("c", [], BOOL)],
        [value("y", [3, 4])],
    )
    return Kind(made, {"x": X34, "c": np.array(True)})


@kind
def number_beyond_the_range_in_a_loop() -> Kind:
    """It goes into the next turn, and out of the loop."""
    body = graph(
        [
            node("Mul", ["state", "big"], ["next"]),
            node("Sqrt", ["state"], ["each"]),
            node("Identity", ["go"], ["on"]),
        ],
        [value("i", [], INT64), value("go", [], BOOL), value("state", [3, 4])],
        [value("on", [], BOOL), value("next", [3, 4]), value("each", [3, 4])],
        [tensor("big", [1e6])],
    )
    made = model(
        [
            node("Exp", ["x"], ["a"]),
            node("Loop", ["trips", "", "a"], ["last", "all"], body=body),
            node("Sqrt", ["last"], ["s"]),
            node("Sqrt", ["s"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("all", [2, 3, 4])],
        [tensor("trips", 2, np.int64)],
    )
    return Kind(made, {"x": X34}, judged_by_reference=False)


@kind
def float_only_operator_in_a_branch() -> Kind:
    then = graph(
        [node("Range", ["zero", "four", "one"], ["r"]), node("Mul", ["x", "r"], ["a"])],
        [],
        [value("a", [3, 4])],
        [tensor("zero", 0), tensor("four", 4), tensor("one", 1)],
    )
    other = graph([node("Identity", ["x"], ["b"])], [], [value("b", [3, 4])])
    made = model(
        [node("If", ["c"], ["z"], then_branch=then, else_branch=other), node("MatMul", ["z", "w"], ["y"])],
        [value("x", [3, 4]), value("c", [], BOOL)],
        [value("y", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34, "c": np.array(True)})


@kind
def loop_that_carries_a_state() -> Kind:
    body = graph(
        [
            node("MatMul", ["state", "w"], ["m"]),
            node("Tanh", ["m"], ["next"]),
            node("Identity", ["go"], ["on"]),
            node("Mul", ["next", "scale"], ["each"]),
        ],
        [value("i", [], INT64), value("go", [], BOOL), value("state", [3, 4])],
        [value("on", [], BOOL), value("next", [3, 4]), value("each", [3, 4])],
        [tensor("scale", [2.0])],
    )
    made = model(
        [node("Loop", ["trips", "", "x"], ["last", "all"], body=body), node("MatMul", ["last", "w"], ["y"])],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("all", [3, 3, 4])],
        [tensor("w", W44), tensor("trips", 3, np.int64)],
    )
    return Kind(made, {"x": X34}, tolerance=5e-3, judged_by_reference=False)


@kind
def scan_over_rows() -> Kind:
    body = graph(
        [node("Add", ["state", "row"], ["next"]), node("Mul", ["next", "w"], ["out"])],
        [value("state", [4]), value("row", [4])],
        [value("next", [4]), value("out", [4])],
    )
    made = model(
        [node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1)],
        [value("x", [3, 4])],
        [value("last", [4]), value("y", [3, 4])],
        [tensor("zero", np.zeros(4)), tensor("w", _numbers(4))],
    )
    return Kind(made, {"x": X34})


@kind
def model_local_function() -> Kind:
    function = helper.make_function(
        "local",
        "Scaled",
        ["i"],
        ["o"],
        [node("Constant", [], ["k"], value_float=0.5), node("Mul", ["i", "k"], ["h"]), node("Tanh", ["h"], ["o"])],
        [helper.make_opsetid("", 18)],
    )
    made = model(
        [
            node("Scaled", ["x"], ["a"], domain="local"),
            node("MatMul", ["a", "w"], ["m"]),
            node("Scaled", ["m"], ["y"], domain="local"),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("w", W44)],
        domains={"local": 1},
        functions=[function],
    )
    return Kind(made, {"x": X34})


@kind
def initializer_that_is_an_output() -> Kind:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("w", [4, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34})


@kind
def input_that_is_an_output() -> Kind:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [3, 4])], [value("y", [3, 4]), value("x", [3, 4])])
    return Kind(made, {"x": X34})


@kind
def output_that_is_read_within() -> Kind:
    made = model(
        [node("Relu", ["x"], ["y"]), node("MatMul", ["y", "w"], ["z"])],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("z", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34})


@kind
def names_that_are_taken() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["x_fp16"]),
            node("Neg", ["x_fp16"], ["y_fp16"]),
            node("Exp", ["y_fp16"], ["y"], name="Cast_y"),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
    )
    return Kind(made, {"x": X34})


@kind
def constant_beyond_the_range() -> Kind:
    made = model(
        [node("Mul", ["x", "big"], ["a"]), node("Div", ["a", "big"], ["b"]), node("MatMul", ["b", "w"], ["y"])],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("big", [1e6]), tensor("w", W44)],
    )
    return Kind(made, {"x": X34})


@kind
def weights_beyond_the_range() -> Kind:
    made = model(
        [node("MatMul", ["x", "w"], ["a"]), node("Mul", ["a", "small"], ["b"]), node("Add", ["b", "x"], ["y"])],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("w", np.where(np.eye(4), 7e4, W44)), tensor("small", [1e-5 * 2])],
    )
    return Kind(made, {"x": X34 * 0.3})


@kind
def epsilon_that_would_vanish() -> Kind:
    made = model(
        [node("ReduceL2", ["x"], ["n"], keepdims=1), node("Max", ["n", "eps"], ["m"]), node("Div", ["x", "m"], ["y"])],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("eps", 1e-12)],
        opset=13,
    )
    return Kind(made, {"x": np.zeros((3, 4), np.float32)})


@kind
def root_mean_square_norm() -> Kind:
    made = model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Pow", ["h", "two"], ["sq"]),
            node("ReduceMean", ["sq", "axes"], ["ms"]),
            node("Add", ["ms", "eps"], ["e"]),
            node("Sqrt", ["e"], ["root"]),
            node("Div", ["h", "root"], ["n"]),
            node("Mul", ["n", "gain"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [
            tensor("w", W44),
            tensor("two", 2),
            tensor("axes", [-1], np.int64),
            tensor("eps", 1e-6),
            tensor("gain", _numbers(4)),
        ],
    )
    return Kind(made, {"x": X34 * 500}, tolerance=3e-3)


@kind
def variance_by_multiplication() -> Kind:
    made = model(
        [
            node("ReduceMean", ["x", "axes"], ["mean"]),
            node("Sub", ["x", "mean"], ["d"]),
            node("Mul", ["d", "d"], ["sq"]),
            node("ReduceMean", ["sq", "axes"], ["var"]),
            node("Add", ["var", "eps"], ["e"]),
            node("Sqrt", ["e"], ["root"]),
            node("Reciprocal", ["root"], ["r"]),
            node("Mul", ["d", "r"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("axes", [-1], np.int64), tensor("eps", 1e-12)],
    )
    return Kind(made, {"x": X34 * 1000}, tolerance=3e-3)


@kind
def mask_of_the_smallest_float() -> Kind:
    mask = np.where(np.arange(5) < 3, 0, FLOAT_MIN).reshape(1, 5)
    return Kind(_attention([], "mask", initializers=[tensor("mask", mask)]), ATTENTION)


@kind
def mask_computed_from_integers() -> Kind:
    nodes = [
        node("Cast", ["keep"], ["keep_f"], to=FLOAT),
        node("Sub", ["one", "keep_f"], ["drop"]),
        node("Mul", ["drop", "lowest"], ["mask"]),
    ]
    made = _attention(
        nodes,
        "mask",
        inputs=[value("keep", [1, 5], INT64)],
        initializers=[tensor("one", 1), tensor("lowest", FLOAT_MIN)],
    )
    return Kind(made, ATTENTION | {"keep": np.array([[1, 1, 0, 1, 0]])})


@kind
def mask_of_a_whole_row() -> Kind:
    """Every score of a row is masked: the source answers the mean of the values, and NaN would be the wrong one."""
    nodes = [node("Where", ["keep", "zero", "lowest"], ["mask"])]
    made = _attention(
        nodes, "mask", inputs=[value("keep", [3, 5], BOOL)], initializers=[tensor("zero", 0), tensor("lowest", -1e9)]
    )
    keep = np.ones((3, 5), bool)
    keep[1] = False
    keep[0, 2:] = False
    feeds = {name: each * np.float32(0.1) if name != "v" else each for name, each in ATTENTION.items()}
    return Kind(made, feeds | {"keep": keep}, tolerance=0.02)


@kind
def mask_that_is_subtracted() -> Kind:
    made = model(
        [
            node("Cast", ["drop"], ["drop_f"], to=FLOAT),
            node("Mul", ["drop_f", "huge"], ["penalty"]),
            node("Sub", ["scores", "penalty"], ["masked"]),
            node("Softmax", ["masked"], ["y"], axis=-1),
        ],
        [value("scores", [3, 5]), value("drop", [3, 5], BOOL)],
        [value("y", [3, 5])],
        [tensor("huge", 1e9)],
    )
    return Kind(made, {"scores": _numbers(3, 5), "drop": _numbers(3, 5) > 0.3})


@kind
def fill_with_the_smallest_float() -> Kind:
    nodes = [
        node("ConstantOfShape", ["shape"], ["full"], value=tensor("", [FLOAT_MIN])),
        node("Trilu", ["full", "k"], ["mask"], upper=1),
    ]
    initializers = [tensor("shape", [3, 5], np.int64), tensor("k", 1, np.int64)]
    return Kind(_attention(nodes, "mask", initializers=initializers), ATTENTION)


@kind
def clip_bounds_as_inputs() -> Kind:
    made = model(
        [
            node("Clip", ["x", "low", "high"], ["a"]),
            node("Min", ["a", "high"], ["b"]),
            node("MatMul", ["b", "w"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("low", 0), tensor("high", -FLOAT_MIN), tensor("w", W44)],
    )
    return Kind(made, {"x": X34})


@kind
def clip_bounds_as_attributes() -> Kind:
    made = model(
        [node("Clip", ["x"], ["a"], min=0.0, max=6.0), node("Clip", ["a"], ["y"], min=0.5)],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        opset=6,
        ir=4,
    )
    return Kind(made, {"x": X34}, judged_by_reference=False)


@kind
def padding_with_a_number_beyond_the_range() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Pad", ["r", "pads", "lowest"], ["p"]),
            node("MaxPool", ["p"], ["m"], kernel_shape=[2, 2]),
            node("Neg", ["m"], ["y"]),
        ],
        [value("x", [1, 1, 3, 4])],
        [value("y", [1, 1, 4, 5])],
        [tensor("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64), tensor("lowest", -1e5)],
    )
    return Kind(made, {"x": X34.reshape(1, 1, 3, 4)}, judged_by_reference=False)


@kind
def resize_with_scales() -> Kind:
    made = model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("Resize", ["c", "roi", "scales"], ["r"], mode="linear"),
            node("Relu", ["r"], ["y"]),
        ],
        [value("x", [1, 1, 4, 4])],
        [value("y", [1, 1, 8, 8])],
        [tensor("w", np.ones((1, 1, 1, 1))), tensor("roi", []), tensor("scales", [1, 1, 2, 2])],
    )
    return Kind(made, {"x": _numbers(1, 1, 4, 4)}, judged_by_reference=False)


@kind
def sequences() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("SequenceConstruct", ["r", "x"], ["s"]),
            node("SequenceAt", ["s", "one"], ["e"]),
            node("ConcatFromSequence", ["s"], ["all"], axis=0),
            node("MatMul", ["e", "w"], ["m"]),
            node("Neg", ["all"], ["z"]),
            node("Relu", ["m"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("z", [6, 4])],
        [tensor("one", 1, np.int64), tensor("w", W44)],
    )
    return Kind(made, {"x": X34})


@kind
def stale_and_wrong_declarations() -> Kind:
    chosen = plain_layers()
    chosen.proto.graph.value_info.extend([value("a", [7, 9]), value("gone", [2], FLOAT16)])
    return chosen


@kind
def unnamed_nodes_of_one_kind() -> Kind:
    nodes = [node("Add", ["x" if i == 0 else f"t{i}", "b"], [f"t{i + 1}" if i < 5 else "y"]) for i in range(6)]
    made = model(nodes, [value("x", [3, 4])], [value("y", [3, 4])], [tensor("b", _numbers(4))])
    return Kind(made, {"x": X34})


@kind
def positions_and_angles() -> Kind:
    """Sines of positions up to 5000: float16 knows no 2049, and an angle of 1000 only to half a radian."""
    made = model(
        [
            node("Cast", ["positions"], ["p"], to=FLOAT),
            node("Mul", ["p", "frequencies"], ["angles"]),
            node("Sin", ["angles"], ["s"]),
            node("Cos", ["angles"], ["c"]),
            node("Concat", ["s", "c"], ["table"], axis=-1),
            node("Mul", ["x", "table"], ["y"]),
        ],
        [value("positions", [3, 1], INT64), value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("frequencies", [1.0, 0.01])],
    )
    return Kind(made, {"positions": np.array([[1], [2049], [5000]]), "x": X34})


@kind
def constants_in_nodes() -> Kind:
    made = model(
        [
            node("Constant", [], ["k"], value=tensor("k", _numbers(4))),
            node("Constant", [], ["f"], value_float=0.25),
            node("Constant", [], ["l"], value_floats=[1.0, 2.0, 3.0, 4.0]),
            node("Mul", ["x", "k"], ["a"]),
            node("Add", ["a", "f"], ["b"]),
            node("CumSum", ["l", "axis"], ["cum"]),
            node("Add", ["b", "l"], ["c"]),
            node("Add", ["c", "cum"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("axis", 0, np.int64)],
    )
    return Kind(made, {"x": X34})


@kind
def weights_that_are_inputs_too() -> Kind:
    made = model(
        [node("MatMul", ["x", "w"], ["m"]), node("CumSum", ["w", "axis"], ["c"]), node("Add", ["m", "c"], ["y"])],
        [value("x", [4, 4]), value("w", [4, 4]), value("axis", [], INT64)],
        [value("y", [4, 4])],
        [tensor("w", W44), tensor("axis", 0, np.int64)],
        opset=11,
        ir=3,
    )
    return Kind(made, {"x": _numbers(4, 4)})


@kind
def input_with_a_default() -> Kind:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", [3, 4]), value("w", [4, 4])],
        [value("y", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34, "w": W44 * 2})


@kind
def operators_of_a_runtime() -> Kind:
    made = model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Gelu", ["a"], ["g"], domain="com.microsoft"),
            node("Relu", ["g"], ["r"]),
            node("MatMul", ["r", "w"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("w", W44)],
        domains={"com.microsoft": 1},
    )
    return Kind(made, {"x": X34}, judged_by_reference=False)


@kind
def machine_learning_operators() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Scaler", ["r"], ["s"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0]),
            node("MatMul", ["s", "w"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("w", W44)],
        domains={"ai.onnx.ml": 3},
    )
    return Kind(made, {"x": X34})


@kind
def detection_head() -> Kind:
    """TopK and NonMaxSuppression, whose boxes stay float32, beside a graph in float16."""
    made = model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Sigmoid", ["a"], ["s"]),
            node("TopK", ["s", "k"], ["top", "index"], axis=-1),
            node("Unsqueeze", ["s", "zero"], ["scores"]),
            node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        ],
        [value("x", [1, 4]), value("boxes", [1, 4, 4])],
        [value("top", [1, 2]), value("index", [1, 2], INT64), value("kept", [None, 3], INT64)],
        [tensor("w", W44), tensor("k", [2], np.int64), tensor("zero", [0], np.int64), tensor("most", [3], np.int64)],
    )
    boxes = np.array([[[0, 0, 10, 10], [0, 0, 10, 9], [500, 500, 600.5, 600], [0, 0, 3001, 3001]]], np.float32)
    return Kind(made, {"x": X34[:1], "boxes": boxes}, judged_by_reference=False)


@kind
def doubles_and_integers_beside() -> Kind:
    made = model(
        [
            node("Cast", ["d"], ["f"], to=FLOAT),
            node("Add", ["f", "x"], ["s"]),
            node("Cast", ["s"], ["back"], to=11),
            node("Add", ["back", "d"], ["z"]),
            node("Shape", ["s"], ["shape"]),
            node("ReduceProd", ["shape"], ["count"], keepdims=0),
            node("Relu", ["s"], ["y"]),
        ],
        [value("d", [3, 4], 11), value("x", [3, 4])],
        [value("y", [3, 4]), value("z", [3, 4], 11), value("count", [], INT64)],
    )
    return Kind(made, {"d": X34.astype(np.float64), "x": X34})


@kind
def moved_constants() -> Kind:
    made = model(
        [
            node("Transpose", ["w"], ["wt"], perm=[1, 0]),
            node("MatMul", ["x", "wt"], ["m"]),
            node("Gather", ["table", "ids"], ["g"]),
            node("Add", ["m", "g"], ["y"]),
        ],
        [value("x", [3, 4]), value("ids", [3], INT64)],
        [value("y", [3, 4])],
        [tensor("w", W44), tensor("table", _numbers(2000, 4, seed=5))],
    )
    return Kind(made, {"x": X34, "ids": np.array([0, 5, 1999])})


@kind
def layer_normalization_with_its_statistics() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("LayerNormalization", ["r", "g", "b"], ["n", "mean", "inv"]),
            node("Mul", ["n", "inv"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4]), value("mean", [3, 1])],
        [tensor("g", _numbers(4)), tensor("b", _numbers(4))],
    )
    return Kind(made, {"x": X34}, judged_by_reference=False)


@kind
def optional_values() -> Kind:
    made = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Optional", ["r"], ["o"]),
            node("OptionalGetElement", ["o"], ["e"]),
            node("MatMul", ["e", "w"], ["y"]),
        ],
        [value("x", [3, 4])],
        [value("y", [3, 4])],
        [tensor("w", W44)],
    )
    return Kind(made, {"x": X34}, judged_by_reference=False)


@kind
def shape_from_constant_arithmetic() -> Kind:
    """2051 has no float16: computed in it, the shape would be another."""
    made = model(
        [
            node("Constant", [], ["twice"], value_float=4102.0),
            node("Constant", [], ["two"], value_float=2.0),
            node("Div", ["twice", "two"], ["size"]),
            node("Cast", ["size"], ["count"], to=INT64),
            node("Reshape", ["count", "one"], ["shape"]),
            node("MatMul", ["x", "w"], ["m"]),
            node("Expand", ["m", "shape"], ["y"]),
        ],
        [value("x", [1, 4])],
        [value("y", [1, 2051])],
        [tensor("w", [[0.5], [0.25], [2], [1]]), tensor("one", [1], np.int64)],
    )
    return Kind(made, {"x": np.abs(_numbers(1, 4))})


@kind
def shape_through_a_needless_cast() -> Kind:
    made = model(
        [
            node("Shape", ["x"], ["whole"], start=1),
            node("Cast", ["whole"], ["size"], to=FLOAT),
            node("Cast", ["size"], ["again"], to=FLOAT),
            node("Mul", ["again", "half"], ["part"]),
            node("Cast", ["part"], ["count"], to=INT64),
            node("MatMul", ["v", "w"], ["m"]),
            node("Expand", ["m", "count"], ["y"]),
        ],
        [value("x", [1, 4102]), value("v", [1, 4])],
        [value("y", [1, 2051])],
        [tensor("w", [[0.5], [0.25], [2], [1]]), tensor("half", 0.5)],
    )
    return Kind(made, {"x": _numbers(1, 4102), "v": np.abs(_numbers(1, 4))})
