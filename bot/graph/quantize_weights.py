"""Stores a graph's weights in eight bits, and computes in float.

No activation is quantised: there is nothing to calibrate, no outlier to cut off, and an answer does not depend on what
else is in its batch. What is lost is the rounding of the weights, at most half a step of each channel's or block's own
scale. The file is a quarter of the size. Whether it is faster is up to the runtime: some multiply with the eight bits
themselves where they find a DequantizeLinear in front of a MatMul, others unpack the weights at every run.

Contents stream, but in a graph whose opset has to be converted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from bot.errors import StepError
from bot.graph.functions import inline_functions
from bot.graph.inspection import census_of
from bot.graph.int8.choosing import choose
from bot.graph.int8.parameters import WEIGHT_OPERATORS, QuantizeWeightsParameters
from bot.graph.int8.prepare import PER_CHANNEL_OPSET, in_newer_opset, name_nodes, refuse_quantized
from bot.graph.int8.quantize import finish
from bot.graph.int8.storing import Stored, look_at, rewrite, uses_of
from bot.graph.model_file import read_model, write_model
from bot.graph.steps import StepContext
from bot.records import Json

BLOCK_OPSET = 21
"""From here on DequantizeLinear has a block_size."""


def quantize_weights(
    source: Path, output: Path, parameters: QuantizeWeightsParameters, context: StepContext
) -> dict[str, Json]:
    """Quantises a model file.

    Args:
        source: The float model.
        output: Where the result goes: opset 13 or later, with `block` 21 or later.
        parameters: Which weights are quantised, and how many share a scale.
        context: Its progress is told.

    Returns:
        `nodes_quantized`, `nodes_kept`, `operators` (nodes per operator whose weights are in eight bits);
        `kept_because`: nodes per reason; `weights`: how many matrices and numbers they are, and how far rounding moves
        them, all together and the matrix that it moves most, as the Euclidean norm of the difference over that of the
        weights; `parameters`: elements per dtype; and, where there are any, `keep_without_match`.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: It is quantised already, cannot be converted to a new enough opset, or has no such weights.
    """
    from onnx import ModelProto

    model = read_model(source)
    where = source.name
    refuse_quantized(model.proto, where)
    inline_functions(model)
    before = ModelProto()
    before.CopyFrom(model.proto)
    before.ClearField("graph")
    model = in_newer_opset(model, BLOCK_OPSET if parameters.block else PER_CHANNEL_OPSET)
    name_nodes(model.proto)
    context.progress(0, 2, "scales")
    choice = choose(model.proto, WEIGHT_OPERATORS, parameters)
    could = uses_of(model.proto.graph)
    stored = look_at(model, {name: could[name] for name in choice.nodes if name in could}, parameters.block)
    if not stored.uses:
        raise StepError(
            f"has no weights to put into eight bits{_reasons(stored.refused)}.",
            where=where,
            remedy="It takes float32 matrices of Gather, Gemm and MatMul. Keep less of it, or leave the step out.",
        )
    operators = {node.name: node.op_type for node in model.proto.graph.node}
    report = _report(operators, stored, {name: reason for name, reason in choice.kept.items() if name in could})
    context.progress(1, 2, "writing")
    rewrite(model, stored, parameters.block)
    model.proto = finish(model.proto, before)
    write_model(model, output)
    context.progress(2, 2, "writing")
    report["parameters"] = {**census_of(model.proto).parameters}
    if choice.unmatched:
        report["keep_without_match"] = [*choice.unmatched]
    return report


def _report(operators: Mapping[str, str], stored: Stored, kept: Mapping[str, str]) -> dict[str, Json]:
    stays = {**kept, **stored.refused}
    return {
        "nodes_quantized": len(stored.uses),
        "nodes_kept": len(stays),
        "operators": dict(sorted(Counter(operators[name] for name in stored.uses).items())),
        "kept_because": dict(sorted(Counter(stays.values()).items())),
        "weights": _weights(stored),
    }


def _weights(stored: Stored) -> dict[str, Json]:
    """How many there are, and how far rounding moves them."""
    errors = {key: matrix.squared_error() for key, matrix in stored.matrices.items()}
    shares = {key: _share(changed, whole) for key, (changed, whole) in errors.items()}
    worst = max(shares, key=lambda key: (shares[key], key[0]))
    total = [sum(part) for part in zip(*errors.values(), strict=True)]
    return {
        "matrices": len(stored.matrices),
        "elements": sum(matrix.length for matrix in stored.matrices.values()),
        "relative_error": _share(*total),
        "largest_relative_error": {"weight": worst[0], "value": shares[worst]},
    }


def _share(changed: float, whole: float) -> float:
    return float(f"{(changed / whole) ** 0.5:.4g}") if whole else 0.0


def _reasons(refused: Mapping[str, str]) -> str:
    reasons = Counter(refused.values())
    return f" ({'; '.join(f'{count} nodes: {reason}' for reason, count in sorted(reasons.items()))})" if reasons else ""
