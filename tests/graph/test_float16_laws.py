"""Laws of the conversion, on random graphs.

The bound on the difference is computed from the source graph: each operator's exact answer comes with an upper bound on
what rounding to float16 before and after it, and errors that arrive, can do to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx_graphs import BOOL, FLOAT, INT64, graph, model, node, reference, run, tensor, value

from bot.graph import tasks
from bot.graph.float16 import convert
from bot.graph.inspection import inspection_of
from bot.graph.model_file import Model, read_model, write_model
from bot.graph.parameters import Float16Parameters
from bot.graph.steps import StepContext

UNIT = 2.0**-11
"""Half a unit in float16's last place, relative."""
STEP = 2.0**-25
"""Half of float16's smallest step."""
LARGEST = 3e4

Bounded = tuple[np.ndarray, np.ndarray]
"""An exact answer, and an upper bound on the error of the converted graph's."""


def _rounded(exact: np.ndarray, error: np.ndarray, times: int = 1) -> Bounded:
    return exact, error + times * (UNIT * (np.abs(exact) + error) + STEP)


def _lipschitz(function: Callable[[np.ndarray], np.ndarray], constant: float) -> Callable[[Bounded], Bounded]:
    # Three roundings: kernels may compute in steps that each round.
    return lambda x: _rounded(function(x[0]), constant * x[1], 3)


def _product(a: Bounded, b: Bounded) -> Bounded:
    return _rounded(a[0] * b[0], np.abs(a[0]) * b[1] + a[1] * np.abs(b[0]) + a[1] * b[1])


def _matrix_product(a: Bounded, b: Bounded) -> Bounded:
    error = np.abs(a[0]) @ b[1] + a[1] @ np.abs(b[0]) + a[1] @ b[1]
    sums = np.abs(a[0]) @ np.abs(b[0]) + error
    return a[0] @ b[0], error + (a[0].shape[-1] + 1) * (UNIT * sums + STEP)


def _softmax(x: Bounded) -> Bounded:
    exponentials = np.exp(x[0] - x[0].max(-1, keepdims=True))
    exact = exponentials / exponentials.sum(-1, keepdims=True)
    # A shift of each score by at most e changes each weight by a factor within exp(±2e); the differences to the maximum
    # are rounded too, and so are exponentials and their sum.
    scores = x[1].max(-1, keepdims=True) + UNIT * (np.abs(x[0]) + np.abs(x[0]).max(-1, keepdims=True))
    return exact, exact * np.expm1(2 * scores + 16 * UNIT) + 4 * STEP


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf)(x)


UNARY: dict[str, Callable[[Bounded], Bounded]] = {
    "Relu": lambda x: _rounded(np.maximum(x[0], 0), x[1]),
    "Neg": lambda x: _rounded(-x[0], x[1]),
    "Abs": lambda x: _rounded(np.abs(x[0]), x[1]),
    "Identity": lambda x: _rounded(x[0], x[1]),
    "Tanh": _lipschitz(np.tanh, 1.0),
    "Sigmoid": _lipschitz(lambda x: 0.5 * (1 + np.tanh(x / 2)), 0.25),
    "Erf": _lipschitz(_erf, 1.13),
    "Softmax": _softmax,
}
BINARY: dict[str, Callable[[Bounded, Bounded], Bounded]] = {
    "Add": lambda a, b: _rounded(a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: _rounded(a[0] - b[0], a[1] + b[1]),
    "Mul": _product,
    "Max": lambda a, b: _rounded(np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    "Min": lambda a, b: _rounded(np.minimum(a[0], b[0]), np.maximum(a[1], b[1])),
    "MatMul": _matrix_product,
}
MOVES = ("Transpose", "Reshape", "ConcatSplit", "Unsqueeze")


@dataclass
class Random:
    """A graph as it grows: tensors of shape (4, 4), each with its exact values and the bound."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    known: dict[str, Bounded] = field(default_factory=dict)

    def fresh(self) -> str:
        return f"t{len(self.known)}"

    def constant(self, array: np.ndarray, in_node: bool) -> str:
        name = self.fresh()
        if in_node:
            self.nodes.append(node("Constant", [], [name], value=tensor(name, array)))
        else:
            self.weights.append(tensor(name, array))
        exact = array.astype(np.float64)
        self.known[name] = _rounded(exact, np.zeros_like(exact))
        return name

    def add(self, op: str, names: list[str]) -> None:
        result = self.fresh()
        sources = [self.known[name] for name in names]
        if op in MOVES:
            self.move(op, names[0], result)
        elif op == "If":
            self.branch(names, result)
        else:
            rule = UNARY[op](sources[0]) if op in UNARY else BINARY[op](sources[0], sources[1])
            self.nodes.append(node(op, names[: 1 if op in UNARY else 2], [result], name=f"n{result}"))
            self.known[result] = rule

    def move(self, op: str, source: str, result: str) -> None:
        exact, error = self.known[source]
        if op == "Transpose":
            self.nodes.append(node("Transpose", [source], [result], perm=[1, 0]))
            exact, error = exact.T, error.T
        elif op == "Reshape":
            self.weights.append(tensor(f"{result}_s", [4, 4], np.int64))
            self.nodes.append(node("Reshape", [source, f"{result}_s"], [result]))
        elif op == "Unsqueeze":
            self.weights.append(tensor(f"{result}_a", [0], np.int64))
            self.nodes.append(node("Unsqueeze", [source, f"{result}_a"], [f"{result}_u"]))
            self.nodes.append(node("Squeeze", [f"{result}_u", f"{result}_a"], [result]))
        else:
            self.nodes.append(node("Concat", [source, source], [f"{result}_c"], axis=0))
            self.nodes.append(node("Split", [f"{result}_c"], [result, f"{result}_rest"], axis=0, num_outputs=2))
        self.known[result] = _rounded(exact, error)

    def branch(self, names: list[str], result: str) -> None:
        """If the condition holds (it does): a product of captured tensors; else something else of them."""
        then = graph([node("Mul", names[:2], [f"{result}_t"])], [], [value(f"{result}_t", [4, 4])])
        other = graph([node("Neg", names[:1], [f"{result}_e"])], [], [value(f"{result}_e", [4, 4])])
        self.nodes.append(node("If", ["condition"], [result], then_branch=then, else_branch=other))
        self.known[result] = _product(self.known[names[0]], self.known[names[1]])


Case = tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, Bounded], tuple[str, ...]]
"""A graph, inputs, what each output is and how far off it may be, and what to keep in float32."""


@st.composite
def random_graphs(draw: st.DrawFn) -> Case:
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.01, 1.0, 8.0]))
    made = Random()
    x = (numbers.standard_normal((4, 4)) * scale).astype(np.float32)
    counts = numbers.integers(0, 50, (4, 4))
    made.known["x"] = _rounded(x.astype(np.float64), np.zeros((4, 4)))
    made.known["f"] = _rounded(counts.astype(np.float64), np.zeros((4, 4)))
    made.nodes.append(node("Cast", ["counts"], ["f"], to=FLOAT))
    for _ in range(draw(st.integers(0, 3))):
        made.constant(numbers.standard_normal((4, 4)).astype(np.float32), draw(st.booleans()))
    for _ in range(draw(st.integers(1, 10))):
        op = draw(st.sampled_from([*UNARY, *BINARY, *MOVES, "If"]))
        names = [draw(st.sampled_from(sorted(made.known))) for _ in range(2)]
        made.add(op, names)
        exact, error = made.known[f"t{len(made.known) - 1}"]
        assume(float((np.abs(exact) + error).max()) < LARGEST)
    computed = [each.output[0] for each in made.nodes if each.op_type not in ("Constant", "Cast")]
    choices = [name for name in sorted(made.known) if name not in ("x", "f")]
    outputs = sorted({computed[-1], *draw(st.lists(st.sampled_from(choices), max_size=2))} & set(made.known))
    assume(outputs)
    proto = model(
        made.nodes,
        [value("x", [4, 4]), value("counts", [4, 4], INT64), value("condition", [], BOOL)],
        [value(name, [4, 4]) for name in outputs],
        made.weights,
    )
    keep = tuple(
        draw(st.lists(st.sampled_from([*UNARY, *BINARY, "Reshape", "If", "nt5", "Cast"]), max_size=3, unique=True))
    )
    feeds = {"x": x, "counts": counts, "condition": np.array(True)}
    return proto, feeds, {name: made.known[name] for name in outputs}, keep


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(random_graphs())
def test_a_converted_graph_agrees_within_the_bound_of_its_source(case: Case) -> None:
    source, feeds, expected, keep = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.onnx"
        given_model = onnx.ModelProto()
        given_model.CopyFrom(source)
        converted = Model(given_model, path=path)
        before = inspection_of(Model(source)).signature
        try:
            convert(converted, Float16Parameters(keep=keep), StepContext(Path(folder)))
        except Exception as error:
            assert "no node that can be converted" in str(error)
            return
        write_model(converted, path)
        assert tasks.check({"model": str(path)}, lambda done, total, what: None) == {"ok": True, "reason": ""}
        after = inspection_of(read_model(path)).signature
        assert (after.inputs, after.outputs, after.opsets) == (before.inputs, before.outputs, before.opsets)
        result = onnx.load(path)
    for answers in (run(result, feeds), reference(result, feeds)):
        for (exact, bound), found in zip(expected.values(), answers, strict=True):
            assert found.dtype == np.float32
            assert (np.abs(exact - found) <= bound * 1.01 + 1e-5 * np.abs(exact) + 1e-6).all()
    casts = [each for each in result.graph.node if each.op_type == "Cast"]
    assert len({(each.input[0], each.attribute[0].i) for each in casts}) == len(casts)
    made_by_casts = {each.output[0] for each in casts if each.input[0] != "counts"}
    assert not [each for each in casts if each.input[0] in made_by_casts]
