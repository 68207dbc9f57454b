"""Half-precision emulation: against every half, the ONNX reference evaluator, and files that only a GPU would break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bot.errors import RecipeError, StepError
from bot.measure.fp16_emulation import EmulationReport, emulate
from bot.measure.fp16_kernels import HALF_KERNELS, parse_runtime
from bot.measure.fp16_tasks import check_rounding, emulated_run

F16, F32, I64, BOOL = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"


def value(name: str, element: int, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def constant(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: tuple[onnx.TensorProto, ...] = (),
    *,
    opset: int = 18,
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("here", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def unary(op: str, element: int = F16, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    return model([node], [value("x", F16, ["n"])], [value("y", element, ["n"])])


def session(proto: onnx.ModelProto | Path, level: str = "ORT_DISABLE_ALL") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    source = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


Emulator = Callable[..., list[Any]]


@pytest.fixture
def emulated(tmp_path: Path) -> Emulator:
    def run(
        proto: onnx.ModelProto, feeds: dict[str, Any], *, runtime: str = "cuda-1.27+", level: str = "ORT_DISABLE_ALL"
    ) -> list[Any]:
        report = write(proto, tmp_path, runtime)
        assert report.status == "emulated", report.reason
        return list(session(tmp_path / "emulated.onnx", level).run(None, feeds))

    return run


def write(proto: onnx.ModelProto, folder: Path, runtime: str = "cuda-1.27+") -> EmulationReport:
    onnx.save(proto, folder / "model.onnx")
    return emulate(folder / "model.onnx", folder / "emulated.onnx", runtime=runtime)


def judge(proto: onnx.ModelProto | Path, folder: Path, feeds: dict[str, Any], **more: Any) -> dict[str, Any]:
    path = proto if isinstance(proto, Path) else folder / "model.onnx"
    if not isinstance(proto, Path):
        onnx.save(proto, path)
    files = {}
    for index, (name, array) in enumerate(feeds.items()):
        files[name] = str(folder / f"feed{index}.npy")
        np.save(files[name], array)
    arguments = {"model": str(path), "feeds": files, "batch": 2, "threads": 1, "out": str(folder / "out")}
    answer = emulated_run({**arguments, "scratch": str(folder / "scratch"), **more}, lambda *_: None)
    assert isinstance(answer, dict)
    json.dumps(answer, allow_nan=False)
    return answer


def same_bits(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    kind = {2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    differ = (np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)) & ~(np.isnan(a) & np.isnan(b))
    assert not differ.any(), (a[differ][:5], b[differ][:5])


def ordered(halves: Any) -> Any:
    """Halves as whole numbers in their order, so that a difference of 1 is one unit in the last place."""
    bits = np.ascontiguousarray(halves).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def all_halves() -> Any:
    return np.arange(65536, dtype=np.uint16).view(np.float16)


# --- the rounding ---------------------------------------------------------------------------------------------------


def around_all_halves() -> Any:
    """Every half, what lies half way between two, and the float32 neighbours of both; and a million random floats."""
    halves = all_halves().astype(np.float32)
    finite = np.unique(halves[np.isfinite(halves)])
    midpoints = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    bits = np.concatenate([halves, midpoints, np.float32([65520, -65520])]).view(np.uint32).astype(np.int64)
    near = [(bits + step).astype(np.uint32).view(np.float32) for step in (-2, -1, 0, 1, 2)]
    anything = np.random.default_rng(0).integers(0, 2**32, 1_000_000, dtype=np.uint64).astype(np.uint32)
    special = np.float32([np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 0.0, -0.0])
    return np.concatenate([*near, anything.view(np.float32), special])


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_the_rounding_is_exact_around_every_half(emulated: Emulator, level: str) -> None:
    # Mul by one in half precision changes nothing, so what comes out is what the first cast made, up to one more half.
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=F16),
        helper.make_node("Mul", ["h", "one"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=F32),
    ]
    proto = model(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], (constant("one", np.float16(1)),))
    x = around_all_halves()
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    (got,) = emulated(proto, {"x": x}, level=level)
    same_bits(got, expected)
    assert np.array_equal(np.isnan(got), np.isnan(x))


def test_numpy_itself_rounds_to_nearest_even() -> None:
    # The oracle of the test above, against arithmetic on exact fractions.
    x = np.float32([1 + 2**-11, 1 + 3 * 2**-11, 2.0**-25, 3 * 2.0**-25, 65519.996, 65520, 2.0**-24 * 1.5])
    with np.errstate(over="ignore"):
        got = x.astype(np.float16).astype(np.float64)
    assert got.tolist() == [1.0, 1 + 2**-9, 0.0, 2.0**-23, 65504.0, np.inf, 2.0**-23]


def test_the_worker_checks_its_runtime() -> None:
    check_rounding()


# --- agreement with the reference evaluator -------------------------------------------------------------------------

EXACT_UNARY = ["Neg", "Abs", "Relu", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Identity"]
NEAR_UNARY = ["Exp", "Log", "Tanh", "Sin", "Cos", "Atan", "Erf", "Softplus", "Softsign", "Sigmoid", "Sinh", "Asinh"]


@pytest.mark.parametrize("op", EXACT_UNARY)
def test_exact_unary_operators_agree_on_every_half(emulated: Emulator, op: str) -> None:
    x = all_halves()
    if op == "Sign":
        x = x[~np.isnan(x)]
    proto = unary(op)
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (got,) = emulated(proto, {"x": x})
    same_bits(got, expected)


@pytest.mark.parametrize("op", NEAR_UNARY)
def test_transcendental_operators_agree_to_one_unit(emulated: Emulator, op: str) -> None:
    x = all_halves()[np.abs(all_halves().astype(np.float32)) < 30]
    function = {"Softplus": lambda v: np.log1p(np.exp(v)), "Sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(op)
    with np.errstate(all="ignore"):
        if function:  # the evaluator computes the steps of these in half, where it loses more than a kernel does
            expected = function(x.astype(np.float64)).astype(np.float16)
        else:
            (expected,) = ReferenceEvaluator(unary(op)).run(None, {"x": x})
    (got,) = emulated(unary(op), {"x": x})
    known = ~np.isnan(expected)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    far = np.abs(ordered(got[known]) - ordered(expected[known])) > 1
    # The provider's Sigmoid is off by up to 1.2e-7, which is two units among subnormal halves.
    assert np.abs(expected[known][far].astype(np.float32) - got[known][far]).max(initial=0) < (
        2e-7 if op == "Sigmoid" else 1e-9
    )


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater", "GreaterOrEqual"])
def test_binary_operators_agree(emulated: Emulator, op: str) -> None:
    random = np.random.default_rng(1)
    a = random.permutation(all_halves())
    b = np.concatenate([random.permutation(all_halves())[:32768], a[32768:]])
    if op in ("Max", "Min"):
        a, b = np.nan_to_num(a), np.nan_to_num(b)
        b = np.where(a == b, a, b)  # which zero is larger is nobody's business
    element = F16 if op in ("Add", "Sub", "Mul", "Div", "Max", "Min") else BOOL
    node = helper.make_node(op, ["a", "b"], ["y"])
    proto = model([node], [value("a", F16, ["n"]), value("b", F16, ["n"])], [value("y", element, ["n"])])
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(proto).run(None, {"a": a, "b": b})
    (got,) = emulated(proto, {"a": a, "b": b})
    if element == BOOL:
        assert np.array_equal(got, expected)
    else:
        same_bits(got, expected)


@pytest.mark.parametrize("to", [F32, TensorProto.DOUBLE, TensorProto.INT32, I64, BOOL, F16])
def test_casts_from_half_agree(emulated: Emulator, to: int) -> None:
    x = all_halves()
    x = x if to in (F32, TensorProto.DOUBLE, BOOL, F16) else x[np.isfinite(x)]
    proto = unary("Cast", to, to=to)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (got,) = emulated(proto, {"x": x})
    assert got.dtype == expected.dtype
    assert np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize("source", [F32, TensorProto.DOUBLE, TensorProto.INT32, I64, TensorProto.UINT8, BOOL])
def test_casts_to_half_agree(emulated: Emulator, source: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(source)
    whole = np.concatenate([np.arange(-3000, 3000), np.arange(65400, 65700), [2**31 - 1, -(2**31)]])
    x = around_all_halves()[::17] if dtype.kind == "f" else whole.astype(np.int64)
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
        node = helper.make_node("Cast", ["x"], ["y"], to=F16)
        proto = model([node], [value("x", source, ["n"])], [value("y", F16, ["n"])])
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (got,) = emulated(proto, {"x": x})
    same_bits(got, expected)


def test_matmul_agrees(emulated: Emulator) -> None:
    random = np.random.default_rng(2)
    a = (random.standard_normal((3, 17, 40)) * 30).astype(np.float16)
    b = (random.standard_normal((40, 23)) * 30).astype(np.float16)
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    proto = model([node], [value("a", F16, [3, 17, 40])], [value("y", F16, [3, 17, 23])], (constant("b", b),))
    (expected,) = ReferenceEvaluator(proto).run(None, {"a": a})
    (got,) = emulated(proto, {"a": a})
    assert np.abs(ordered(got) - ordered(expected)).max() <= 1
    # The sum is in single precision: 4,096 products of 100 pass 65504 on the way and at the end.
    ones = np.full((1, 4096), 10, np.float16)
    proto = model(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        [value("a", F16, [1, 4096]), value("b", F16, [4096, 1])],
        [value("y", F16, [1, 1])],
    )
    signs = np.where(np.arange(4096) < 2048, 10, -10).astype(np.float16)[:, None]
    assert emulated(proto, {"a": ones, "b": ones.T})[0].item() == np.inf
    assert emulated(proto, {"a": ones, "b": signs})[0].item() == 0


PLAIN = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Neg", "Abs", "Sqrt", "Where", "Cast", "Concat", "Sum"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(PLAIN), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1),
    st.integers(0, 2**32 - 1),
)
def test_graphs_of_exact_operators_agree_bit_by_bit(
    emulated: Emulator, plan: list[tuple[str, int, int, int]], seed: int
) -> None:
    nodes, names = [], ["x", "w"]
    for index, (op, *chosen) in enumerate(plan):
        a, b, c = (names[choice % len(names)] for choice in chosen)
        name = f"v{index}"
        if op == "Where":
            nodes += [helper.make_node("Less", [a, b], [f"{name}c"]), helper.make_node(op, [f"{name}c", b, c], [name])]
        elif op == "Cast":
            wide = helper.make_node("Cast", [a], [f"{name}w"], to=F32)
            square = helper.make_node("Mul", [f"{name}w", f"{name}w"], [f"{name}s"])
            nodes += [wide, square, helper.make_node("Cast", [f"{name}s"], [name], to=F16)]
        elif op == "Concat":
            nodes += [
                helper.make_node("Concat", [a, b], [f"{name}c"], axis=0),
                helper.make_node("Split", [f"{name}c"], [f"{name}l", name], num_outputs=2, axis=0),
            ]
        elif op == "Sum":
            nodes.append(helper.make_node("Sum", [a, b, c], [name]))
        else:
            nodes.append(helper.make_node(op, [a] if op in ("Neg", "Abs", "Sqrt") else [a, b], [name]))
        names.append(name)
    random = np.random.default_rng(seed)
    w = (random.standard_normal(16) * 10.0 ** random.integers(-5, 5, 16)).astype(np.float16)
    x = (random.standard_normal(16) * 10.0 ** random.integers(-7, 5, 16)).astype(np.float16)
    proto = model(nodes, [value("x", F16, [16])], [value(names[-1], F16, [16])], (constant("w", w),))
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (got,) = emulated(proto, {"x": x})
    same_bits(got + np.float16(0), expected + np.float16(0))  # which zero a maximum picks is nobody's business


# --- what only hardware shows ---------------------------------------------------------------------------------------


def rms_norm(element: int) -> onnx.ModelProto:
    dtype = np.float16 if element == F16 else np.float32
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"], name="square"),
        helper.make_node("ReduceMean", ["squares", "last"], ["mean"], name="mean_of_squares", keepdims=1),
        helper.make_node("Add", ["mean", "eps"], ["safe"]),
        helper.make_node("Sqrt", ["safe"], ["root"]),
        helper.make_node("Div", ["x", "root"], ["y"]),
    ]
    constants = (constant("eps", dtype(1e-5)), constant("last", np.int64([-1])))
    return model(nodes, [value("x", element, ["n", 8])], [value("y", element, ["n", 8])], constants)


def test_it_finds_the_overflow_that_the_cpu_provider_hides(tmp_path: Path) -> None:
    x = np.zeros((2, 8), np.float32)
    x[:, 0] = 1000
    x[:, 1] = 1
    (right,) = session(rms_norm(F32)).run(None, {"x": x})
    (cpu,) = session(rms_norm(F16), "ORT_ENABLE_ALL").run(None, {"x": x.astype(np.float16)})
    assert np.abs(cpu - right).max() < 2e-3  # the CPU provider sees nothing
    answer = judge(rms_norm(F16), tmp_path, {"x": x.astype(np.float16)})
    got = np.load(answer["outputs"]["y"]["file"])
    assert np.abs(got - right).max() > 2.8  # x divided by an infinite root is 0
    assert answer["ok"] is True  # nothing is infinite at the end, so only the figures tell ...
    first = answer["overflowed"][0]  # ... and the name of what did it
    assert (first["tensor"], first["node"], first["op"]) == ("squares", "square", "Mul")
    assert first["values"] == 2
    assert first["peak"] == 1e6
    assert "'squares' of Mul node 'square'" in answer["reason"]


def masked_softmax(element: int, mask: float) -> onnx.ModelProto:
    dtype = np.float16 if element == F16 else np.float32
    nodes = [
        helper.make_node("Mul", ["hidden", "low"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    ends = [value("x", element, ["n", 4]), value("hidden", element, ["n", 4])], [value("y", element, ["n", 4])]
    return model(nodes, *ends, (constant("low", dtype(mask)),))


def test_it_does_not_cry_over_a_large_negative_mask(tmp_path: Path) -> None:
    x = np.float32([[1, 2, 3, 4], [4, 3, 2, 1]])
    hidden = np.float32([[1, 1, 1, 1], [0, 0, 1, 1]])
    (right,) = session(masked_softmax(F32, -1e9)).run(None, {"x": x, "hidden": hidden})
    feeds = {"x": x.astype(np.float16), "hidden": hidden.astype(np.float16)}
    half = masked_softmax(F16, -65504)  # as converters write -1e9
    (cpu,) = session(half, "ORT_ENABLE_ALL").run(None, feeds)
    assert np.abs(cpu - right).max() > 0.2  # the CPU provider cries over the row that is masked as a whole
    answer = judge(half, tmp_path, feeds)
    assert answer["ok"] is True
    assert answer["overflowed"] == []
    assert np.abs(np.load(answer["outputs"]["y"]["file"]) - right).max() < 1e-3


def test_an_infinite_mask_is_no_overflow(tmp_path: Path) -> None:
    feeds = {"x": np.float16([[1, 2, 3, 4]]), "hidden": np.float16([[1, 1, 1, 0]])}
    where = model(
        [
            helper.make_node("Cast", ["hidden"], ["flag"], to=BOOL),
            helper.make_node("Where", ["flag", "low", "x"], ["masked"]),
            helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
        ],
        [value("x", F16, ["n", 4]), value("hidden", F16, ["n", 4])],
        [value("y", F16, ["n", 4])],
        (constant("low", np.float16(-np.inf)),),
    )
    answer = judge(where, tmp_path, feeds)
    assert answer["ok"] is True
    assert answer["overflowed"] == []
    # Where the whole row is masked the result is NaN, and the constant is named.
    answer = judge(where, tmp_path, {**feeds, "hidden": np.float16([[1, 1, 1, 1]])})
    assert answer["ok"] is False
    assert [each["op"] for each in answer["overflowed"]] == ["Initializer"]
    assert answer["overflowed"][0]["tensor"] == "low"


def test_tensors_without_elements_are_no_trouble(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Transpose", ["where"], ["at"]),
        helper.make_node("GatherND", ["x", "at"], ["found"]),
        helper.make_node("Mul", ["found", "found"], ["squares"]),
        helper.make_node("ReduceSum", ["squares"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    proto = model(nodes, [value("x", F16, ["n", 2])], [value("y", F16, ["n", 2])])
    assert judge(proto, tmp_path, {"x": np.zeros((4, 2), np.float16)})["ok"] is True
    answer = judge(proto, tmp_path, {"x": np.full((4, 2), 300, np.float16)})
    assert answer["ok"] is False
    assert [each["tensor"] for each in answer["overflowed"]] == ["squares"]


def test_large_float32_values_are_no_overflow(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=F32),
        helper.make_node("Mul", ["wide", "low"], ["mask"]),  # its squares pass float32
        helper.make_node("Softmax", ["mask"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=F16),
    ]
    constants = (constant("low", np.float32(-3e37)),)
    proto = model(nodes, [value("x", F16, ["n", 2])], [value("y", F16, ["n", 2])], constants)
    answer = judge(proto, tmp_path, {"x": np.ones((4, 2), np.float16)})
    assert (answer["ok"], answer["overflowed"]) == (True, [])


def test_an_overflow_in_a_loop_is_the_loops(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "s"], ["next"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [value("i", I64, []), value("go", BOOL, []), value("s", F16, ["n"])],
        [value("on", BOOL, []), value("next", F16, ["n"])],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["last"], body=body, name="loop"),
        helper.make_node("Reciprocal", ["last"], ["y"]),
    ]
    proto = model(nodes, [value("x", F16, ["n"])], [value("y", F16, ["n"])], (constant("trips", np.int64(5)),))
    answer = judge(proto, tmp_path, {"x": np.float16([1, 2, 300, 4])})
    assert [(each["node"], each["values"]) for each in answer["overflowed"]] == [("loop", 1)]


def test_the_worst_comes_first_and_what_only_passes_it_on_is_not_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["few"], name="few"),
        helper.make_node("Mul", ["x", "large"], ["many"], name="many"),
        helper.make_node("Neg", ["few"], ["passed"], name="passed"),
        helper.make_node("Sub", ["many", "many"], ["nan"], name="nan"),
        helper.make_node("Add", ["nan", "passed"], ["y"], name="end"),
    ]
    constants = constant("small", np.float16(100)), constant("large", np.float16(1e4))
    proto = model(nodes, [value("x", F16, ["n"])], [value("y", F16, ["n"])], constants, opset=9)
    answer = judge(proto, tmp_path, {"x": np.float16([1, 2, 10, 700, 5, 9, 0, 0])}, batch=8)
    assert [each["node"] for each in answer["overflowed"]] == ["many", "few"]
    assert [each["values"] for each in answer["overflowed"]] == [3, 1]
    assert answer["ok"] is False


def test_what_the_source_answers_too_is_let_pass(tmp_path: Path) -> None:
    proto = unary("Log")
    x = np.float16([0, -1, 1, 2])
    assert judge(proto, tmp_path, {"x": x})["ok"] is False
    with np.errstate(all="ignore"):
        np.save(tmp_path / "source.npy", np.log(x.astype(np.float32)))
    reference = {"y": str(tmp_path / "source.npy")}
    assert judge(proto, tmp_path, {"x": x}, reference=reference)["ok"] is True
    assert judge(proto, tmp_path, {"x": np.float16([0, 0, 1, 2])}, reference=reference)["ok"] is False


def convert(steps: list[tuple[str, dict[str, Any]]], folder: Path) -> Path:
    """The committed network after some of the bot's own steps."""
    from bot.graph.steps import StepContext, load_step

    path = MINI
    for index, (name, parameters) in enumerate(steps):
        step = load_step(name, None)
        made = folder / f"step{index}.onnx"
        step.function(path, made, step.parameters.model_validate(parameters), StepContext(folder))
        path = made
    return path


KEPT = {"keep": ["LayerNormalization", "Softmax", "Add", "Mul"]}


def test_the_plain_conversion_of_the_face_network_is_broken(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 3, 224, 224)).astype(np.float32)
    answer = judge(convert([("float16_common", {})], tmp_path), tmp_path, {"face": x})
    assert answer["ok"] is False
    assert "age_logits" in answer["reason"]
    assert answer["overflowed"][0]["peak"] > 65504
    assert answer["overflowed"][0]["op"] == "Mul"  # the layer scale of the massive channel


def test_the_first_of_the_two_steps_alone_is_broken(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    answer = judge(convert([("float16_common", KEPT)], tmp_path), tmp_path, {"face": x})
    assert answer["ok"] is False
    assert answer["overflowed"][0]["op"] == "Cast"  # the residual goes through half between two nodes that do not


def test_the_two_step_file_of_the_face_network_is_safe(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 3, 224, 224)).astype(np.float32)
    path = convert([("float16_common", KEPT), ("drop_cast_round_trips", {})], tmp_path)
    answer = judge(path, tmp_path, {"face": x})
    assert answer["ok"] is True
    assert answer["overflowed"] == []
    right = session(MINI).run(["age_logits"], {"face": x})[0]
    off = np.abs(np.load(answer["outputs"]["age_logits"]["file"]) - right).max()
    on_cpu = np.abs(session(path, "ORT_ENABLE_ALL").run(["age_logits"], {"face": x})[0] - right).max()
    assert on_cpu < off < 0.003 * np.abs(right).max()  # the CPU provider rounds less than hardware does


# --- control flow, containers, functions, names ---------------------------------------------------------------------


def branch(nodes: list[onnx.NodeProto], output: str, *constants: onnx.TensorProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, "b", [], [value(output, F16, None)], list(constants))


def compare_with_reference(emulated: Emulator, proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    onnx.checker.check_model(proto, full_check=True)
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(proto).run(None, feeds)
    got = emulated(proto, feeds)
    for a, b in zip(got, expected, strict=True):
        if a.dtype.kind == "f":
            same_bits(a, b)
        else:
            assert np.array_equal(a, b)
    return got


def test_branches_capture_half_precision_values_and_reuse_names(emulated: Emulator) -> None:
    then = branch([helper.make_node("Mul", ["h", "k"], ["t"])], "t", constant("k", np.float16(300)))
    other = branch([helper.make_node("Add", ["x", "k"], ["t"])], "t", constant("k", np.float16(0.1)))
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["h"]),
        helper.make_node("If", ["flag"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["z", "h"], ["y"]),
    ]
    proto = model(nodes, [value("x", F16, ["n"]), value("flag", BOOL, [])], [value("y", F16, ["n"])])
    x = np.float16([1, 20.3, 2.5e-4, 250])
    for flag in (True, False):
        compare_with_reference(emulated, proto, {"x": x, "flag": np.array(flag)})


def test_a_branch_that_only_hands_a_captured_value_through(emulated: Emulator) -> None:
    then = helper.make_graph([helper.make_node("Identity", ["x"], ["a"])], "b", [], [value("a", F16, None)])
    other = branch([helper.make_node("Constant", [], ["c"], value=constant("", np.float16([0.1])))], "c")
    nodes = [helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, [value("x", F16, ["n"]), value("flag", BOOL, [])], [value("y", F16, ["m"])])
    for flag in (True, False):
        compare_with_reference(emulated, proto, {"x": np.float16([7]), "flag": np.array(flag)})


def test_loops_carry_and_scan_half_precision(emulated: Emulator) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "rate"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Add", ["next", "x"], ["seen"]),
        ],
        "body",
        [value("i", I64, []), value("go", BOOL, []), value("state", F16, ["n"])],
        [value("on", BOOL, []), value("next", F16, ["n"]), value("seen", F16, ["n"])],
    )
    nodes = [helper.make_node("Loop", ["trips", "go on", "x"], ["last", "all"], body=body)]
    constants = constant("trips", np.int64(9)), constant("go on", np.array(True)), constant("rate", np.float16(3.3))
    outputs = [value("last", F16, ["n"]), value("all", F16, ["t", "n"])]
    proto = model(nodes, [value("x", F16, ["n"])], outputs, constants)
    last, _ = compare_with_reference(emulated, proto, {"x": np.float16([1, 0.01, 3])})
    assert np.isinf(last[2])


def test_scan(emulated: Emulator) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["more"]), helper.make_node("Mul", ["more", "row"], ["out"])],
        "body",
        [value("sum", F16, [2]), value("row", F16, [2])],
        [value("more", F16, [2]), value("out", F16, [2])],
    )
    nodes = [helper.make_node("Scan", ["zero", "x"], ["total", "y"], body=body, num_scan_inputs=1)]
    outputs = [value("total", F16, [2]), value("y", F16, ["n", 2])]
    proto = model(nodes, [value("x", F16, ["n", 2])], outputs, (constant("zero", np.float16([0.1, 0])),))
    compare_with_reference(emulated, proto, {"x": np.float16([[0.3, 4000], [0.7, 4000], [250, 1]])})


def test_sequences_and_optionals_inside_the_graph(emulated: Emulator) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["h"]),
        helper.make_node("SequenceConstruct", ["x", "h"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "h"], ["s2"]),
        helper.make_node("SequenceAt", ["s2", "at"], ["e"]),
        helper.make_node("ConcatFromSequence", ["s2"], ["joined"], axis=0),
        helper.make_node("Optional", ["e"], ["o"]),
        helper.make_node("OptionalGetElement", ["o"], ["g"]),
        helper.make_node("Mul", ["g", "x"], ["y"]),
    ]
    outputs = [value("joined", F16, ["m"]), value("y", F16, ["n"])]
    proto = model(nodes, [value("x", F16, ["n"])], outputs, (constant("at", np.int64(1)),))
    x = np.float16([0.1, 30, 41])  # the evaluator does not know what is in an optional, so numpy is the oracle
    joined, y = emulated(proto, {"x": x})
    same_bits(joined, np.concatenate([x, x * x, x * x]))
    with np.errstate(over="ignore"):
        same_bits(y, x * x * x)


def test_model_local_functions_are_inlined(emulated: Emulator) -> None:
    square = helper.make_function(
        "here", "Square", ["v"], ["w"], [helper.make_node("Mul", ["v", "v"], ["w"])], [helper.make_opsetid("", 18)]
    )
    big = np.random.default_rng(0).standard_normal(200_000).astype(np.float16)
    nodes = [
        helper.make_node("Square", ["x"], ["h"], domain="here"),
        helper.make_node("Square", ["h"], ["q"], domain="here"),
        helper.make_node("Add", ["q", "big"], ["y"]),
    ]
    proto = model(
        nodes, [value("x", F16, [1])], [value("y", F16, [200_000])], (constant("big", big),), functions=(square,)
    )
    with np.errstate(all="ignore"):
        (got,) = emulated(proto, {"x": np.float16([3.3])})
    h = np.float16(3.3) * np.float16(3.3)
    same_bits(got, h * h + big)


def test_constants_that_are_outputs_inputs_and_unsorted_nodes(emulated: Emulator) -> None:
    nodes = [
        helper.make_node("Mul", ["h", "w"], ["y"]),  # before what it reads: converters write such files
        helper.make_node("Add", ["x", "default"], ["h"]),
    ]
    proto = model(
        nodes,
        [value("x", F16, [2]), value("default", F16, [2])],
        [value("y", F16, [2]), value("w", F16, [2]), value("h", F16, [2]), value("x", F16, [2])],
        (constant("w", np.float16([0.1, 300])), constant("default", np.float16([0.25, 0.5]))),
    )
    x = np.float16([0.7, 400])
    y, w, h, same = emulated(proto, {"x": x})
    with np.errstate(over="ignore"):
        same_bits(y, (x + np.float16([0.25, 0.5])) * np.float16([0.1, 300]))
    same_bits(w, np.float16([0.1, 300]))
    same_bits(h, x + np.float16([0.25, 0.5]))
    same_bits(same, x)
    h = emulated(proto, {"x": x, "default": np.float16([1, 1])})[2]
    same_bits(h, x + np.float16(1))


def test_operators_typed_by_attributes(emulated: Emulator) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=constant("", np.float16([0.1]))),
        helper.make_node("EyeLike", ["grid"], ["eye"], dtype=F16),
        helper.make_node("Mul", ["eye", "x"], ["scaled"]),
        helper.make_node("ReduceMax", ["scaled"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["wide"], to=F32),
        helper.make_node("Add", ["wide", "third"], ["sum"]),
        helper.make_node("CastLike", ["sum", "x"], ["back"]),
        helper.make_node("Add", ["filled", "back"], ["y"]),
    ]
    constants = constant("grid", np.ones((4, 4), np.int32)), constant("third", np.float32(1 / 3))
    proto = model(nodes, [value("x", F16, [4])], [value("y", F16, [4])], constants)
    compare_with_reference(emulated, proto, {"x": np.float16([1, 2, 3, 4])})


def test_random_numbers_are_halves(emulated: Emulator) -> None:
    nodes = [helper.make_node("RandomNormal", [], ["y"], dtype=F16, shape=[1000], seed=1.0)]
    (got,) = emulated(model(nodes, [], [value("y", F16, [1000])]), {})
    assert got.dtype == np.float16
    assert 0.8 < got.std() < 1.2


def test_graphs_without_value_info_or_node_names_and_in_old_opsets(emulated: Emulator) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=F16),
        helper.make_node("Clip", ["h"], ["c"], min=-0.1, max=0.1),  # limits in attributes: not halves
        helper.make_node("Sum", ["c", "c", "h"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=F32),
    ]
    proto = model(nodes, [value("x", F32, ["n"])], [value("y", F32, ["n"])], opset=9)
    x = np.float32([0.05, 3, -2])
    (got,) = emulated(proto, {"x": x})
    clipped = np.clip(x.astype(np.float16), np.float16(-0.1), np.float16(0.1))
    same_bits(got, (clipped + clipped + x.astype(np.float16)).astype(np.float32))


def test_quantised_weights_with_half_precision_scales(emulated: Emulator) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = (constant("q", np.int8([[3], [-7]])), constant("scale", np.float16(0.1)))
    proto = model(nodes, [value("x", F16, ["n", 2])], [value("y", F16, ["n", 1])], constants, opset=21)
    (got,) = emulated(proto, {"x": np.float16([[1, 2]])})
    w = (np.float32([3, -7]) * np.float32(np.float16(0.1))).astype(np.float16).astype(np.float32)
    assert got.item() == np.float16(w[0] + 2 * w[1])


# --- kernels that are one, and kernels that sum in half -------------------------------------------------------------


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def test_a_layer_normalisation_is_one_kernel(emulated: Emulator) -> None:
    # Squares pass 65504 inside, which the kernel holds in single precision.
    x = (np.random.default_rng(0).standard_normal((2, 64)) * 3000).astype(np.float16)
    gamma, beta = np.float16(np.linspace(0.5, 1.5, 64)), np.float16(np.linspace(-1, 1, 64))
    node = helper.make_node("LayerNormalization", ["x", "g", "b"], ["y", "m", "v"], axis=-1, epsilon=1e-5)
    outputs = [value("y", F16, [2, 64]), value("m", F32, [2, 1]), value("v", F32, [2, 1])]
    proto = model([node], [value("x", F16, [2, 64])], outputs, (constant("g", gamma), constant("b", beta)))
    y, mean, _ = emulated(proto, {"x": x})
    assert np.abs(ordered(y) - ordered(layer_norm(x, gamma, beta, 1e-5).astype(np.float16))).max() <= 1
    assert mean.dtype == np.float32


def skip_layer_norm(width: int, op: str = "SkipLayerNormalization") -> onnx.ModelProto:
    gamma, beta = np.ones(width, np.float16), np.full(width, 0.5, np.float16)
    names = ["x", "skip", "g", "b"] if op == "SkipLayerNormalization" else ["x", "skip", "g"]
    node = helper.make_node(op, names, ["y", "", "", "sum"], name="norm", domain="com.microsoft", epsilon=1e-5)
    shape = ["n", width]
    outputs = [value("y", F16, shape), value("sum", F16, shape)]
    constants = tuple(constant(name, array) for name, array in (("g", gamma), ("b", beta)) if name in names)
    return model([node], [value("x", F16, shape), value("skip", F16, shape)], outputs, constants)


def test_skip_layer_normalisation_sums_in_half_before_1_27(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 1024)).astype(np.float16)
    skip = x.copy()
    skip[:, 7] = 19500  # the seed's residual at scale 1/8
    feeds = {"x": x, "skip": skip}
    right = layer_norm((x + skip), np.ones(1024), 0.5, 1e-5)
    new = judge(skip_layer_norm(1024), tmp_path, feeds)
    assert new["half_kernels"] == {}
    assert np.abs(np.load(new["outputs"]["y"]["file"]) - right).max() < 0.02
    strict = judge(skip_layer_norm(1024), tmp_path, feeds, runtime="cuda-1.22-strict")
    assert np.abs(np.load(strict["outputs"]["y"]["file"]) - right).max() < 0.02
    old = judge(skip_layer_norm(1024), tmp_path, feeds, runtime="cuda-1.26")
    got = np.load(old["outputs"]["y"]["file"])
    assert old["ok"] is True  # nothing is NaN ...
    assert (got == 0.5).all()  # ... and nothing is left but the bias
    assert old["overflowed"][0]["node"] == "norm"
    assert old["overflowed"][0]["inside"] is True
    assert "not seen on a GPU" in old["half_kernels"]["SkipLayerNormalization"]
    same_bits(np.load(old["outputs"]["sum"]["file"]), x + skip)


def test_skip_layer_normalisation_in_half_is_right_where_nothing_overflows(emulated: Emulator) -> None:
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal((3, 64)).astype(np.float16) for name in ("x", "skip")}
    total = (feeds["x"] + feeds["skip"]).astype(np.float64)
    y, _ = emulated(skip_layer_norm(64), feeds, runtime="cuda-1.20")
    assert np.abs(y - layer_norm(total, 1, 0.5, 1e-5)).max() < 0.02
    y, _ = emulated(skip_layer_norm(64, "SkipSimplifiedLayerNormalization"), feeds, runtime="cuda-1.20")
    assert np.abs(y - total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)).max() < 0.02


def attention(inputs: dict[str, list[Any]], heads: int) -> onnx.ModelProto:
    node = helper.make_node("MultiHeadAttention", list(inputs), ["y"], domain="com.microsoft", num_heads=heads)
    return model([node], [value(n, F16, s) for n, s in inputs.items()], [value("y", F16, ["b", "s", "d"])])


def test_attention_is_one_kernel_and_may_be_packed(emulated: Emulator) -> None:
    batch, length, heads, width = 2, 5, 3, 8
    qkv = (np.random.default_rng(0).standard_normal((batch, length, heads, 3, width)) * 100).astype(np.float16)
    q, k, v = (qkv[:, :, :, part].astype(np.float64).transpose(0, 2, 1, 3) for part in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width)  # beyond 65504: a kernel holds them in single precision
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    right = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, -1).astype(np.float16)
    flat = {name: qkv[:, :, :, part].reshape(batch, length, -1) for part, name in enumerate("qkv")}
    shape = ["b", "s", heads * width]
    (apart,) = emulated(attention({"q": shape, "k": shape, "v": shape}, heads), flat)
    (packed,) = emulated(attention({"qkv": ["b", "s", heads, 3, width]}, heads), {"qkv": qkv})
    kv = attention({"q": shape, "kv": ["b", "s", heads, 2, width]}, heads)
    (half_packed,) = emulated(kv, {"q": flat["q"], "kv": np.ascontiguousarray(qkv[:, :, :, 1:])})
    assert np.abs(scores * np.sqrt(width)).max() > 65504
    assert np.abs(ordered(apart) - ordered(right)).max() <= 2
    same_bits(packed, apart)
    same_bits(half_packed, apart)


def test_attention_stores_its_projection_in_half(emulated: Emulator) -> None:
    """ONNX Runtime's Attention is the projection, rounded, and then MultiHeadAttention, under the same mask."""
    batch, length, heads, width = 2, 5, 3, 8
    random, hidden = np.random.default_rng(0), heads * width
    x = random.standard_normal((batch, length, hidden)).astype(np.float16)
    weights = random.standard_normal((hidden, 3 * hidden)).astype(np.float16)
    bias = random.standard_normal(3 * hidden).astype(np.float16)
    mask = np.ones((batch, length), np.int32)
    mask[1, 3:] = 0
    constants = (constant("w", weights), constant("bias", bias))
    given = [value("x", F16, ["b", "s", hidden]), value("mask", onnx.TensorProto.INT32, ["b", "s"])]
    settings: dict[str, Any] = {"domain": "com.microsoft", "num_heads": heads, "mask_filter_value": -1e9}
    node = helper.make_node("Attention", ["x", "w", "bias", "mask"], ["y"], **settings)
    (fused,) = emulated(model([node], given, [value("y", F16, ["b", "s", hidden])], constants), {"x": x, "mask": mask})
    product = (x.astype(np.float32) @ weights.astype(np.float32)).astype(np.float16)
    parts = {name: product[..., n * hidden : (n + 1) * hidden].copy() for n, name in enumerate("qkv")}
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v", "bias", "mask"], ["y"], **settings)
    inputs = [*(value(name, F16, ["b", "s", hidden]) for name in "qkv"), given[1]]
    apart_model = model([node], inputs, [value("y", F16, ["b", "s", hidden])], constants[1:])
    (apart,) = emulated(apart_model, {**parts, "mask": mask})
    assert np.abs(ordered(fused) - ordered(apart)).max() <= 1  # sums in another order may round another way
    assert not (fused[0] == fused[1]).all()


def reduction(op: str, axes: list[int], shape: list[Any]) -> onnx.ModelProto:
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
    return model([node], [value("x", F16, shape)], [value("y", F16, None)], (constant("axes", np.int64(axes)),))


def test_reduce_mean_divides_a_sum_in_half(emulated: Emulator) -> None:
    x = np.full((4, 3, 1000), 100, np.float16)
    for axes, expected in (([-1], np.inf), ([2], np.inf), ([1, 2], np.inf), ([1], 100), ([0], 100)):
        (got,) = emulated(reduction("ReduceMean", axes, [4, 3, 1000]), {"x": x})
        assert (got == expected).all(), axes
    many = np.ones((1, 70_000), np.float16)  # neither the sum nor the number of terms is a half
    assert np.isnan(emulated(reduction("ReduceMean", [1], [1, 70_000]), {"x": many})[0]).all()
    (got,) = emulated(reduction("ReduceMean", [-1], ["a", "b"]), {"x": np.float16([[1, 2, 4]])})
    assert got.item() == np.float16(np.float32(7) / 3)


def test_reduce_sum_square_stores_its_squares_in_half(emulated: Emulator) -> None:
    x = np.float16([[300, 1], [3, 4]])
    (got,) = emulated(reduction("ReduceSumSquare", [-1], [2, 2]), {"x": x})
    assert got.tolist() == [np.inf, 25]


def test_the_table_says_what_was_seen() -> None:
    by_op = {entry.op: entry for entry in HALF_KERNELS}
    assert not by_op["SkipLayerNormalization"].seen_on_gpu
    assert by_op["ReduceMean"].seen_on_gpu
    assert all(entry.source for entry in HALF_KERNELS)
    assert by_op["SkipLayerNormalization"].concerns(parse_runtime("cuda-1.26"))
    assert not by_op["SkipLayerNormalization"].concerns(parse_runtime("cuda-1.26-strict"))
    assert not by_op["SkipLayerNormalization"].concerns(parse_runtime("cuda-1.27+"))


# --- refusals -------------------------------------------------------------------------------------------------------


def refusals() -> dict[str, tuple[onnx.ModelProto, str]]:
    x, y = [value("x", F16, ["n"])], [value("y", F16, ["n"])]
    text = [value("y", TensorProto.STRING, ["n"])]
    sequence = [helper.make_tensor_sequence_value_info("y", F16, None)]
    computed = [helper.make_node("Shape", ["x"], ["a"]), helper.make_node("ReduceMean", ["x", "a"], ["y"], name="m")]
    bits = helper.make_node("BitCast", ["x"], ["y"], name="bits", to=TensorProto.INT16)
    strange = helper.make_node("Strange", ["x"], ["z"], name="s", domain="here")
    after = helper.make_node("Identity", ["z"], ["y"])
    embed = ["ids", "", "w", "p", "", "g", "b"]
    norm = helper.make_node("EmbedLayerNormalization", embed, ["y", "i"], name="embed", domain="com.microsoft")
    table = constant("w", np.ones((4, 4), np.float16)), constant("p", np.ones((4, 4), np.float16))
    scales = constant("g", np.ones(4, np.float16)), constant("b", np.ones(4, np.float16))
    ids = [value("ids", TensorProto.INT32, ["n", "s"])]
    return {
        "bits": (model([bits], x, [value("y", TensorProto.INT16, ["n"])], opset=26), "BitCast node 'bits'"),
        "text": (model([helper.make_node("Cast", ["x"], ["y"], to=8)], x, text), "Cast node 'y'"),
        "sequence": (model([helper.make_node("SequenceConstruct", ["x"], ["y"])], x, sequence), "output 'y'"),
        "unknown": (model([strange, after], x, y), "Strange node 's'"),
        "axes": (model(computed, x, [value("y", F16, None)]), "ReduceMean node 'm'"),
        "embedding": (model([norm], ids, [value("y", F16, None)], (*table, *scales)), "node 'embed'"),
    }


@pytest.mark.parametrize("name", sorted(refusals()))
def test_it_refuses_by_name_what_it_cannot_emulate(tmp_path: Path, name: str) -> None:
    proto, named = refusals()[name]
    report = write(proto, tmp_path, "cuda-1.26")
    assert report.status == "not measured"
    assert named in report.reason
    assert not (tmp_path / "emulated.onnx").exists()


def test_an_operator_without_a_cpu_kernel_is_not_measured(tmp_path: Path) -> None:
    node = helper.make_node("GroupNorm", ["x", "g", "b"], ["y"], name="gn", domain="com.microsoft", groups=1)
    constants = constant("g", np.ones(2, np.float32)), constant("b", np.ones(2, np.float32))
    proto = model([node], [value("x", F16, ["n", 1, 1, 2])], [value("y", F16, ["n", 1, 1, 2])], constants)
    answer = judge(proto, tmp_path, {"x": np.ones((2, 1, 1, 2), np.float16)})
    assert answer["outputs"] == {}
    assert answer["ok"] is False
    assert "GroupNorm" in answer["reason"]


def test_wrong_calls_say_so(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="names no runtime"):
        write(unary("Abs"), tmp_path, "cuda")
    with pytest.raises(RecipeError, match="directml"):
        write(unary("Abs"), tmp_path, "directml-1.22")
    (tmp_path / "no.onnx").write_bytes(b"\xff\xff\xff not a model")
    with pytest.raises(StepError, match="cannot be read"):
        emulate(tmp_path / "no.onnx", tmp_path / "out.onnx")
    with pytest.raises(StepError, match="fed"):
        judge(unary("Abs"), tmp_path, {"z": np.ones(2, np.float16)})
    with pytest.raises(StepError, match="wrong arguments"):
        emulated_run({"model": "m.onnx"}, lambda *_: None)


# --- files ----------------------------------------------------------------------------------------------------------


def test_weights_stay_in_half_in_the_file(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((1000, 500)).astype(np.float16)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", F16, ["n", 1000])], [value("y", F16, ["n", 500])], (constant("w", w),))
    report = write(proto, tmp_path)
    assert report.rounded == 1
    assert (tmp_path / "emulated.onnx").stat().st_size < w.nbytes + 2000


def test_external_data_come_along(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float16)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model([node], [value("x", F16, ["n", 300])], [value("y", F16, ["n", 300])], (constant("w", w),))
    x = np.random.default_rng(1).standard_normal((3, 300)).astype(np.float16)
    whole = judge(proto, tmp_path, {"x": x})
    whole_rows = np.load(whole["outputs"]["y"]["file"])
    (tmp_path / "apart").mkdir()
    onnx.save(proto, tmp_path / "apart" / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    apart = judge(tmp_path / "apart" / "m.onnx", tmp_path, {"x": x})
    same_bits(np.load(apart["outputs"]["y"]["file"]), whole_rows)
    (tmp_path / "apart" / "m.data").unlink()
    with pytest.raises(StepError, match="external data"):
        emulate(tmp_path / "apart" / "m.onnx", tmp_path / "other" / "m.onnx")


def test_a_fixed_batch_is_filled_up_and_awkward_names_are_no_file_names(tmp_path: Path) -> None:
    node = helper.make_node("Mul", ["x", "x"], ["../y"])
    proto = model([node], [value("x", F16, [2, 2])], [value("../y", F16, [2, 2])])
    x = np.float16([[1, 2], [3, 4], [5, 6]])
    answer = judge(proto, tmp_path, {"x": x}, batch=7)
    found = answer["outputs"]["../y"]
    assert Path(found["file"]).parent == tmp_path / "out"
    assert (found["shape"], found["dtype"]) == ([3, 2], "float16")
    same_bits(np.load(found["file"]), x * x)
    assert answer["provider"] == "fp16-emulation"


def test_one_file_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    path = convert([("float16_common", {})], tmp_path)
    code = (
        "import sys; from pathlib import Path; from bot.measure.fp16_emulation import emulate;"
        "emulate(Path(sys.argv[1]), Path(sys.argv[2]), runtime='cuda-1.22')"
    )
    made = []
    for seed in ("1", "2"):
        made.append(tmp_path / f"{seed}.onnx")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", code, str(path), str(made[-1])], check=True, env=environment)
    assert made[0].read_bytes() == made[1].read_bytes()
