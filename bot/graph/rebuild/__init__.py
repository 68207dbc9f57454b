"""Graphs written anew by hand, with fused operators, around the weights of a source: one module per architecture.

A source is read by its structure and by what its parts compute, never by names: so it does not matter which exporter
wrote it, or which tool rewrote it since.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from bot.errors import StepError
from bot.graph.half.measured import MARGIN
from bot.graph.model_file import Model, read_model, write_model
from bot.graph.parameters import AUTO, RebuildParameters
from bot.graph.ranges import measure_ranges
from bot.graph.rebuild.calibration import measured_by
from bot.graph.steps import StepContext
from bot.graph.stream import scale_that_fits
from bot.records import Json

Rebuild = Callable[[Model, RebuildParameters], tuple[Model, dict[str, Json]]]
"""Rebuilds one architecture: the model, and the report."""


def rebuild(source: Path, output: Path, parameters: RebuildParameters, context: StepContext) -> dict[str, Json]:
    """Writes a model anew.

    The result has IR 10, opset 18 and com.microsoft 1; inputs, outputs and metadata are the source's. Around a DINOv2
    or a BERT other nodes may stand, which are kept: where one is another in opset 18, the result has the source's.

    Args:
        source: A float32 model of the architecture.
        output: Where the result goes.
        parameters: The architecture, and which form of it.
        context: Its samples are run where a parameter is to be measured; its progress is told.

    Returns:
        `architecture`, `precision`, `layers`, `heads`, `width`, `tokens` and `register_tokens` among them; `nodes` and
        `casts` of the result; `residual_scale` and `epsilon_scale`, by which stream and epsilons are multiplied;
        `folded`, of `layer_scales` and `value_bias`; `layer_scales_not_folded`, projections whose weights would lose
        bits in float16 to their layer scale; `residual`, `attention`, `patches` and `norms_compensated`, the form;
        `rotary_computed_in`, `float64` or, where the source has no angles but cosines and sines, `float32`;
        `last_block_cls_only`; `constant_shapes`. Where the scale was measured, `residual_peak` and `residual_samples`;
        where the form is calibrated, `calibrated_on`, the number of samples. Of a DINOv2 or BERT `nodes_around`, how
        many nodes were kept; of a BERT also `positions`, `vocabulary` and `token_types`, rows of its tables, `masked`,
        `masked_by_length`, whether the mask is counted, `fully_masked`, what a text of nothing but padding gives, and
        `activation`, `erf` or `tanh`, and nothing of scales, rotations and patches.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: It is not of the architecture; the error names the block and what was expected there. A parameter
            is to be measured, and there are no samples.
    """
    from bot.graph.rebuild import bert, dinov2, dinov3

    calibrated: dict[str, Json] = {}
    calibrating = partial(dinov3.rebuild, measure=measured_by(context, calibrated))
    architectures: dict[str, Rebuild] = {"bert": bert.rebuild, "dinov2": dinov2.rebuild, "dinov3": calibrating}
    context.progress(0, 2, "reading the network")
    model = read_model(source)
    _inline_functions(model)
    parameters, measured = _measured(model, parameters, context)
    rebuilt, report = architectures[parameters.architecture](model, parameters)
    context.progress(1, 2, "writing it anew")
    write_model(rebuilt, output)
    return {**report, **measured, **calibrated}


def _measured(
    model: Model, parameters: RebuildParameters, context: StepContext
) -> tuple[RebuildParameters, dict[str, Json]]:
    """The parameters with the residual scale that was measured in place of `auto`, and what was measured."""
    if parameters.residual_scale != AUTO:
        return parameters, {}
    if not context.feeds:
        raise StepError(
            "residual_scale: auto needs samples, and there are none.",
            where="rebuild",
            remedy="Give them with --samples, or name a power of two, such as residual_scale=1/8.",
        )
    ranges = measure_ranges(model, context.feeds, context.scratch, context.progress)
    if ranges.residual_peak is None:
        raise StepError("has no residual stream that could be measured.", where=model.path.name)
    chosen = parameters.model_dump() | {"residual_scale": scale_that_fits(ranges.residual_peak * MARGIN)}
    measured: dict[str, Json] = {"residual_peak": ranges.residual_peak, "residual_samples": ranges.samples}
    try:
        return RebuildParameters.model_validate(chosen), measured
    except ValueError as error:
        what = f"has a residual stream that reaches {ranges.residual_peak:.3g}, too far for a residual scale."
        raise StepError(what, where=model.path.name) from error


def _inline_functions(model: Model) -> None:
    from onnx import inliner

    if model.proto.functions:
        try:
            model.proto = inliner.inline_local_functions(model.proto)
        except (RuntimeError, ValueError) as error:
            raise StepError(f"has functions that cannot be inlined: {error}", where=model.path.name) from error
