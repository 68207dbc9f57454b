"""The forms of a rebuilt DINOv3 that have fewer nodes and casts: each answers as the source, and says what it needs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from dinov3_networks import Shape, run
from onnx import numpy_helper
from test_dinov3 import MINI, NOISE, ages, differences, weights

from bot.errors import StepError
from bot.graph import tasks
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.attention import _in_pairs, _packed_columns
from bot.graph.rebuild.calibration import lost
from bot.graph.rebuild.patterns import Linear, Norm
from bot.graph.rebuild.rounding import Normed, compensation, rounded
from bot.graph.rebuild.weights import MatrixPayload
from bot.graph.steps import parse_parameters
from bot.measure.fp16_emulation import emulate

Rebuild = Callable[..., tuple[Path, dict[str, Any]]]
Export = Callable[..., Path]

BEST = {"residual": "fp16", "compensate": True, "patches": "matmul"}
"""The form with the fewest casts, but for the attention, which a test chooses."""


def half_answers(path: Path, faces: np.ndarray, runtime: str = "cuda-1.27+") -> list[np.ndarray]:
    """All outputs in emulated half precision, graph optimisations off."""
    rewritten = path.with_suffix(".emulated.onnx")
    assert emulate(path, rewritten, runtime=runtime).status == "emulated"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(rewritten), options, providers=["CPUExecutionProvider"])
    return [np.asarray(answer) for answer in session.run(None, {"face": faces})]


def emulated(path: Path, faces: np.ndarray, runtime: str = "cuda-1.27+") -> np.ndarray:
    """The age logits, which FaceAge gives first."""
    return half_answers(path, faces, runtime)[0]


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


# --- the same function -----------------------------------------------------------------------------------------------

SHAPES = [Shape(), Shape(heads=1), Shape(layers=3, width=48, heads=3, registers=0)]
BIASED = Shape(options=(("key_bias", True), ("query_bias", True), ("value_bias", True)))
UNBIASED = Shape(options=(("key_bias", False), ("query_bias", False), ("value_bias", False)))


@pytest.mark.parametrize("shape", [*SHAPES, BIASED, UNBIASED], ids=["usual", "one head", "three", "biased", "unbiased"])
@pytest.mark.parametrize("head", [True, False], ids=["class token", "all tokens"])
def test_packed_attention_and_patches_by_matmul_change_nothing_in_float32(
    shape: Shape, head: bool, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    source = exported(shape, dynamo=False, opset=17, head=head)
    output, report = rebuilt(source, precision="fp32", attention="split", patches="matmul")
    assert differences(source, output, pictures) < NOISE
    assert report["last_block_cls_only"] is head
    counted = operators(output)
    assert counted["RotaryEmbedding"] == counted["MultiHeadAttention"] == shape.layers
    assert "Conv" not in counted
    assert "Split" not in counted


def test_a_form_of_all_tokens_in_half_precision(exported: Export, rebuilt: Rebuild, pictures: np.ndarray) -> None:
    source = exported(dynamo=False, opset=17, head=False)
    plain, _ = rebuilt(source, "plain")
    output, report = rebuilt(source, **BEST, attention="split")
    assert report["casts"] == 3
    assert differences(source, output, pictures) < 4 * differences(source, plain, pictures)


def test_a_fixed_batch(rebuilt: Rebuild) -> None:
    model = onnx.load(MINI)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    output, _ = rebuilt(model, precision="fp32", attention="split", patches="matmul")
    face = weights.pictures(1, seed=5)
    assert np.abs(run(output, face)[0] - run(MINI, face)[0]).max() < NOISE


# --- half precision --------------------------------------------------------------------------------------------------


def test_the_form_with_the_fewest_casts(rebuilt: Rebuild) -> None:
    """The picture is cast once, stream and branch before the final norm: that is all, at any depth."""
    usual, usual_report = rebuilt(MINI, "usual")
    output, report = rebuilt(MINI, **BEST, attention="packed")
    assert report["casts"] == 3
    # What a block more costs: 11 nodes. The last, and what stands around the blocks, cost the same at any depth.
    assert report["nodes"] == 11 * report["layers"] + 17
    assert report["nodes"] < usual_report["nodes"]
    assert output.stat().st_size < 1.02 * usual.stat().st_size
    faces = weights.pictures(8, seed=1)
    expected = ages(MINI, faces)
    assert np.abs(weights.ages(emulated(output, faces)) - expected).mean() < 0.02


def test_a_kernel_that_sums_in_half_is_no_place_for_this_form(rebuilt: Rebuild) -> None:
    """CUDA before 1.27: the massive activation's square overflows in the norm, and the emulation knows it."""
    output, _ = rebuilt(MINI, **BEST, attention="packed")
    assert not np.isfinite(emulated(output, weights.pictures(2, seed=1), runtime="cuda-1.22")).all()
    assert np.isfinite(emulated(output, weights.pictures(2, seed=1), runtime="cuda-1.22-strict")).all()


@pytest.mark.parametrize(("residual", "every"), [("fp16", 0), ("fp16", 1), ("fp32", 0)])
def test_the_twin_computes_every_number_of_the_packed_form(residual: str, every: int, rebuilt: Rebuild) -> None:
    """Bit by bit in emulation, which takes packed tensors apart itself; and weight by weight in the file."""
    half = residual == "fp16"
    form = {"residual": residual, "compensate": half, "patches": "matmul", "residual_every": every}
    packed, _ = rebuilt(MINI, "packed", **form, attention="packed")
    twin, _ = rebuilt(MINI, "twin", **form, attention="split")
    faces = weights.pictures(3, seed=2)
    assert emulated(packed, faces).tobytes() == emulated(twin, faces).tobytes()
    ours, theirs = (
        {tensor.name: tensor.SerializeToString() for tensor in onnx.load(path).graph.initializer}
        for path in (packed, twin)
    )
    assert ours.items() <= theirs.items()
    taking_apart = {"constant/part_0", "constant/part_1", "constant/part_2", "tokens/shape"}
    assert theirs.keys() - ours.keys() == taking_apart - ours.keys()


def test_only_the_twin_runs_on_the_cpu(rebuilt: Rebuild) -> None:
    packed, _ = rebuilt(MINI, "packed", attention="packed")
    with pytest.raises(Exception, match="Packed QKV of shape"):
        run(packed, weights.pictures(1, seed=2))
    twin, _ = rebuilt(MINI, "twin", attention="split")
    faces = weights.pictures(4, seed=2)
    assert np.abs(ages(twin, faces) - ages(MINI, faces)).mean() < 0.02


def test_compensation_makes_good_what_rounding_the_norms_changed(rebuilt: Rebuild) -> None:
    form = {"residual": "fp16", "patches": "matmul", "attention": "split"}
    faces = weights.pictures(16, seed=1)
    expected = ages(MINI, faces)
    errors = {}
    for chosen in (True, False):
        output, _ = rebuilt(MINI, f"compensated_{chosen}", **form, compensate=chosen)
        errors[chosen] = float(np.abs(weights.ages(emulated(output, faces)) - expected).mean())
    assert errors[True] < 0.85 * errors[False]


@pytest.mark.parametrize("attention", ["separate", "split"])
def test_compensation_of_gains_and_biases_that_float16_holds_badly(
    attention: str, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    model = onnx.load(exported())
    for tensor in model.graph.initializer:
        if tensor.name.endswith(("norm1.weight", "norm2.weight", "norm1.bias", "norm2.bias")):
            # Halfway between two halves: rounding moves every one of them by 2^-11 of itself, upwards.
            array = numpy_helper.to_array(tensor)
            exponent = np.exp2(np.floor(np.log2(np.abs(array))))
            halfway = np.sign(array) * exponent * np.float32(1 + 2**-10 + 2**-11 + 2**-20)
            tensor.CopyFrom(numpy_helper.from_array(halfway.astype(np.float32), tensor.name))
    form = {"residual": "fp16", "patches": "matmul", "attention": attention}
    output, _ = rebuilt(model, "compensated", **form, compensate=True)
    source = output.with_name("source.onnx")
    with_it = differences(source, output, pictures)
    without = differences(source, rebuilt(model, "plain", **form)[0], pictures)
    assert with_it < 0.8 * without


def test_ratio_and_rest() -> None:
    rng = np.random.default_rng(0)
    gain, bias = rng.standard_normal(64) * 3, rng.standard_normal(64)
    gain[:3] = 1e-9, 3e-7, 0  # vanishes, subnormal, zero
    norm = Norm(None, gain, bias, 1e-5)  # type: ignore[arg-type]
    gain16, bias16 = rounded(norm, "norm")
    assert gain16.dtype == bias16.dtype == np.float16
    rows, rest = compensation(norm, gain16, bias16)
    x = rng.standard_normal((5, 64))
    made = (x * gain16.astype(np.float64) + bias16.astype(np.float64)) * rows + rest
    wanted = x * gain + bias
    assert np.abs(made - wanted)[:, 1:].max() < 1e-12
    assert np.abs(made - wanted)[:, 0].max() < 1e-8
    assert np.abs(rows[3:] - 1).max() <= 2.0**-11 * 1.001


def test_a_norm_beyond_float16_is_refused(exported: Export, rebuilt: Rebuild) -> None:
    model = onnx.load(exported())
    tensor = next(each for each in model.graph.initializer if each.name.endswith("norm2.weight"))
    tensor.CopyFrom(numpy_helper.from_array(np.full(32, 7e4, np.float32), tensor.name))
    with pytest.raises(StepError, match="gain or bias beyond float16's range") as refused:
        rebuilt(model, residual="fp16")
    assert refused.value.where == "block_0/mlp_norm"


@pytest.mark.parametrize("size", [1e-5, 3e-4])
def test_a_tiny_layer_scale_is_split_into_a_power_of_two_and_the_rest(
    size: float, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    """In a float16 stream the layer scale is a factor that float16 holds exactly, and the matrix keeps its bits."""
    model = onnx.load(exported())
    for tensor in model.graph.initializer:
        if "layer_scale1" in tensor.name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(size), tensor.name))
    output, report = rebuilt(model, residual="fp16")
    assert "block_0/attention_out" in report["layer_scales_not_folded"]
    rebuilt_model = onnx.load(output)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in rebuilt_model.graph.initializer}
    factors = tensors["block_0/attention_out/scale"].astype(np.float64)
    assert np.array_equal(factors, np.exp2(np.round(np.log2(factors))))
    assert np.abs(tensors["block_0/attention_out/weight"]).max() > 2**-6
    assert differences(output.with_name("source.onnx"), output, pictures) < 0.02


def test_a_layer_scale_that_float16_does_not_hold_at_all_is_refused(exported: Export, rebuilt: Rebuild) -> None:
    model = onnx.load(exported())
    for tensor in model.graph.initializer:
        if "layer_scale1" in tensor.name:
            tensor.CopyFrom(numpy_helper.from_array(np.full(tensor.dims, 1e-8, np.float32), tensor.name))
    with pytest.raises(StepError, match=r"layer scale of 1\.25e-09, which float16 does not hold") as refused:
        rebuilt(model, residual="fp16")
    assert refused.value.where == "block_0/attention_out"


# --- a stream that is rounded less often -----------------------------------------------------------------------------


def half_differs_by(output: Path, source: Path, faces: np.ndarray) -> float:
    """The largest difference of an output in emulated half precision, over its largest magnitude, of the worst one."""
    answers = zip(half_answers(output, faces), run(source, faces), strict=True)
    # numpy's maximum, unlike Python's, does not pass over NaN.
    return float(np.max([np.abs(ours - theirs).max() / np.abs(theirs).max() for ours, theirs in answers]))


@pytest.mark.parametrize("every", [1, 64])
@pytest.mark.parametrize(
    ("layers", "head"), [(1, True), (2, True), (2, False), (3, True), (3, False)], ids=lambda value: str(value)
)
def test_a_stream_that_is_rounded_less_often_is_of_the_same_network(
    every: int, layers: int, head: bool, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    """Wherever the rows begin and end: with one block there are none, with two they may have no block but the last."""
    source = exported(Shape(layers=layers), dynamo=False, opset=17, head=head)
    output, report = rebuilt(source, **BEST, attention="split", residual_every=every)
    assert report["casts"] == 3
    assert report["residual_every"] == every
    assert half_differs_by(output, source, pictures) < 0.02


def test_the_less_often_a_stream_is_rounded_the_nearer_it_is(
    exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    """Blocks that add a tenth of what the stream holds, as in deep networks; errors over all numbers of all tokens."""
    model = onnx.load(exported(Shape(layers=8), dynamo=False, opset=17, head=False))
    for tensor in model.graph.initializer:
        if "layer_scale" in tensor.name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(0.1), tensor.name))
    errors, nodes = [], []
    for every in (0, 1, 2, 7):
        output, report = rebuilt(model, f"every_{every}", **BEST, attention="split", residual_every=every)
        expected = run(output.with_name("source.onnx"), pictures)
        found = half_answers(output, pictures)
        errors.append([float(np.square(ours - theirs).mean()) for ours, theirs in zip(found, expected, strict=True)])
        nodes.append(report["nodes"])
    assert (np.diff(np.array(errors), axis=0) < 0).all()
    assert (np.sqrt(errors[-1]) < 0.65 * np.sqrt(errors[0])).all()
    # One node a block but for the first, and the Reshapes where rows begin and end.
    assert nodes[1] == nodes[2] == nodes[3] == nodes[0] + 7 + 3


def test_biases_that_wait_for_the_stream_are_not_lost(exported: Export, rebuilt: Rebuild, pictures: np.ndarray) -> None:
    """Large biases of the branches: each norm needs all that came before it, and the next group begins without them."""
    model = onnx.load(exported(Shape(layers=5), dynamo=False, opset=17, head=False))
    for tensor in model.graph.initializer:
        if tensor.name.endswith(("o_proj.bias", "down_proj.bias")):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(20), tensor.name))
    output, _ = rebuilt(model, **BEST, attention="split", residual_every=2)
    assert half_differs_by(output, output.with_name("source.onnx"), pictures) < 0.02


def test_the_form_with_the_least_error_of_few_nodes(rebuilt: Rebuild) -> None:
    """FaceAge's own network: 24 blocks come to 306 nodes."""
    plain = rebuilt(MINI, "plain", **BEST, attention="packed")[1]
    report = rebuilt(MINI, **BEST, attention="packed", residual_every=4)[1]
    assert report["casts"] == 3
    # Of 3 blocks the first costs what it costs in the plain form; the last, rows that end before it.
    assert report["nodes"] == plain["nodes"] + 2 + 2
    assert plain["nodes"] + 21 * 11 + 23 + 2 == 306


def test_rows_when_the_batch_is_fixed_and_when_a_layer_scale_is_not_folded(
    exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    model = onnx.load(exported(Shape(layers=3), dynamo=False, opset=17))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    del model.graph.value_info[:]
    for tensor in model.graph.initializer:
        if "layer_scale1" in tensor.name:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(3e-4), tensor.name))
    output, report = rebuilt(model, residual="fp16", attention="split", residual_every=1)
    assert "block_1/attention_out" in report["layer_scales_not_folded"]
    assert half_differs_by(output, output.with_name("source.onnx"), pictures[:2]) < 0.02


# --- the residual scale ----------------------------------------------------------------------------------------------


def rebuild_with_samples(folder: Path, feeds: dict[str, Path] | None, **form: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "step": "rebuild",
        "source": str(MINI),
        "output": str(folder / "auto.onnx"),
        "parameters": {"architecture": "dinov3", **BEST, "residual_scale": "auto", **form},
        "scratch": str(folder),
        "feeds": {name: str(path) for name, path in feeds.items()} if feeds else None,
        "code": None,
    }
    answer = tasks.step(arguments, lambda done, total, what: None)
    assert isinstance(answer, dict)
    return dict(answer["report"])  # type: ignore[arg-type]


def test_the_scale_is_measured_on_the_samples(tmp_path: Path) -> None:
    """1.57e5 doubled for safety, over 65504: an eighth, as a person chose it."""
    np.save(tmp_path / "face.npy", weights.pictures(2, seed=3))
    report = rebuild_with_samples(tmp_path, {"face": tmp_path / "face.npy"})
    assert report["residual_scale"] == 0.125
    assert report["residual_peak"] == pytest.approx(1.57e5, rel=0.05)
    assert report["residual_samples"] == 2


def test_a_scale_cannot_be_measured_without_samples(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="residual_scale: auto needs samples"):
        rebuild_with_samples(tmp_path, None)


# --- calibration -----------------------------------------------------------------------------------------------------

FORMS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "fewest casts": {**BEST, "attention": "split"},
    "float16 stream, apart": {"residual": "fp16", "compensate": True, "attention": "separate"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_calibration_takes_the_mean_out_of_the_error(form: dict[str, Any], rebuilt: Rebuild, tmp_path: Path) -> None:
    """Calibrated on other pictures than those that it is judged on."""
    np.save(tmp_path / "face.npy", weights.pictures(8, seed=77))
    faces = weights.pictures(16, seed=1)
    expected = ages(MINI, faces)
    plain, _ = rebuilt(MINI, "plain", **form)
    exact = {"compensate": False, "residual": "fp32", **form, "residual_scale": 0.125, "calibrate": True}
    exact = {"patches": "conv", **exact} if "patches" not in form else exact
    report = rebuild_with_samples(tmp_path, {"face": tmp_path / "face.npy"}, **exact)
    assert report["calibrated"]
    assert report["calibrated_on"] == 8
    before, after = (weights.ages(emulated(path, faces)) - expected for path in (plain, tmp_path / "auto.onnx"))
    assert report["nodes"] == len(onnx.load(plain).graph.node)
    assert np.abs(after).mean() < np.abs(before).mean()
    assert not (tmp_path / "calibration.onnx").exists()


def test_the_mean_of_a_rounded_projection_is_the_mean_of_the_exact_one() -> None:
    """Whatever stands in front of it: a norm that was rounded, with or without compensation, or nothing."""
    rng = np.random.default_rng(0)
    matrix, mean = rng.standard_normal((64, 8)).astype(np.float32), rng.standard_normal(64)
    norm = Norm(None, rng.standard_normal(64) * 3, rng.standard_normal(64), 1e-5)  # type: ignore[arg-type]
    rows, rest = compensation(norm, *rounded(norm, "norm"))
    factor = rng.standard_normal(8)
    for normed in (None, Normed("n"), Normed("n", rows, rest)):
        payload = MatrixPayload(
            _linear(matrix), slice(0, 8), factor, True, "matrix", None if normed is None else normed.rows
        )
        given = (mean - rest) / rows if normed is not None and normed.rows is not None else mean
        made = given @ payload.rounded().astype(np.float64) + lost(payload, mean, normed)
        assert np.abs(made - (mean @ matrix.astype(np.float64)) * factor).max() < 1e-12
        assert 1e-5 < np.abs(lost(payload, mean, Normed("n"))).max() < 1e-1


def _linear(matrix: np.ndarray) -> Linear:
    class Weight:
        sizes = matrix.shape

        def read(self) -> np.ndarray:
            return matrix

    return Linear(None, Weight(), False, np.ones(8), np.zeros(8), None)  # type: ignore[arg-type]


def test_calibration_needs_samples(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="calibrate needs samples"):
        rebuild_with_samples(tmp_path, None, calibrate=True, residual_scale=0.125)


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"residual": "fp16", "precision": "fp32"}, "residual: fp16 needs precision: fp16"),
        ({"compensate": True}, "compensate needs residual: fp16"),
        ({"calibrate": True, "precision": "fp32"}, "calibrate needs architecture: dinov3 in precision: fp16"),
        ({"attention": "fused"}, "attention"),
        ({"residual_scale": "automatic"}, "residual_scale"),
    ],
)
def test_parameters_that_do_not_fit_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_parameters("rebuild", {"architecture": "dinov3", **given})


def test_the_twin_of_a_form() -> None:
    packed = RebuildParameters(architecture="dinov3", residual="fp16", attention="packed")
    twin = packed.twin_on("cpu")
    assert twin == RebuildParameters(architecture="dinov3", residual="fp16", attention="split")
    assert twin is not None
    assert twin.twin_on("cpu") is None
    assert packed.twin_on("cuda") is None


def test_a_picture_of_no_whole_number_of_patches_needs_the_convolution(exported: Export, rebuilt: Rebuild) -> None:
    model = onnx.load(exported(dynamo=False, opset=17))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 66
    del model.graph.value_info[:]
    with pytest.raises(StepError, match="no whole number of patches of 16 x 16") as refused:
        rebuilt(model, patches="matmul")
    assert "patches: conv" in refused.value.remedy
    _, report = rebuilt(model)
    assert report["tokens"] == 16 + 3


def test_what_is_written_today_is_written_tomorrow(rebuilt: Rebuild) -> None:
    """The bytes of the form that recipes published with nothing but the architecture said."""
    output, _ = rebuilt(MINI)
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    assert digest == "d3ae4e09d7fca9ccd645e39c4525bf54ccb518f00db43dbf52a6a32f8ae5bf5b"


def test_the_order_of_packed_columns() -> None:
    """Two heads of four: pairs beside each other in query and key, the value as it was."""
    assert _in_pairs(2, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    expected = [0, 2, 1, 3, 8, 10, 9, 11, 16, 17, 18, 19, 4, 6, 5, 7, 12, 14, 13, 15, 20, 21, 22, 23]
    assert _packed_columns(2, 4, 3).tolist() == expected
    assert sorted(_packed_columns(3, 8, 2).tolist()) == list(range(48))
