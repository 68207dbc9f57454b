"""The residual stream of a network, and what it takes to carry it in float16."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bot.graph.tensors import FLOAT16_MAX

if TYPE_CHECKING:
    from onnx import GraphProto

_SKIP_NORMALIZATIONS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
_SUM_OUTPUT = 3
"""The output of ONNX Runtime's skip normalisations that carries the stream on."""

_LARGE = 100.0
_FAR = 20.0
"""How far a massive activation is above the largest magnitude of the channel in the middle."""

_FEWEST_CHANNELS = 8


def is_massive(largest: float, typical: float, channels: int) -> bool:
    """Whether a tensor has a massive activation: one channel above 100 and more than twenty times above the others.

    The notion is that of Sun et al., "Massive Activations in Large Language Models" (2024); they compare with the
    median of all activations, here it is that of each channel's largest.
    """
    return channels >= _FEWEST_CHANNELS and largest > _LARGE and largest > _FAR * typical


def scale_that_fits(peak: float) -> float:
    """The largest power of two, at most 1, that brings a magnitude within float16's range."""
    return 1.0 if peak <= FLOAT16_MAX else 2.0 ** -math.ceil(math.log2(peak / FLOAT16_MAX))


def residual_stream(graph: GraphProto, measured: set[str]) -> tuple[str, ...]:
    """The longest chain of additions, each of which adds to the result of the one before.

    Args:
        graph: The main graph.
        measured: Its float32 tensors that come from a node that computes. An addition counts if both of its terms are
            computed, directly or by way of nodes that move values: a bias is none.

    Returns:
        Their results in order; empty where no two follow each other.
    """
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    length: dict[str, int] = {}
    before: dict[str, str] = {}
    for node in graph.node:
        result = ""
        if node.op_type == "Add":
            result = node.output[0]
        elif node.op_type in _SKIP_NORMALIZATIONS and len(node.output) > _SUM_OUTPUT:
            result = node.output[_SUM_OUTPUT]
        terms = list(node.input[:2])
        if not result or result not in measured or constants.intersection(terms):
            continue
        last = max(terms, key=lambda name: length.get(name, 0))
        length[result] = length.get(last, 0) + 1
        if last in length:
            before[result] = last
    chain: list[str] = []
    name = max(length, key=lambda each: length[each], default="")
    while name:
        chain.append(name)
        name = before.get(name, "")
    return tuple(reversed(chain)) if len(chain) > 1 else ()
