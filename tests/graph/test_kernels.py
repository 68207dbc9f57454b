"""What a provider cannot run, or runs rightly only from a later release on, is read out of the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bot.graph.inspection import inspect_model
from bot.graph.kernels import SUMS_IN_FLOAT_SINCE, minimum_runtime_on, not_on
from bot.measure.fp16_kernels import HALF_KERNELS

CONTRIB = "com.microsoft"


def model(*nodes: Any, half: bool = True, inner: bool = False) -> onnx.ModelProto:
    dtype = np.float16 if half else np.float32
    gain = numpy_helper.from_array(np.ones(4, dtype), "gain")
    value = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1, 2, 4])
    made = helper.make_empty_tensor_value_info("y")
    if inner:
        branch = helper.make_graph(list(nodes), "b", [], [made], [gain])
        nodes = (helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch),)
        graph = helper.make_graph(list(nodes), "g", [value], [])
    else:
        graph = helper.make_graph(list(nodes), "g", [value], [made], [gain])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(CONTRIB, 1)])


def skip_norm(op: str = "SkipLayerNormalization", domain: str = CONTRIB) -> Any:
    return helper.make_node(op, ["x", "x", "gain"], ["y"], domain=domain)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("op", SUMS_IN_FLOAT_SINCE)
def test_a_half_precision_skip_norm_needs_a_later_runtime_on_cuda(op: str, inner: bool) -> None:
    assert minimum_runtime_on(model(skip_norm(op), inner=inner)) == {"cuda": "1.27"}
    assert minimum_runtime_on(model(skip_norm(op), half=False, inner=inner)) == {}
    assert minimum_runtime_on(model(skip_norm(op, "somebody.else"), inner=inner)) == {}


def test_the_releases_are_those_of_the_emulation() -> None:
    """One fact, in two rooms that know nothing of each other."""
    known = {each.op: each.before for each in HALF_KERNELS}
    assert {op: known[op] for op in SUMS_IN_FLOAT_SINCE} == SUMS_IN_FLOAT_SINCE


@pytest.mark.parametrize(
    ("inputs", "lacking"),
    [
        (["q", "k", "v"], ()),
        (["q", "k", "v", "bias"], ()),
        (["qkv"], ("cpu",)),
        (["qkv", "", ""], ("cpu",)),
        (["q", "kv"], ("cpu",)),
        (["q", "kv", "", "bias"], ("cpu",)),
    ],
)
def test_packed_attention_has_no_kernel_on_the_cpu(inputs: list[str], lacking: tuple[str, ...]) -> None:
    node = helper.make_node("MultiHeadAttention", inputs, ["y"], domain=CONTRIB, num_heads=2)
    assert not_on(model(node)) == lacking
    assert not_on(model(node, inner=True)) == lacking
    node.domain = "somebody.else"
    assert not_on(model(node)) == ()


def test_a_signature_says_both(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    packed = helper.make_node("MultiHeadAttention", ["x"], ["a"], domain=CONTRIB, num_heads=2)
    onnx.save(model(packed, skip_norm()), path)
    signature = inspect_model(path).signature
    assert signature.not_on == ("cpu",)
    assert signature.minimum_runtime_on == {"cuda": "1.27"}
    onnx.save(model(helper.make_node("Relu", ["x"], ["y"])), path)
    plain = inspect_model(path).signature
    assert (plain.not_on, plain.minimum_runtime_on) == ((), {})
