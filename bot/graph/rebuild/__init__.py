"""Graphs written anew by hand, with fused operators, around the weights of a source: one module per architecture.

A source is read by its structure and by what its parts compute, never by names: so it does not matter which exporter
wrote it, or which tool rewrote it since.
"""

from __future__ import annotations

from pathlib import Path

from bot.errors import StepError
from bot.graph.model_file import Model, read_model, write_model
from bot.graph.parameters import RebuildParameters
from bot.graph.steps import StepContext
from bot.records import Json


def rebuild(source: Path, output: Path, parameters: RebuildParameters, context: StepContext) -> dict[str, Json]:
    """Writes a model anew.

    The result has IR 10, opset 18 and com.microsoft 1; inputs, outputs and metadata are the source's.

    Args:
        source: A float32 model of the architecture.
        output: Where the result goes.
        parameters: The architecture, the precision, and the scale of the residual stream.
        context: Its progress is told.

    Returns:
        `architecture`, `precision`, `layers`, `heads`, `width`, `tokens` and `register_tokens` among them; `nodes` and
        `casts` of the result; `residual_scale` and `epsilon_scale`, by which stream and epsilons are multiplied;
        `folded`, of `layer_scales` and `value_bias`; `layer_scales_not_folded`, projections whose weights would lose
        bits in float16 to their layer scale; `rotary_computed_in`, `float64` or, where the source has no angles but
        cosines and sines, `float32`; `last_block_cls_only`; `constant_shapes`.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: It is not of the architecture; the error names the block and what was expected there.
    """
    from bot.graph.rebuild import dinov3

    context.progress(0, 2, "reading the network")
    model = read_model(source)
    _inline_functions(model)
    rebuilt, report = dinov3.rebuild(model, parameters)
    context.progress(1, 2, "writing it anew")
    write_model(rebuilt, output)
    return report


def _inline_functions(model: Model) -> None:
    from onnx import inliner

    if model.proto.functions:
        try:
            model.proto = inliner.inline_local_functions(model.proto)
        except (RuntimeError, ValueError) as error:
            raise StepError(f"has functions that cannot be inlined: {error}", where=model.path.name) from error
