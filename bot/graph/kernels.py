"""What of a graph a provider has no kernel for, or computes rightly only from a later release on.

That a runtime reads a file does not mean that it runs it. What is known stands here, as far as it concerns graphs that
this package makes or meets; that nothing stands here is no promise, and only opening a file on a provider tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bot.graph.model_file import all_graphs, all_nodes
from bot.graph.runtimes import CONTRIB_DOMAIN
from bot.graph.tensors import FLOAT16

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

SUMS_IN_FLOAT_SINCE = {"SkipLayerNormalization": (1, 27), "SkipSimplifiedLayerNormalization": (1, 27)}
"""Release, (major, minor), from which on CUDA's float16 kernel of an operator sums in float32; before, it overflows."""

_GAIN = 2
"""Place of the gain among the inputs of a skip normalisation; it has the dtype of all of them."""


def not_on(proto: ModelProto) -> tuple[str, ...]:
    """The providers that cannot run a graph, since they have no kernel for something in it.

    Query, key and value packed into one tensor, or key and value into one, are read by ONNX Runtime's CUDA kernel of
    MultiHeadAttention. The CPU's opens such a file and fails when it is run.
    """
    return ("cpu",) if any(_reads_packed(node) for node in all_nodes(proto)) else ()


def _reads_packed(node: NodeProto) -> bool:
    if (node.domain, node.op_type) != (CONTRIB_DOMAIN, "MultiHeadAttention"):
        return False
    given = [bool(name) for name in node.input[:3]]
    return not (len(given) == 3 and given[1] and given[2])


def minimum_runtime_on(proto: ModelProto) -> dict[str, str]:
    """Per provider, the oldest release of ONNX Runtime whose kernels compute a graph rightly, as `major.minor`.

    A provider on which every release does so that reads the graph is left out.
    """
    needed = [SUMS_IN_FLOAT_SINCE[node.op_type] for node in _half_skip_norms(proto)]
    return {"cuda": "{}.{}".format(*max(needed))} if needed else {}


def _half_skip_norms(proto: ModelProto) -> Iterator[NodeProto]:
    halves = {each.name for graph in all_graphs(proto) for each in graph.initializer if each.data_type == FLOAT16}
    for graph in all_graphs(proto):
        declared = [*graph.input, *graph.value_info, *graph.output]
        halves |= {each.name for each in declared if each.type.tensor_type.elem_type == FLOAT16}
    for node in all_nodes(proto):
        known = node.domain == CONTRIB_DOMAIN and node.op_type in SUMS_IN_FLOAT_SINCE
        if known and len(node.input) > _GAIN and halves.intersection(node.input):
            yield node
