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
from dinov2_networks import Shape
from dinov3_networks import decompose_norms, optimise, permute, run, slim, strip_names, unfold_constants
from onnx import helper, numpy_helper

from bot.errors import StepError
from bot.measure.fp16_emulation import emulate

ROOT = Path(__file__).parents[3]
Rebuild = Callable[..., tuple[Path, dict[str, Any]]]
Export = Callable[..., Path]
NOISE = 1e-5
"""Twenty times what float32 leaves of outputs of order three."""


@pytest.fixture
def rebuilt_dinov2(rebuilt: Rebuild) -> Rebuild:
    def run_step(
        source: Path | onnx.ModelProto, name: str = "rebuilt", **parameters: Any
    ) -> tuple[Path, dict[str, Any]]:
        return rebuilt(source, name, **{"architecture": "dinov2", "precision": "fp32", **parameters})

    return run_step


@pytest.fixture
def small_pictures() -> np.ndarray:
    """Three random pictures of 56 x 56 pixels."""
    return np.random.default_rng(1).standard_normal((3, 3, 56, 56)).astype(np.float32)


def differences(first: Path, second: Path, pictures: np.ndarray) -> float:
    worst = 0.0
    for batch in (len(pictures), 1):
        pairs = zip(run(first, pictures[:batch]), run(second, pictures[:batch]), strict=True)
        worst = max(worst, *(float(np.abs(one - other).max()) for one, other in pairs))
    return worst


WRITERS = [
    {"attention": "eager"},
    {"attention": "sdpa", "opset": 24},
    {"attention": "eager", "dynamo": False, "opset": 14},
    {"attention": "sdpa", "dynamo": False, "opset": 17},
]
DYNAMO, TORCHSCRIPT = WRITERS[0], WRITERS[2]


def named(how: dict[str, Any]) -> str:
    return "-".join(str(value) for value in how.values())


@pytest.mark.parametrize("how", WRITERS, ids=named)
def test_every_export_is_rebuilt_and_answers_the_same(
    how: dict[str, Any], exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray
) -> None:
    """Positions of larger pictures, which the exports interpolate by a cubic Resize, become a table."""
    source = exported_dinov2(**how)
    output, report = rebuilt_dinov2(source)
    assert differences(source, output, small_pictures) < NOISE
    assert (report["layers"], report["heads"], report["width"], report["tokens"]) == (2, 4, 32, 17)
    assert report["folded"] == ["layer_scales", "value_bias"]
    counted = Counter(node.op_type for node in onnx.load(output).graph.node)
    assert counted["MultiHeadAttention"] == counted["BiasGelu"] == 2
    assert counted["SkipLayerNormalization"] == 5
    assert not {"Cast", "Shape", "Resize", "RotaryEmbedding"} & set(counted)


REWRITES: dict[str, Callable[[onnx.ModelProto], None]] = {
    "names stripped": strip_names,
    "nodes permuted": permute,
    "constants not folded": unfold_constants,
    "norms decomposed": decompose_norms,
}


def rewritten(source: Path, *rewrites: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    model = onnx.load(source)
    for rewrite in rewrites:
        before = model.SerializeToString()
        rewrite(model)
        assert model.SerializeToString() != before
    return model


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_every_rewrite_is_rebuilt(
    rewrite: Callable[[onnx.ModelProto], None],
    exported_dinov2: Export,
    rebuilt_dinov2: Rebuild,
    small_pictures: np.ndarray,
) -> None:
    source = exported_dinov2(**WRITERS[3])
    output, _ = rebuilt_dinov2(rewritten(source, rewrite))
    assert differences(source, output, small_pictures) < NOISE


@pytest.mark.parametrize("how", [DYNAMO, WRITERS[1], TORCHSCRIPT], ids=named)
def test_all_rewrites_together(
    how: dict[str, Any], exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray
) -> None:
    source = exported_dinov2(**how)
    rewrites = [decompose_norms, unfold_constants, strip_names, permute]
    if how is TORCHSCRIPT:  # opset 14 has no LayerNormalization to decompose
        rewrites = rewrites[1:]
    output, _ = rebuilt_dinov2(rewritten(source, *rewrites))
    assert differences(source, output, small_pictures) < NOISE


@pytest.mark.parametrize("how", [DYNAMO, WRITERS[1], TORCHSCRIPT], ids=named)
@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "slimmed"])
def test_optimised_and_slimmed_copies(
    how: dict[str, Any],
    level: str,
    exported_dinov2: Export,
    rebuilt_dinov2: Rebuild,
    small_pictures: np.ndarray,
    tmp_path: Path,
) -> None:
    source = exported_dinov2(**how)
    copy = slim(onnx.load(source)) if level == "slimmed" else optimise(source, tmp_path / "optimised.onnx", level)
    output, _ = rebuilt_dinov2(copy)
    assert differences(source, output, small_pictures) < NOISE


def test_what_was_rebuilt_can_be_rebuilt(
    exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray
) -> None:
    source = exported_dinov2(**WRITERS[3])
    once, _ = rebuilt_dinov2(source, "once")
    twice, report = rebuilt_dinov2(once, "twice", residual_scale=1)
    assert differences(source, twice, small_pictures) < NOISE
    assert (report["layers"], report["heads"], report["tokens"]) == (2, 4, 17)


# --- other networks, and what stands around them ---------------------------------------------------------------------

SHAPES = [
    Shape(layers=1, trained_image=56),
    Shape(layers=4, width=48, heads=3),
    Shape(heads=1, options=(("hidden_act", "gelu_pytorch_tanh"), ("qkv_bias", False))),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["one block, its own positions", "48 wide", "one head, other GELU"])
def test_any_depth_width_positions_and_either_gelu(
    shape: Shape, exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray
) -> None:
    source = exported_dinov2(shape, dynamo=False, opset=17)
    output, report = rebuilt_dinov2(source)
    assert differences(source, output, small_pictures) < NOISE
    assert (report["layers"], report["heads"], report["width"]) == (shape.layers, shape.heads, shape.width)


def test_registers(exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray) -> None:
    """They stand between class token and patches, and have no positions."""
    source = exported_dinov2(Shape(registers=3))
    output, report = rebuilt_dinov2(source)
    assert differences(source, output, small_pictures) < NOISE
    assert (report["tokens"], report["register_tokens"]) == (20, 3)


AROUND: dict[str, tuple[int, bool]] = {
    "class": (1, True),
    "classes": (4, False),
    "saliency": (8, False),
    "dense": (0, False),
}


@pytest.mark.parametrize("head", AROUND)
@pytest.mark.parametrize("residual", ["fp32", "fp16"])
def test_a_backbone_inside_a_larger_network(
    head: str, residual: str, exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray
) -> None:
    """Normalised pictures in front; behind, a classifier, a decoder, or one that reads the stream after every block."""
    source = exported_dinov2(head=head, dynamo=False, opset=14)
    precision = "fp32" if residual == "fp32" else "fp16"
    output, report = rebuilt_dinov2(source, precision=precision, residual=residual)
    assert differences(source, output, small_pictures) < (NOISE if precision == "fp32" else 0.05)
    around, class_only = AROUND[head]
    assert report["nodes_around"] >= around
    assert report["last_block_cls_only"] == class_only
    ours, theirs = onnx.load(output).graph, onnx.load(source).graph
    for mine, source_has in ((ours.input, theirs.input), (ours.output, theirs.output)):
        assert [(value.name, value.type) for value in mine] == [(value.name, value.type) for value in source_has]


# --- forms -----------------------------------------------------------------------------------------------------------

FORMS = [
    {},
    {"residual": "fp16", "compensate": True},
    {"residual": "fp16", "attention": "split", "patches": "matmul"},
]


@pytest.mark.parametrize("form", FORMS, ids=["default", "float16 stream", "packed and by MatMul"])
def test_half_precision(
    form: dict[str, Any], exported_dinov2: Export, rebuilt_dinov2: Rebuild, small_pictures: np.ndarray, tmp_path: Path
) -> None:
    source = exported_dinov2(**WRITERS[3])
    output, report = rebuilt_dinov2(source, precision="fp16", **form)
    assert report["casts"] == (3 if form else 4 * report["layers"])
    assert differences(source, output, small_pictures) < 0.03
    emulated = tmp_path / "emulated.onnx"
    assert emulate(output, emulated, runtime="cuda-1.27+").status == "emulated"
    assert 1e-5 < differences(source, emulated, small_pictures) < 0.03


def test_the_same_bytes_with_any_hash_seed(exported_dinov2: Export, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bot.graph.rebuild import rebuild\n"
        "from bot.graph.parameters import RebuildParameters; from bot.graph.steps import StepContext\n"
        "parameters = RebuildParameters(architecture='dinov2')\n"
        "rebuild(Path(sys.argv[1]), Path(sys.argv[2]), parameters, StepContext(Path('.')))\n"
    )
    source = exported_dinov2(head="saliency", dynamo=False, opset=14)
    files = []
    for seed in ("0", "1", "4711"):
        files.append(tmp_path / f"{seed}.onnx")
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(source), str(files[-1])], check=True, cwd=ROOT, env=environment)
    assert len({path.read_bytes() for path in files}) == 1


# --- what is refused -------------------------------------------------------------------------------------------------


def _other_scale(model: onnx.ModelProto) -> None:
    node = [each for each in model.graph.node if each.op_type == "Softmax"][1]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.01, np.float32), "warmer"))
    place = list(model.graph.node).index(node)
    model.graph.node.insert(place, helper.make_node("Mul", [node.input[0], "warmer"], ["warmed"]))
    node.input[0] = "warmed"


def _patches_turned(model: onnx.ModelProto) -> None:
    """Patches column by column."""
    convolution = next(each for each in model.graph.node if each.op_type == "Conv")
    place = list(model.graph.node).index(convolution)
    kept = convolution.output[0]
    convolution.output[0] = "by_rows"
    model.graph.node.insert(place + 1, helper.make_node("Transpose", ["by_rows"], [kept], perm=[0, 1, 3, 2]))


def _scaled_tokens(model: onnx.ModelProto) -> None:
    norm = next(each for each in model.graph.node if each.op_type == "LayerNormalization")
    addition = next(each for each in model.graph.node if norm.input[0] in each.output)
    addition.output[0] = "unscaled"
    model.graph.initializer.append(numpy_helper.from_array(np.array(2.0, np.float32), "two"))
    place = list(model.graph.node).index(addition)
    model.graph.node.insert(place + 1, helper.make_node("Mul", ["unscaled", "two"], [norm.input[0]]))


def _any_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"


ALTERATIONS = {
    "other scale": (_other_scale, r"block 1: expected softmax attention over all tokens"),
    "patches turned": (_patches_turned, r"patch embedding: expected patches as the last tokens, in reading order"),
    "scaled tokens": (_scaled_tokens, r"tokens: expected a class token, registers and positions.*found Mul"),
    "pictures of any size": (_any_size, r"patch embedding: expected a picture of fixed height and width"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_network_is_refused_by_name(
    alter: Callable[[onnx.ModelProto], None], message: str, exported_dinov2: Export, rebuilt_dinov2: Rebuild
) -> None:
    model = onnx.load(exported_dinov2(**WRITERS[3]))
    alter(model)
    del model.graph.value_info[:]
    with pytest.raises(StepError, match=rf"is not a DINOv2 that this step can rebuild. {message}"):
        rebuilt_dinov2(model)


def test_a_gated_feed_forward_layer_is_refused(exported_dinov2: Export, rebuilt_dinov2: Rebuild) -> None:
    source = exported_dinov2(Shape(options=(("use_swiglu_ffn", True),)), dynamo=False, opset=17)
    with pytest.raises(StepError, match=r"block 0: expected a feed-forward layer"):
        rebuilt_dinov2(source)


def test_a_dinov3_is_no_dinov2_nor_the_other_way_round(
    exported_dinov2: Export, rebuilt: Rebuild, rebuilt_dinov2: Rebuild
) -> None:
    mini = ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"
    with pytest.raises(StepError, match=r"not a DINOv2.*block 0: expected softmax attention over all tokens"):
        rebuilt_dinov2(mini)
    with pytest.raises(StepError, match=r"not a DINOv3.*tokens: expected patches to which nothing is added"):
        rebuilt(exported_dinov2(**WRITERS[3]))
