from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from bert_networks import XLM, Shape, run, texts, with_int32_inputs
from dinov3_networks import decompose_norms, optimise, permute, quiet, slim, strip_names, unfold_constants
from onnx import helper, numpy_helper

from bot.errors import StepError
from bot.graph.model_file import Model
from bot.graph.rebuild.folding import fold
from bot.graph.steps import parse_parameters
from bot.measure.fp16_emulation import emulate

ROOT = Path(__file__).parents[3]
Rebuild = Callable[..., tuple[Path, dict[str, Any]]]
Export = Callable[..., Path]
NOISE = 1e-5
"""Twenty times what float32 leaves of outputs of order three."""

SIZES = ((3, 9), (1, 1), (2, 40))


@pytest.fixture
def rebuilt_bert(rebuilt: Rebuild) -> Rebuild:
    def run_step(
        source: Path | onnx.ModelProto, name: str = "rebuilt", **parameters: Any
    ) -> tuple[Path, dict[str, Any]]:
        return rebuilt(source, name, **{"architecture": "bert", "precision": "fp32", **parameters})

    return run_step


def differences(first: Path, second: Path, sizes: tuple[tuple[int, int], ...] = SIZES) -> float:
    worst = 0.0
    for batch, length in sizes:
        given = texts(batch, length)
        for one, other in zip(run(first, given), run(second, given), strict=True):
            assert one.shape == other.shape
            worst = max(worst, float(np.abs(one - other).max()))
    return worst


# --- the ways to write one network -----------------------------------------------------------------------------------

WRITERS = [
    {"attention": "eager"},
    {"attention": "sdpa"},
    {"attention": "sdpa", "opset": 24},
    {"attention": "eager", "dynamo": False, "opset": 14},
    {"attention": "sdpa", "dynamo": False, "opset": 17},
]
DYNAMO, TORCHSCRIPT = WRITERS[0], WRITERS[3]


def named(how: dict[str, Any]) -> str:
    return "-".join(str(value) for value in how.values())


@pytest.mark.parametrize("how", WRITERS, ids=named)
def test_every_export_is_rebuilt_and_answers_the_same(
    how: dict[str, Any], exported_bert: Export, rebuilt_bert: Rebuild
) -> None:
    source = exported_bert(**how)
    output, report = rebuilt_bert(source)
    assert differences(source, output) < NOISE
    assert (report["layers"], report["heads"], report["width"]) == (2, 4, 32)
    assert (report["positions"], report["vocabulary"], report["token_types"]) == (40, 50, 2)
    assert report["masked"]
    counted = Counter(node.op_type for node in onnx.load(output).graph.node)
    assert counted["Attention"] == counted["BiasGelu"] == 2
    assert counted["SkipLayerNormalization"] == 4
    assert counted["EmbedLayerNormalization"] == 1
    assert counted["MatMul"] == 6
    assert counted["Cast"] == 3  # the inputs, to int32
    assert "Shape" not in counted


REWRITES: dict[str, Callable[[onnx.ModelProto], None]] = {
    "names stripped": strip_names,
    "nodes permuted": permute,
    "constants not folded": unfold_constants,
    "norms decomposed": decompose_norms,
    "norms with reciprocals": lambda model: decompose_norms(model, reciprocal=True),
    "int32 inputs": with_int32_inputs,
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
    rewrite: Callable[[onnx.ModelProto], None], exported_bert: Export, rebuilt_bert: Rebuild
) -> None:
    source = exported_bert(**WRITERS[4])
    output, _ = rebuilt_bert(rewritten(source, rewrite))
    assert differences(source, output) < NOISE


@pytest.mark.parametrize("how", [DYNAMO, WRITERS[2], TORCHSCRIPT], ids=named)
def test_all_rewrites_together(how: dict[str, Any], exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(**how)
    output, _ = rebuilt_bert(rewritten(source, decompose_norms, unfold_constants, strip_names, permute))
    assert differences(source, output) < NOISE


@pytest.mark.parametrize("how", [DYNAMO, WRITERS[2], TORCHSCRIPT], ids=named)
@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "slimmed"])
def test_optimised_and_slimmed_copies(
    how: dict[str, Any], level: str, exported_bert: Export, rebuilt_bert: Rebuild, tmp_path: Path
) -> None:
    source = exported_bert(**how)
    if level == "slimmed":
        output, _ = rebuilt_bert(slim(onnx.load(source)))
    else:
        optimised = optimise(source, tmp_path / "optimised.onnx", level)
        fused = {node.domain for node in onnx.load(optimised).graph.node} - {""}
        assert fused == (set() if level == "ORT_ENABLE_BASIC" else {"com.microsoft"})
        output, _ = rebuilt_bert(optimised)
    assert differences(source, output) < NOISE


def test_copies_that_the_runtimes_own_tool_fused(exported_bert: Export, rebuilt_bert: Rebuild, tmp_path: Path) -> None:
    """Published as `model_O2.onnx` and the like. They count the mask, and read so many tokens from the first one."""
    from onnxruntime.transformers import optimizer

    source, fused = exported_bert(**TORCHSCRIPT), tmp_path / "fused.onnx"
    with quiet():
        optimised = optimizer.optimize_model(str(source), model_type="bert", num_heads=4, hidden_size=32)
        optimised.save_model_to_file(str(fused))
    operators = {node.op_type for node in onnx.load(fused).graph.node}
    assert {"Attention", "EmbedLayerNormalization", "SkipLayerNormalization", "BiasGelu"} <= operators
    output, report = rebuilt_bert(fused)
    assert report["masked_by_length"]
    assert differences(source, output) < NOISE
    given = texts()
    given["attention_mask"][0, 2] = 0
    for one, other in zip(run(fused, given), run(output, given), strict=True):
        assert np.abs(one - other).max() < NOISE


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"head": "sentence"},
        {"inputs": 1, "dynamo": False, "opset": 17},
        {"shape": XLM, "inputs": 2, "dynamo": False, "opset": 17},
    ],
    ids=["three inputs", "sentence", "one input", "xlm"],
)
def test_what_was_rebuilt_can_be_rebuilt(how: dict[str, Any], exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(**how)
    once, first = rebuilt_bert(source, "once")
    twice, second = rebuilt_bert(once, "twice")
    assert differences(source, twice) < NOISE
    described = ("layers", "heads", "width", "positions", "vocabulary", "token_types", "masked", "fully_masked")
    assert [first[key] for key in described] == [second[key] for key in described]


# --- other networks, and what stands around them ---------------------------------------------------------------------

SHAPES = [
    Shape(layers=1),
    Shape(layers=4, width=48, heads=3, positions=64),
    Shape(heads=1),
    Shape(options=(("hidden_act", "gelu_new"),)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["one block", "48 wide", "one head", "GELU by the tangent"])
def test_any_depth_width_positions_and_either_gelu(shape: Shape, exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(shape, dynamo=False, opset=17)
    output, report = rebuilt_bert(source)
    assert differences(source, output) < NOISE
    assert (report["layers"], report["heads"], report["width"]) == (shape.layers, shape.heads, shape.width)
    assert report["positions"] == shape.positions
    assert report["activation"] == ("tanh" if shape.options else "erf")
    fused = {node.op_type for node in onnx.load(output).graph.node}
    assert ("FastGelu" if shape.options else "BiasGelu") in fused


AROUND = [
    ({"head": "sentence"}, "the masked mean, of length one"),
    ({"head": "sentence", "dynamo": False, "opset": 14}, "the same with shape arithmetic"),
    ({"head": "hidden", "dynamo": False, "opset": 17}, "every hidden value"),
    ({"inputs": 2, "dynamo": False, "opset": 17}, "one token type"),
    ({"inputs": 2}, "one token type, out of a buffer"),
    ({"inputs": 1, "dynamo": False, "opset": 17}, "no mask"),
]


@pytest.mark.parametrize("how", [each for each, _ in AROUND], ids=[name for _, name in AROUND])
def test_what_is_around_stays(how: dict[str, Any], exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(**how)
    output, report = rebuilt_bert(source)
    assert differences(source, output) < NOISE
    assert report["masked"] == (how.get("inputs") != 1)
    assert report["token_types"] == (2 if how.get("inputs", 3) == 3 else 0)
    ours, theirs = onnx.load(output).graph, onnx.load(source).graph
    for mine, source_has in ((ours.input, theirs.input), (ours.output, theirs.output)):
        assert [(value.name, value.type) for value in mine] == [(value.name, value.type) for value in source_has]


def test_texts_of_a_fixed_length(exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(dynamo=False, opset=17, free=False)
    output, report = rebuilt_bert(source)
    assert differences(source, output, ((2, 9),)) < NOISE
    assert report["positions"] in (9, 40)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_text_of_nothing_but_padding(attention: str, exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(attention=attention)
    output, report = rebuilt_bert(source)
    assert report["fully_masked"] == "mean"
    given = texts()
    given["attention_mask"][0] = 0
    for one, other in zip(run(source, given), run(output, given), strict=True):
        assert np.abs(one - other).max() < NOISE


def _append(model: onnx.ModelProto, nodes: list[onnx.NodeProto], name: str, shape: list[int | str]) -> None:
    model.graph.node.extend(nodes)
    model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def test_nodes_around_that_are_others_today_keep_their_opset(exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    """ReduceMean has its axes in an attribute in opset 14, and in an input in 18."""
    model = onnx.load(exported_bert(**TORCHSCRIPT))
    _append(model, [helper.make_node("ReduceMean", ["out0"], ["mean"], axes=[1])], "mean", ["batch", 1, 32])
    output, _ = rebuilt_bert(model)
    assert {entry.domain: entry.version for entry in onnx.load(output).opset_import}[""] == 14
    assert differences(output.with_name("source.onnx"), output) < NOISE
    plain, _ = rebuilt_bert(exported_bert(**TORCHSCRIPT), "plain")
    assert {entry.domain: entry.version for entry in onnx.load(plain).opset_import}[""] == 18


def test_branches_and_operators_of_others_around_are_copied(exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    """An If whose branch the input decides, with captured values, and an operator of the runtime."""
    model = onnx.load(exported_bert(**WRITERS[4]))
    kind = helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None)
    branches = {}
    for branch, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        kind.name = branch
        branches[branch] = helper.make_graph([helper.make_node(op, ["out0"], [branch])], branch, [], [kind])
    nodes = [
        helper.make_node("ReduceMax", ["input_ids"], ["largest"], keepdims=0),
        helper.make_node("Constant", [], ["limit"], value_int=40),
        helper.make_node("Greater", ["largest", "limit"], ["large"]),
        helper.make_node("If", ["large"], ["decided"], **branches),
        helper.make_node("QuickGelu", ["decided"], ["last"], domain="com.microsoft", alpha=1.5),
    ]
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    _append(model, nodes, "last", ["batch", "sequence", 32])
    output, report = rebuilt_bert(model)
    source = output.with_name("source.onnx")
    assert report["nodes_around"] >= len(nodes)
    for seed in range(4):
        given = texts(1, 4, seed)
        for one, other in zip(run(source, given), run(output, given), strict=True):
            assert np.abs(one - other).max() < NOISE


# --- where the positions are chosen by ids ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", [DYNAMO, WRITERS[3], WRITERS[4]], ids=named)
def test_an_xlm_roberta_counts_positions_without_padding(
    how: dict[str, Any], exported_bert: Export, rebuilt_bert: Rebuild
) -> None:
    """Padding may stand anywhere in a text: every token behind it has another position than its place."""
    source = exported_bert(XLM, **how, inputs=2)
    output, report = rebuilt_bert(source)
    assert differences(source, output) < NOISE
    assert (report["positions"], report["vocabulary"], report["token_types"]) == (42, 50, 0)
    (embedding,) = (node for node in onnx.load(output).graph.node if node.op_type == "EmbedLayerNormalization")
    assert embedding.input[8] and not embedding.input[7]
    given = texts(1, 9)
    plain, padded = ({**given, "input_ids": np.where(np.arange(9) == place, 1, 7)[None]} for place in (8, 0))
    states = [run(output, each)[0][0] for each in (plain, padded)]
    assert np.abs(states[0][1] - states[1][1]).max() > 0.01


@pytest.mark.parametrize("name", ["names stripped", "constants not folded", "int32 inputs"])
def test_every_rewrite_of_an_xlm_roberta_is_rebuilt(name: str, exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(XLM, **WRITERS[4], inputs=2)
    output, _ = rebuilt_bert(rewritten(source, REWRITES[name]))
    assert differences(source, output) < NOISE


def test_positions_that_are_an_input(exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    source = exported_bert(**WRITERS[4], inputs=4)
    output, report = rebuilt_bert(source)
    assert differences(source, output) < NOISE
    assert (report["positions"], report["vocabulary"], report["token_types"]) == (40, 50, 2)


@pytest.mark.parametrize("residual", ["fp32", "fp16"])
def test_an_xlm_roberta_in_half_precision(
    residual: str, exported_bert: Export, rebuilt_bert: Rebuild, tmp_path: Path
) -> None:
    source, emulated = exported_bert(XLM, **WRITERS[4], inputs=2), tmp_path / "emulated.onnx"
    output, _ = rebuilt_bert(source, precision="fp16", residual=residual)
    assert 1e-5 < differences(source, output) < 0.02
    assert emulate(output, emulated, runtime="cuda-1.27+").status == "emulated"
    assert 1e-5 < differences(source, emulated) < 0.03


def test_positions_are_gathered_as_the_runtime_does_it() -> None:
    """Token types of a text are gathered by its positions out of a row of as many; the reference evaluator cannot."""
    generator = np.random.default_rng(0)
    for axis, shape in ((1, (2, 7)), (0, (5, 3)), (-1, (1, 40))):
        table, places = generator.integers(0, 99, (5, 40)), generator.integers(-5, 5, shape)
        nodes = [helper.make_node("GatherElements", ["table", "places"], ["found"], axis=axis)]
        constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(places, "places")]
        result = [helper.make_tensor_value_info("found", onnx.TensorProto.INT64, shape)]
        model = helper.make_model(
            helper.make_graph(nodes, "gather", [], result, constants),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=10,
        )
        (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
        folded = fold(Model(model, path=Path("gather.onnx")), 1)
        assert np.array_equal(folded.scope["found"].read(), wanted)


# --- half precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("residual", "casts"), [("fp32", 3 + 4 * 2), ("fp16", 2)])
def test_half_precision(
    residual: str, casts: int, exported_bert: Export, rebuilt_bert: Rebuild, tmp_path: Path
) -> None:
    """On the CPU and as hardware computes it, tables and matrices in float16."""
    source = exported_bert(**WRITERS[4])
    output, report = rebuilt_bert(source, precision="fp16", residual=residual)
    assert report["casts"] == casts
    assert 1e-5 < differences(source, output) < 0.02
    for runtime in ("cuda-1.22", "cuda-1.27+"):
        emulated = tmp_path / "emulated.onnx"
        assert emulate(output, emulated, runtime=runtime).status == "emulated"
        assert 1e-5 < differences(source, emulated) < 0.03
    full, _ = rebuilt_bert(source, "full")
    assert output.stat().st_size < 0.6 * full.stat().st_size


ROWS = 1_600_000
"""Of a table of 200 MB, 32 wide."""

CHILD = """
import json, sys
from pathlib import Path
from bot.graph import tasks

def rebuild(source, output):
    arguments = {"step": "rebuild", "source": source, "output": output, "parameters": {"architecture": "bert"}}
    tasks.step({**arguments, "scratch": "", "feeds": None, "code": None}, lambda done, total, what: None)
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

print(json.dumps([rebuild(*pair) for pair in (sys.argv[1:3], sys.argv[3:5])]))
"""


def test_a_large_vocabulary_is_never_in_memory(exported_bert: Export, tmp_path: Path) -> None:
    """A table of 200 MB takes 32 MB more, at the peak, than one of 6 kB in the same process before it."""
    source = exported_bert(**WRITERS[4])
    model = onnx.load(source)
    tensor = next(each for each in model.graph.initializer if "word_embeddings" in each.name)
    words = numpy_helper.to_array(tensor)
    with (tmp_path / "words").open("wb") as stream:
        stream.write(words.tobytes())
        stream.truncate(ROWS * 32 * 4)  # the other rows are zero, and take no room
    tensor.ClearField("raw_data")
    tensor.dims[0] = ROWS
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="words")
    large = tmp_path / "large.onnx"
    large.write_bytes(model.SerializeToString())
    outputs = [tmp_path / "small_half.onnx", tmp_path / "large_half.onnx"]
    command = [sys.executable, "-c", CHILD, str(source), str(outputs[0]), str(large), str(outputs[1])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    before, after = json.loads(answer.stdout)
    assert after - before < 32e6
    assert outputs[1].stat().st_size > ROWS * 32 * 2
    assert differences(outputs[0], outputs[1]) == 0


def test_an_embedding_beyond_half_precision_is_refused(exported_bert: Export, rebuilt_bert: Rebuild) -> None:
    model = onnx.load(exported_bert(**WRITERS[4]))
    tensor = next(each for each in model.graph.initializer if "word_embeddings" in each.name)
    words = numpy_helper.to_array(tensor).copy()
    words[7, 7] = 1e5
    tensor.CopyFrom(numpy_helper.from_array(words, tensor.name))
    with pytest.raises(StepError, match="words/table: has an embedding beyond float16's range"):
        rebuilt_bert(model, precision="fp16")


def test_the_same_bytes_with_any_hash_seed(exported_bert: Export, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bot.graph.rebuild import rebuild\n"
        "from bot.graph.parameters import RebuildParameters; from bot.graph.steps import StepContext\n"
        "parameters = RebuildParameters(architecture='bert')\n"
        "rebuild(Path(sys.argv[1]), Path(sys.argv[2]), parameters, StepContext(Path('.')))\n"
    )
    files = []
    for seed in ("0", "1", "4711"):
        files.append(tmp_path / f"{seed}.onnx")
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(exported_bert(head="sentence")), str(files[-1])]
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    assert len({path.read_bytes() for path in files}) == 1


# --- what is refused -------------------------------------------------------------------------------------------------


def _other_scale(model: onnx.ModelProto) -> None:
    """The scores of the second block are multiplied once more."""
    node = [each for each in model.graph.node if each.op_type == "Softmax"][1]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1.01, np.float32), "warmer"))
    place = list(model.graph.node).index(node)
    model.graph.node.insert(place, helper.make_node("Mul", [node.input[0], "warmer"], ["warmed"]))
    node.input[0] = "warmed"


def _tanh(model: onnx.ModelProto) -> None:
    [each for each in model.graph.node if each.op_type == "Erf"][1].op_type = "Tanh"


def _no_norm(model: onnx.ModelProto) -> None:
    norm = [each for each in model.graph.node if each.op_type == "LayerNormalization"][1]
    norm.op_type = "Add"
    del norm.attribute[:]
    del norm.input[2]


def _scaled_embeddings(model: onnx.ModelProto) -> None:
    """As in networks that multiply them by the root of their width."""
    gather = next(each for each in model.graph.node if "input_ids" in each.input and each.op_type == "Gather")
    model.graph.initializer.append(numpy_helper.from_array(np.array(5.65, np.float32), "root"))
    place = list(model.graph.node).index(gather)
    model.graph.node.insert(place + 1, helper.make_node("Mul", ["unscaled", "root"], [gather.output[0]]))
    gather.output[0] = "unscaled"


def _shifted_positions(model: onnx.ModelProto) -> None:
    """Every text's positions are those of its own length, from the end."""
    table = next(each for each in model.graph.initializer if "position" in each.name)
    reader = next(each for each in model.graph.node if table.name in each.input)
    place = list(model.graph.node).index(reader)
    axes = numpy_helper.from_array(np.array([1], np.int64), "ax")
    ends = numpy_helper.from_array(np.array([-100], np.int64), "en")
    step = numpy_helper.from_array(np.array([-1], np.int64), "st")
    begin = numpy_helper.from_array(np.array([100], np.int64), "be")
    model.graph.initializer.extend([axes, ends, step, begin])
    kept = reader.output[0]
    reader.output[0] = "forwards"
    turned = helper.make_node("Slice", ["forwards", "be", "en", "ax", "st"], [kept])
    model.graph.node.insert(place + 1, turned)


def _read_inside(model: onnx.ModelProto) -> None:
    norm = [each for each in model.graph.node if each.op_type == "LayerNormalization"][1]
    model.graph.output.append(helper.make_tensor_value_info(norm.output[0], 1, ["batch", "sequence", 32]))


ALTERATIONS = {
    "other scale": (_other_scale, r"block 1: expected softmax attention over the tokens that the mask leaves"),
    "tanh for erf": (_tanh, r"block 1: expected a feed-forward layer.*GELU.*found another activation"),
    "no norm": (_no_norm, r"block 0: expected a LayerNorm behind attention"),
    "scaled embeddings": (_scaled_embeddings, r"embeddings: expected embeddings of words.*found Mul"),
    "positions from the end": (_shifted_positions, r"embeddings: expected a constant table of positions"),
    "an output from inside": (_read_inside, r"outputs: expected them to read what blocks give"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_network_is_refused_by_block(
    alter: Callable[[onnx.ModelProto], None], message: str, exported_bert: Export, rebuilt_bert: Rebuild
) -> None:
    model = onnx.load(exported_bert(**WRITERS[4]))
    alter(model)
    del model.graph.value_info[:]
    with pytest.raises(StepError, match=rf"is not a BERT that this step can rebuild. {message}"):
        rebuilt_bert(model)


def test_other_networks_are_refused(exported_bert: Export, rebuilt: Rebuild, rebuilt_bert: Rebuild) -> None:
    other = exported_bert(Shape(options=(("hidden_act", "relu"),)), dynamo=False, opset=17)
    with pytest.raises(StepError, match=r"block 0: expected a feed-forward layer.*another activation, of Relu"):
        rebuilt_bert(other)
    with pytest.raises(StepError, match=r"is not a BERT.*embeddings: expected.*no Gather of token ids"):
        rebuilt_bert(ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx")
    with pytest.raises(StepError, match=r"is not a DINOv2.*patch embedding: expected one Conv"):
        rebuilt(exported_bert(), architecture="dinov2")


@pytest.mark.parametrize(
    "given",
    [{"compensate": True, "residual": "fp16"}, {"attention": "packed"}, {"patches": "matmul"}, {"residual_scale": 0.5}],
    ids=lambda given: next(iter(given)),
)
def test_forms_that_a_bert_has_not_are_refused(given: dict[str, Any]) -> None:
    (name, *_) = given
    with pytest.raises(ValueError, match=rf"{name} is no parameter of architecture: bert"):
        parse_parameters("rebuild", {"architecture": "bert", **given})
