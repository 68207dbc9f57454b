from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_graphs import BOOL, FLOAT16, INT64, graph, model, node, save, tensor, value

from bot.graph.inspection import inspect_model
from bot.graph.runtimes import RUNTIMES, UNKNOWN, minimum_runtime
from bot.records import Inspection, TensorSignature


def _everything() -> onnx.ModelProto:
    """Nodes and parameters in each place where a model can have them."""
    then = graph(
        [node("Cast", ["x"], ["t"], to=FLOAT16), node("Cast", ["t"], ["a"], to=1)],
        [],
        [value("a", None)],
        [tensor("u", [1, 2])],
    )
    other = graph([node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0])], [], [value("b", None)])
    function = helper.make_function(
        "local",
        "Twice",
        ["i"],
        ["o"],
        [node("Constant", [], ["two"], value=tensor("", [2, 2])), node("Mul", ["i", "two"], ["o"])],
        [helper.make_opsetid("", 18)],
    )
    made = model(
        [
            node("If", ["c"], ["y"], then_branch=then, else_branch=other),
            node("Twice", ["x"], ["z"], domain="local"),
            node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0]),
            node("Gelu", ["s"], ["g"], domain="com.microsoft"),
            node("Constant", [], ["k"], value_int=3),
        ],
        [value("x", ["batch", 2]), value("c", [], BOOL), value("w", [7])],
        [value("y", None), value("z", ["batch", 2]), value("g", [None, 2]), value("k", [], INT64)],
        [tensor("w", np.zeros(7)), tensor("h", np.zeros((2, 3)), np.float16)],
        domains={"local": 1, "ai.onnx.ml": 3, "com.microsoft": 1},
        functions=[function],
    )
    sparse = helper.make_sparse_tensor(tensor("sp", [1, 2, 3, 4]), tensor("", [0, 9, 18, 27], np.int64), [100])
    made.graph.sparse_initializer.append(sparse)
    made.metadata_props.add(key="author", value="<script>")
    return made


@pytest.fixture
def inspection(tmp_path: Path) -> Inspection:
    return inspect_model(save(_everything(), tmp_path / "m.onnx"))


def test_the_census_counts_nodes_wherever_they_are(inspection: Inspection) -> None:
    assert inspection.census.by_op == {
        "Cast": 2,
        "Constant": 3,
        "If": 1,
        "Mul": 1,
        "ai.onnx.ml:Scaler": 1,
        "com.microsoft:Gelu": 1,
        "local:Twice": 1,
    }
    assert inspection.census.nodes == 10
    assert inspection.census.casts == 2


def test_the_census_counts_parameters_wherever_they_are(inspection: Inspection) -> None:
    # float32: branch initializer 2, Constant in the other branch 3, in the function 2, w 7, sparse values 4.
    assert inspection.census.parameters == {"float16": 6, "float32": 18, "int64": 1}


def test_the_signature_says_what_a_consumer_needs(inspection: Inspection) -> None:
    signature = inspection.signature
    assert signature.inputs == (
        TensorSignature(name="x", dtype="float32", shape=("batch", 2)),
        TensorSignature(name="c", dtype="bool", shape=()),
    )
    assert signature.outputs == (
        TensorSignature(name="y", dtype="float32", shape=None),
        TensorSignature(name="z", dtype="float32", shape=("batch", 2)),
        TensorSignature(name="g", dtype="float32", shape=(None, 2)),
        TensorSignature(name="k", dtype="int64", shape=()),
    )
    assert signature.opsets == {"ai.onnx": 18, "local": 1, "ai.onnx.ml": 3, "com.microsoft": 1}
    assert signature.ir_version == 10
    assert signature.minimum_runtime == "1.18"
    assert signature.external_files == ()


def test_metadata_is_carried_and_says_nothing_of_random_weights_unless_it_does(tmp_path: Path) -> None:
    proto = _everything()
    assert inspect_model(save(proto, tmp_path / "a.onnx")).random_weights is False
    assert inspect_model(tmp_path / "a.onnx").metadata == {"author": "<script>"}
    proto.metadata_props.add(key="random_weights", value="true")
    assert inspect_model(save(proto, tmp_path / "a.onnx")).random_weights is True
    proto.metadata_props[-1].value = "false"
    assert inspect_model(save(proto, tmp_path / "a.onnx")).random_weights is False


def test_types_that_are_no_tensors_are_written_in_words(tmp_path: Path) -> None:
    tensors = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = helper.make_sequence_type_proto(tensors)
    optional = helper.make_optional_type_proto(sequence)
    made = model(
        [node("Identity", ["s"], ["t"]), node("Identity", ["o"], ["p"])],
        [helper.make_value_info("s", sequence), helper.make_value_info("o", optional)],
        [helper.make_value_info("t", sequence), helper.make_value_info("p", optional)],
    )
    signature = inspect_model(save(made, tmp_path / "m.onnx")).signature
    assert [each.dtype for each in signature.inputs] == ["sequence(float32)", "optional(sequence(float32))"]
    assert [each.shape for each in signature.outputs] == [None, None]


@pytest.mark.parametrize(
    ("ir", "opset", "expected"),
    [
        (3, 9, "1.0"),
        (8, 17, "1.12"),
        (9, 17, "1.16"),
        (10, 18, "1.18"),
        (10, 21, "1.18"),
        (10, 22, "1.21"),
        (11, 18, "1.23"),
        (12, 18, "1.24"),
        (13, 26, "1.25"),
        (14, 18, "1.32"),
        (15, 18, UNKNOWN),
        (10, 29, UNKNOWN),
    ],
)
def test_the_oldest_runtime_follows_from_ir_version_and_opset(ir: int, opset: int, expected: str) -> None:
    assert minimum_runtime(ir, {"ai.onnx": opset}) == expected


def test_operators_of_the_runtimes_own_raise_the_oldest_runtime() -> None:
    assert minimum_runtime(8, {"ai.onnx": 17}, ["SkipLayerNormalization"]) == "1.16"
    assert minimum_runtime(10, {"ai.onnx": 18}, ["SkipLayerNormalization"]) == "1.18"
    assert minimum_runtime(10, {"ai.onnx": 18}, ["Gelu", "PagedAttention"]) == "1.23"
    assert minimum_runtime(10, {"ai.onnx": 18, "ai.onnx.ml": 4}) == "1.18"
    assert minimum_runtime(8, {"ai.onnx": 17, "ai.onnx.ml": 4}) == "1.17"


def test_the_installed_runtime_reads_what_the_table_says_and_nothing_newer() -> None:
    """The table was read from the released wheels; this asks the one that is here."""
    import onnxruntime

    installed = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    row = [each for each in RUNTIMES if tuple(int(part) for part in each.version.split(".")) <= installed][-1]

    def opens(ir: int, opset: int) -> bool:
        made = model([node("Identity", ["x"], ["y"])], [value("x", [1])], [value("y", [1])], opset=opset, ir=ir)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:
            return False
        return True

    assert opens(row.ir, row.opset)
    assert not opens(row.ir + 1, row.opset)
    assert not opens(row.ir, row.opset + 1)
