"""Quantising to eight bits: what is prepared, calibrated, chosen and written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_graphs import model, node, run, save, tensor, value

from bot.errors import StepError
from bot.graph import tasks
from bot.graph.int8 import calibrate as calibrating
from bot.graph.int8.calibrate import Calibration, How, calibrate
from bot.graph.int8.choosing import INFINITE, KEEP, WITHIN, choose
from bot.graph.int8.distance import Group, distances, groups
from bot.graph.int8.parameters import QuantizeStaticParameters
from bot.graph.int8.prepare import prepare
from bot.graph.int8.quantize import static_operators
from bot.graph.int8.search import search
from bot.graph.int8.thresholds import BINS, entropy_range, histogram, percentile_range
from bot.graph.model_file import read_model
from bot.graph.quantize_dynamic import SCALES
from bot.graph.steps import Judgement, parse_parameters

DEFAULT = How()
GENERATOR = np.random.default_rng(7)


def ignore(done: int, total: int, what: str) -> None:
    """Progress that nobody watches."""


def detector(opset: int = 18, *, names: bool = True) -> onnx.ModelProto:
    """Two convolutions and a head of two branches: boxes up to 640 and scores up to 1 in one output, as in a YOLO."""
    generator = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return tensor(name, generator.normal(0, 0.35, shape))

    nodes = [
        ("Conv", ["x", "w0", "b0"], ["c0"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("BatchNormalization", ["c0", "gain", "shift", "mean", "var"], ["n0"], {}),
        ("Relu", ["n0"], ["r0"], {}),
        ("Conv", ["r0", "w1", "b1"], ["c1"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c1"], ["r1"], {}),
        ("Conv", ["r1", "w2"], ["boxes"], {}),
        ("Conv", ["r1", "w3"], ["logits"], {}),
        ("Sigmoid", ["boxes"], ["share"], {}),
        ("Mul", ["share", "pixels"], ["scaled"], {}),
        ("Sigmoid", ["logits"], ["scores"], {}),
        ("Concat", ["scaled", "scores"], ["y"], {"axis": 1}),
    ]
    made = [
        node(op, inputs, outputs, **({"name": f"/m/{outputs[0]}"} if names else {}), **attributes)
        for op, inputs, outputs, attributes in nodes
    ]
    weights = [weight("w0", 8, 3, 3, 3), weight("b0", 8), weight("w1", 8, 8, 3, 3), weight("b1", 8)]
    weights += [weight("w2", 4, 8, 1, 1), weight("w3", 3, 8, 1, 1), tensor("pixels", 640.0)]
    weights += [tensor(name, np.full(8, number)) for name, number in [("gain", 1.1), ("shift", 0.1), ("mean", 0.05)]]
    weights.append(tensor("var", np.full(8, 0.9)))
    proto = model(made, [value("x", ["N", 3, 16, 16])], [value("y", ["N", 7, 8, 8])], weights, opset=opset)
    helper.set_model_props(proto, {"random_weights": "true", "task": "detect"})
    return proto


def photographs(count: int = 12) -> np.ndarray:
    return np.random.default_rng(11).uniform(0, 1, (count, 3, 16, 16)).astype(np.float32)


@pytest.fixture
def quantized(tmp_path: Path) -> Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]:
    """Runs a step as the worker would."""

    def quantize(proto: onnx.ModelProto, name: str = "quantize_static", evaluate: Any = None, **parameters: Any) -> Any:
        source, output, scratch = save(proto, tmp_path / "m.onnx"), tmp_path / "out.onnx", tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        np.save(tmp_path / "x.npy", photographs())
        arguments = {"step": name, "source": str(source), "output": str(output), "scratch": str(scratch)}
        arguments |= {"parameters": parameters, "calibration": {"x": str(tmp_path / "x.npy")}}
        answer: Any = tasks.step(arguments, ignore, evaluate)
        assert tasks.check({"model": str(output)}, ignore) == {"ok": True, "reason": ""}
        assert not list(scratch.iterdir())
        return onnx.load(output), answer["report"]

    return quantize


# -- preparing


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
def test_preparing_changes_no_answer(tmp_path: Path, opset: int) -> None:
    proto = detector(opset, names=False)
    prepared = prepare(read_model(save(proto, tmp_path / "m.onnx")), tmp_path)
    assert prepared.opset_import[0].version == max(opset, 13)
    assert "BatchNormalization" not in {each.op_type for each in prepared.graph.node}
    names = [each.name for each in prepared.graph.node]
    assert all(names) and len(set(names)) == len(names)
    np.testing.assert_allclose(run(prepared, {"x": photographs()})[0], run(proto, {"x": photographs()})[0], rtol=1e-4)
    assert {each.key: each.value for each in prepared.metadata_props} == {"random_weights": "true", "task": "detect"}
    assert prepared.graph.input[0].type == proto.graph.input[0].type
    typed = {each.name for each in [*prepared.graph.value_info, *prepared.graph.output]}
    assert {name for each in prepared.graph.node for name in each.output} <= typed


def test_what_is_quantised_is_not_quantised_again(quantized: Callable[..., Any]) -> None:
    once, _ = quantized(detector())
    with pytest.raises(StepError, match="quantised already"):
        quantized(once)


def test_an_opset_that_is_too_old_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="opset 6"):
        prepare(read_model(save(detector(6), tmp_path / "m.onnx")), tmp_path)


# -- ranges


def ranges_of(proto: onnx.ModelProto, rows: np.ndarray, tmp_path: Path, how: How = DEFAULT) -> Calibration:
    np.save(tmp_path / "rows.npy", rows)
    prepared = prepare(read_model(save(proto, tmp_path / "m.onnx")), tmp_path)
    return calibrate(prepared, {"x": tmp_path / "rows.npy"}, how, tmp_path, ignore, "m.onnx")


def test_ranges_are_what_the_runtimes_own_calibration_finds(tmp_path: Path) -> None:
    from onnxruntime.quantization.calibrate import MinMaxCalibrater

    found = ranges_of(detector(), photographs(), tmp_path)
    prepared = prepare(read_model(tmp_path / "m.onnx"), tmp_path)
    onnx.save(prepared, tmp_path / "p.onnx")
    theirs = MinMaxCalibrater(tmp_path / "p.onnx", augmented_model_path=str(tmp_path / "augmented.onnx"))
    theirs.augment_graph()
    theirs.create_inference_session()

    class Reader:
        rows = iter([{"x": row[None]} for row in photographs()])

        def get_next(self) -> Any:
            return next(self.rows, None)

    theirs.collect_data(Reader())
    expected = theirs.compute_data().data
    assert set(expected) <= set(found.ranges)
    for name, each in expected.items():
        low, high = (float(np.min(part)) for part in each.range_value)
        assert found.ranges[name] == pytest.approx((min(low, 0), max(high, 0)), rel=1e-6)
    assert found.samples == found.available == 12


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_neither_order_nor_portions_play_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    rows = photographs() * np.linspace(0.2, 3, 12, dtype=np.float32)[:, None, None, None]
    once = ranges_of(detector(), rows, tmp_path, How(method, 99.0))
    turned = ranges_of(detector(), rows[::-1], tmp_path, How(method, 99.0))
    monkeypatch.setattr(calibrating, "PORTION", 5000)
    parted = ranges_of(detector(), rows, tmp_path, How(method, 99.0))
    assert once == turned == parted


def test_fewer_samples_are_evenly_spread(tmp_path: Path) -> None:
    found = ranges_of(detector(), photographs(), tmp_path, How(limit=5))
    assert (found.samples, found.available) == (5, 12)


def test_tensors_that_are_infinite_keep_their_nodes_float(quantized: Callable[..., Any]) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv"),
        node("Log", ["c"], ["l"], name="log"),
        node("Add", ["l", "c"], ["y"], name="add"),
    ]
    weights = [tensor("w", np.concatenate([np.zeros((1, 3, 1, 1)), np.ones((1, 3, 1, 1))]))]
    proto = model(nodes, [value("x", ["N", 3, 16, 16])], [value("y", None)], weights)
    _, report = quantized(proto)
    assert report["kept_because"] == {INFINITE: 1} and report["kept"] == ["add"]
    assert report["operators"] == {"Conv": 1}


finite = st.floats(-1000, 1000, width=32)


@given(st.lists(finite, min_size=2, max_size=300), st.floats(51, 99.9))
def test_a_percentile_range_leaves_the_share_that_is_asked_for(values: list[float], percentile: float) -> None:
    array = np.array(values)
    low, high = float(array.min()), float(array.max())
    counts = histogram(array, low, high)
    if high > low:
        assert counts.sum() == len(values)
    found = percentile_range(counts, low, high, percentile)
    step = (high - low) / BINS
    inside = ((array >= found[0] - step) & (array <= found[1] + step)).sum()
    assert inside >= len(values) * percentile / 100 - 1e-9
    assert low <= found[0] <= found[1] <= high


def test_percentiles_are_numpys_to_a_bin() -> None:
    array = np.random.default_rng(0).normal(0, 3, 200_000)
    low, high = float(array.min()), float(array.max())
    found = percentile_range(histogram(array, low, high), low, high, 99)
    expected = np.percentile(array, [0.5, 99.5])
    np.testing.assert_allclose(found, expected, atol=2 * (high - low) / BINS)


@pytest.mark.parametrize("relu", [False, True])
def test_entropy_clips_an_outlier_and_no_bulk(relu: bool) -> None:
    array = np.random.default_rng(0).normal(0, 1, 400_000)
    array = np.maximum(array, 0) if relu else array
    array[0] = 60.0
    low, high = float(array.min()), 60.0
    found = entropy_range(histogram(array, low, high), low, high)
    assert found[0] == pytest.approx(max(low, -found[1]))
    assert 3 < found[1] < 20
    even = np.random.default_rng(0).uniform(-2, 2, 400_000)
    assert entropy_range(histogram(even, -2, 2), -2, 2)[1] > 1.8


@given(st.lists(finite, min_size=1, max_size=50))
def test_an_entropy_range_is_within_the_values(values: list[float]) -> None:
    array = np.array(values)
    low, high = float(array.min()), float(array.max())
    found = entropy_range(histogram(array, low, high), low, high)
    assert low <= found[0] and found[1] <= high


# -- what is chosen


def prepared_detector(tmp_path: Path) -> onnx.ModelProto:
    return prepare(read_model(save(detector(), tmp_path / "m.onnx")), tmp_path)


def test_distance_is_counted_in_nodes_from_the_output(tmp_path: Path) -> None:
    found = distances(prepared_detector(tmp_path).graph)
    assert found["/m/y"] == 0
    assert (found["/m/scaled"], found["/m/scores"]) == (1, 1)
    assert (found["/m/share"], found["/m/logits"]) == (2, 2)
    assert (found["/m/boxes"], found["/m/r1"]) == (3, 3)
    assert max(found.values()) == found["/m/c0"] == 6


def test_distance_goes_through_branches_and_ignores_what_leads_nowhere() -> None:
    inner = helper.make_graph([node("Neg", ["a"], ["n"], name="neg")], "g", [], [value("n", None)])
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("If", ["c"], ["y"], name="if", then_branch=inner, else_branch=inner),
        node("Abs", ["x"], ["unused"], name="abs"),
    ]
    proto = model(nodes, [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", None)])
    assert distances(proto.graph) == {"if": 0, "relu": 1}


def test_what_follows_the_last_weights_is_a_group_of_its_own(tmp_path: Path) -> None:
    proto = prepared_detector(tmp_path)
    names = [each.name for each in proto.graph.node]
    found = {group.name: group for group in groups(proto.graph, names)}
    assert sorted(name for group in found.values() for name in group.nodes) == sorted(names)
    assert set(found) == {"/m/c0", "/m/c1", "/m/boxes", "/m/logits", "/m/share", "/m/scores"} | {"/m/y"} & set(found)
    assert found["/m/c0"].nodes == ("/m/c0", "/m/r0") and found["/m/c0"].weights == 8 * 27 + 8
    assert found["/m/boxes"].nodes == ("/m/boxes",)


def test_keep_says_what_stays_float_and_what_matched_nothing(tmp_path: Path) -> None:
    proto = prepared_detector(tmp_path)
    parameters = QuantizeStaticParameters(keep=("/m/s*", "Relu", "Gelu"), keep_within=0)
    found = choose(proto, static_operators(), parameters)
    assert found.unmatched == ("Gelu",)
    assert found.kept["/m/share"] == found.kept["/m/r0"] == KEEP and found.kept["/m/y"] == WITHIN
    assert set(found.nodes) == {"/m/c0", "/m/c1", "/m/boxes", "/m/logits"}


def test_an_operator_that_cannot_be_quantised_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="Tan"):
        choose(prepared_detector(tmp_path), static_operators(), QuantizeStaticParameters(operators=("Conv", "Tan")))
    with pytest.raises(StepError, match="no node"):
        choose(prepared_detector(tmp_path), static_operators(), QuantizeStaticParameters(keep=("*",)))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"keep_within": -1}, "keep_within"),
        ({"percentile": 99.9}, "percentile belongs to"),
        ({"method": "percentile", "percentile": 40}, "percentile"),
        ({"activations": "int4"}, "activations"),
        ({"keep_wihtin": 12}, "did you mean 'keep_within'"),
    ],
)
def test_wrong_parameters_are_named(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_parameters("quantize_static", raw)


# -- what is written


def test_everything_in_eight_bits_kills_the_scores_and_the_head_in_float_does_not(
    quantized: Callable[..., Any],
) -> None:
    """Boxes up to 640 and scores up to 1 on one scale of 256 steps: each score is one of two values or less."""
    expected = run(detector(), {"x": photographs()})[0]
    everything, report = quantized(detector())
    dead = run(everything, {"x": photographs()})[0]
    assert len(np.unique(dead[:, 4:])) <= 2 < len(np.unique(np.round(expected[:, 4:], 2)))
    assert np.corrcoef(dead.ravel(), expected.ravel())[0, 1] > 0.999
    assert report["nodes_kept"] == 0 and report["operators"]["Conv"] == 4

    headless, report = quantized(detector(), keep_within=2)
    alive = run(headless, {"x": photographs()})[0]
    assert np.abs(alive - expected)[:, 4:].max() < 0.1
    assert report["kept_because"] == {WITHIN: report["nodes_kept"]}


def test_a_file_declares_no_more_than_it_needs(quantized: Callable[..., Any]) -> None:
    found, _ = quantized(detector(11))
    assert [(each.domain, each.version) for each in found.opset_import] == [("", 13)]
    assert found.ir_version == 10  # the source's own
    assert {each.key: each.value for each in found.metadata_props} == {"random_weights": "true", "task": "detect"}
    assert found.producer_name == "test"
    types = {each.name: each.data_type for each in found.graph.initializer}
    assert all(types[f"w{index}_quantized"] == TensorProto.INT8 for index in (1, 2, 3))
    zeros = {each.data_type for each in found.graph.initializer if each.name.endswith("_zero_point")}
    assert TensorProto.UINT8 in zeros
    (scales,) = (each for each in found.graph.initializer if each.name == "w1_scale")
    assert list(scales.dims) == [8]


def test_other_settings_are_possible_and_their_cost_is_recorded(quantized: Callable[..., Any]) -> None:
    found, report = quantized(detector(), activations="int8", weights="uint8", per_channel=False, keep_within=2)
    zeros = {each.data_type for each in found.graph.initializer if each.name.endswith("_zero_point")}
    assert TensorProto.INT8 in zeros
    (scales,) = (each for each in found.graph.initializer if each.name == "w1_scale")
    assert list(scales.dims) == []
    assert set(report["cost"]) == {"relative_error_with_defaults", "bytes", "bytes_with_defaults"}
    assert report["relative_error"]["y"] > report["cost"]["relative_error_with_defaults"]["y"] > 0
    assert "x64" in report["slower_on"]


def test_the_bytes_are_the_same_with_any_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]\n"
        "from test_quantize import detector, photographs, ignore\n"
        "import numpy, hashlib, pathlib; from onnx_graphs import save; from bot.graph import tasks\n"
        "f = pathlib.Path(sys.argv[3]); (f / 's').mkdir(parents=True); numpy.save(f / 'x.npy', photographs())\n"
        "for name in ('quantize_static', 'quantize_dynamic'):\n"
        "    more = {'operators': ['Conv']} if name == 'quantize_dynamic' else {'method': 'percentile'}\n"
        "    tasks.step({'step': name, 'source': str(save(detector(11), f / 'm.onnx')), 'output': str(f / 'o.onnx'),\n"
        "        'parameters': more, 'scratch': str(f / 's'), 'calibration': {'x': str(f / 'x.npy')}}, ignore)\n"
        "    print(hashlib.sha256((f / 'o.onnx').read_bytes()).hexdigest())\n"
    )
    here = Path(__file__).parent
    answers = [
        subprocess.run(
            [sys.executable, "-c", script, str(here.parent.parent), str(here), str(tmp_path / seed)],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1] and len(set(answers[0].split())) == 2


def test_without_samples_there_is_nothing_to_calibrate_on(tmp_path: Path) -> None:
    arguments = {"step": "quantize_static", "source": str(save(detector(), tmp_path / "m.onnx"))}
    arguments |= {"output": str(tmp_path / "o.onnx"), "scratch": str(tmp_path)}
    with pytest.raises(StepError, match="needs samples to calibrate on"):
        tasks.step({**arguments, "feeds": {"x": str(tmp_path / "x.npy")}}, ignore)
    np.save(tmp_path / "x.npy", photographs()[:, :, :8])
    with pytest.raises(StepError):
        tasks.step({**arguments, "calibration": {"x": str(tmp_path / "x.npy")}}, ignore)
    np.save(tmp_path / "x.npy", photographs())
    with pytest.raises(StepError, match="limits, and there are none"):
        given_ = {"calibration": {"x": str(tmp_path / "x.npy")}, "parameters": {"keep": "auto"}}
        tasks.step({**arguments, **given_}, ignore)


def test_dynamic_quantisation_takes_weights_only(quantized: Callable[..., Any]) -> None:
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["h"], name="first"),
        node("Relu", ["h"], ["r"], name="relu"),
        node("MatMul", ["r", "w1"], ["y"], name="second"),
    ]
    generator = np.random.default_rng(0)
    weights = [tensor("w0", generator.normal(0, 0.2, (16, 32))), tensor("b0", np.zeros(32))]
    weights.append(tensor("w1", generator.normal(0, 0.2, (32, 8))))
    proto = model(nodes, [value("x", ["N", 16])], [value("y", ["N", 8])], weights)
    found, report = quantized(proto, "quantize_dynamic")
    assert report["operators"] == {"Gemm": 1, "MatMul": 1} and report["nodes_kept"] == 0
    ops = [each.op_type for each in found.graph.node]
    assert ops.count("DynamicQuantizeLinear") == 2 and "MatMul" not in ops
    rows = generator.normal(size=(5, 16)).astype(np.float32)
    expected = run(proto, {"x": rows})[0]
    np.testing.assert_allclose(run(found, {"x": rows})[0], expected, atol=0.15)
    found, report = quantized(proto, "quantize_dynamic", keep="second")
    assert report["operators"] == {"Gemm": 1} and report["kept_because"] == {KEEP: 1}
    assert [each.op_type for each in found.graph.node].count("DynamicQuantizeLinear") == 1
    found, report = quantized(proto, "quantize_dynamic", operators=["MatMul"])
    assert report["operators"] == {"MatMul": 1} and report["kept_because"] == {}
    assert [each.op_type for each in found.graph.node].count("DynamicQuantizeLinear") == 1
    proto.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.5))
    _, report = quantized(proto, "quantize_dynamic")
    assert report["operators"] == {"MatMul": 1} and report["kept_because"] == {SCALES: 1}


def test_dynamic_quantisation_of_the_runtimes_own_operators(quantized: Callable[..., Any]) -> None:
    """Nothing infers the type of what com.microsoft's operators give; the quantiser has to be told that it is float."""
    nodes = [
        node("Gelu", ["x"], ["g"], name="gelu", domain="com.microsoft"),
        node("MatMul", ["g", "w"], ["m"], name="matmul"),
        node("Gelu", ["m"], ["h"], name="gelu2", domain="com.microsoft"),
        node("MatMul", ["h", "v"], ["y"], name="last"),
    ]
    weights = [tensor("w", GENERATOR.normal(0, 0.2, (16, 16))), tensor("v", GENERATOR.normal(0, 0.2, (16, 4)))]
    domains = {"com.microsoft": 1}
    proto = model(nodes, [value("x", ["N", 16])], [value("y", ["N", 4])], weights, domains=domains)
    found, report = quantized(proto, "quantize_dynamic")
    assert report["nodes_quantized"] == 2
    assert {each.domain for each in found.opset_import} == {"", "com.microsoft"}


# -- the search


def test_the_search_finds_the_head(quantized: Callable[..., Any], tmp_path: Path) -> None:
    expected = run(detector(), {"x": photographs()})[0]

    def evaluate(path: Path, margin: float, limit: int) -> Judgement:
        found = run(path, {"x": photographs()})[0]
        worst = float(np.abs(found - expected)[:, 4:].max())
        noise = [
            float(np.abs(found - expected)[:, part].max() / expected[:, part].std()) for part in (slice(4), slice(4, 7))
        ]
        return Judgement(worst <= 0.05 * (1 - margin), max(noise), "a score moves", {"worst": worst})

    found, report = quantized(detector(), keep="auto", evaluate=evaluate)
    assert report["search"]["why_not_everything"] == "a score moves"
    assert 0 < report["nodes_kept"] < 8 and "/m/y" in report["kept"]
    assert {"/m/c0", "/m/c1"} & set(report["kept"]) != {"/m/c0", "/m/c1"}
    assert evaluate(save(found, tmp_path / "found.onnx"), 0.25, 0).passed


def test_a_search_that_finds_nothing_says_so(quantized: Callable[..., Any]) -> None:
    with pytest.raises(StepError, match="no group of nodes can be in eight bits: never"):
        quantized(detector(), keep="auto", evaluate=lambda *_: Judgement(False, 1.0, "never"))


def test_a_search_that_need_not_keeps_nothing(quantized: Callable[..., Any]) -> None:
    _, report = quantized(detector(), keep="auto", evaluate=lambda *_: Judgement(True, 0.1))
    assert report["nodes_kept"] == 0 and report["search"]["trials"] == 1


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.integers(0, 40))
def test_what_the_search_keeps_passes_and_cannot_be_less(harms: list[int], limit: int) -> None:
    """Harms that add up, and a limit on their sum: any set whose rest is within it passes."""
    every = [Group(f"g{index}", (f"n{index}",), 1) for index in range(len(harms))]
    harm_of = {f"n{index}": harm for index, harm in enumerate(harms)}

    def attempt(nodes: frozenset[str]) -> Judgement:
        total = sum(harm_of[name] for name in nodes)
        return Judgement(total <= limit, float(total), "" if total <= limit else "too much")

    if min(harms) > limit:
        with pytest.raises(StepError):
            search(every, attempt, ignore)
        return
    found = search(every, attempt, ignore)
    kept = {group.name for group in found.kept}
    rest = frozenset(group.nodes[0] for group in every if group.name not in kept)
    assert attempt(rest).passed and found.judgement == attempt(rest)
    for group in found.kept:
        assert not attempt(rest | set(group.nodes)).passed
    assert found.trials <= 2 * len(every) + 2 * len(every).bit_length() + 2
