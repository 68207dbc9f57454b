"""Quantises a graph's weights to eight bits; its activations are quantised anew at every run.

It needs no samples. But the scale of an activation is taken from all that is in a run, so that an answer depends on
what else is in its batch: `batch invariance` is a check that such a file has to pass like any other.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bot.graph.inspection import census_of
from bot.graph.int8.choosing import choose
from bot.graph.int8.parameters import QuantizeDynamicParameters
from bot.graph.int8.prepare import prepare
from bot.graph.int8.quantize import Settings, dynamic_operators, unfuse
from bot.graph.int8.quantize import quantize_dynamic as quantized_dynamically
from bot.graph.model_file import read_model, write_proto
from bot.graph.steps import StepContext
from bot.records import Json

SCALES = "a Gemm that scales or transposes what it reads"
"""Why a node stays float that the quantiser has no form for."""


def quantize_dynamic(
    source: Path, output: Path, parameters: QuantizeDynamicParameters, context: StepContext
) -> dict[str, Json]:
    """Quantises a model file.

    Args:
        source: The float model.
        output: Where the result goes.
        parameters: What is quantised, and what stays float.
        context: Its progress is told.

    Returns:
        `nodes_quantized`, `nodes_kept`, `operators` (quantised nodes per operator), `kept_because`: nodes per reason,
        `parameters`: elements per dtype; and, where there are any, `keep_without_match`.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: Nothing can be quantised, or the quantiser fails.
    """
    proto = prepare(read_model(source), context.scratch)
    context.progress(1, 2, "quantising")
    choice = choose(proto, dynamic_operators(), parameters)
    settings = Settings(weights=parameters.weights, per_channel=parameters.per_channel)
    unfused, renamed = unfuse(proto)
    kinds = {node.name: node.op_type for node in proto.graph.node}
    stays = [name for name in choice.nodes if kinds[name] == "Gemm" and name not in renamed]
    chosen = [name for name in choice.nodes if name not in stays]
    kept = choice.kept | dict.fromkeys(stays, SCALES)
    operators = Counter(kinds[name] for name in chosen)
    quantized = quantized_dynamically(
        unfused,
        [renamed.get(name, name) for name in chosen],
        settings,
        context.scratch,
        [*{"MatMul" if op == "Gemm" else op for op in operators}],
    )
    write_proto(quantized, output)
    context.progress(2, 2, "quantising")
    report: dict[str, Json] = {
        "nodes_quantized": len(chosen),
        "nodes_kept": len(kept),
        "operators": dict(sorted(operators.items())),
        "kept_because": dict(sorted(Counter(kept.values()).items())),
        "parameters": {**census_of(quantized).parameters},
    }
    if choice.unmatched:
        report["keep_without_match"] = [*choice.unmatched]
    return report
