"""Quantises a graph to eight bits with ranges that are calibrated on samples, as QuantizeLinear and DequantizeLinear.

The defaults are what the kernels of x64 processors are written for: unsigned activations, signed weights, a scale for
each output channel. Other settings are possible; the report says how far they move the answers, beside the defaults.
What decides whether a detector survives is which of its nodes stay float: where boxes in pixels and scores from 0 to 1
share a tensor, one scale of 256 steps leaves nothing of the scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.inspection import census_of
from bot.graph.int8.calibrate import PERCENTILE, Calibration, How, calibrate
from bot.graph.int8.choosing import Choice, choose
from bot.graph.int8.cost import relative_errors
from bot.graph.int8.distance import groups
from bot.graph.int8.parameters import QuantizeStaticParameters
from bot.graph.int8.prepare import prepare
from bot.graph.int8.quantize import DEFAULTS, Settings, quantize, static_operators
from bot.graph.int8.search import Search, search
from bot.graph.model_file import read_model, write_proto
from bot.graph.steps import Evaluate, Judgement, StepContext
from bot.records import Json

if TYPE_CHECKING:
    from onnx import ModelProto

SEARCHED = "eight bits would break a limit"
"""Why a node stays float that keep: auto found."""

_NAMED = 60
"""How many names a list in the report shows at most."""


def quantize_static(
    source: Path, output: Path, parameters: QuantizeStaticParameters, context: StepContext
) -> dict[str, Json]:
    """Quantises a model file.

    Args:
        source: The float model.
        output: Where the result goes: opset 13 or later, and the IR version that it asks for.
        parameters: What stays float, and how ranges are found.
        context: Its calibration samples are run; with `auto` in keep, its evaluate judges candidates.

    Returns:
        `nodes_quantized`, `nodes_kept` and `operators` (quantised nodes per operator); `kept_because`: nodes per
        reason; `kept`: their names; `calibration`: samples, method; `parameters`: elements per dtype; `relative_error`:
        of each output on a few calibration samples; and, where there are any, `keep_without_match`; with other settings
        than the defaults, `cost`; with `auto`, `search`.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: There are no calibration samples, they do not fit, nothing can be quantised, or no candidate keeps
            the limits.
    """
    feeds = _samples(context)
    where = source.name
    proto = prepare(read_model(source), context.scratch)
    how = How(parameters.method, parameters.percentile or PERCENTILE, parameters.samples)
    calibration = calibrate(proto, feeds, how, context.scratch, context.progress, where)
    choice = choose(proto, static_operators(), parameters, calibration.infinite)
    settings = Settings(parameters.activations, parameters.weights, parameters.per_channel)
    job = _Job(proto, calibration, settings, context.scratch)
    found = _search(job, choice, parameters, context) if parameters.searches else None
    kept = _kept(choice, found)
    nodes = frozenset(choice.nodes) - set(kept)
    quantized = job.quantize(nodes)
    write_proto(quantized, output)
    report = _report(job, quantized, nodes, kept, how)
    report |= _cost(job, quantized, nodes, feeds, where)
    if choice.unmatched:
        report["keep_without_match"] = [*choice.unmatched]
    if found is not None:
        report["search"] = found.to_plain()
    return report


@dataclass(frozen=True)
class _Job:
    """A prepared model with its ranges."""

    proto: ModelProto
    calibration: Calibration
    settings: Settings
    scratch: Path

    def quantize(self, nodes: frozenset[str], settings: Settings | None = None, *, declare: bool = True) -> ModelProto:
        """The model with these nodes in eight bits."""
        ordered = [node.name for node in self.proto.graph.node if node.name in nodes]
        return quantize(self.proto, ordered, self.calibration, settings or self.settings, declare=declare)


def _samples(context: StepContext) -> Mapping[str, Path]:
    if not context.calibration:
        raise StepError(
            "needs samples to calibrate on, and there are none.",
            where="quantize_static",
            remedy="Give the recipe a calibration, as docs/recipes.md says, or bot step --samples FEEDS.npz.",
        )
    return context.calibration


def _search(job: _Job, choice: Choice, parameters: QuantizeStaticParameters, context: StepContext) -> Search:
    evaluate = context.evaluate
    if evaluate is None:
        raise StepError(
            "keep: auto looks for what keeps the recipe's limits, and there are none here.",
            where="quantize_static",
            remedy="Run it in a recipe with gates for this artifact, or name in keep, or by keep_within, what stays.",
        )
    candidate = job.scratch / "candidate.onnx"

    def attempt(nodes: frozenset[str]) -> Judgement:
        return _judge(job, nodes, candidate, evaluate, parameters)

    try:
        return search(groups(job.proto.graph, choice.nodes), attempt, context.progress)
    finally:
        candidate.unlink(missing_ok=True)


def _judge(
    job: _Job, nodes: frozenset[str], candidate: Path, evaluate: Evaluate, parameters: QuantizeStaticParameters
) -> Judgement:
    write_proto(job.quantize(nodes, declare=False), candidate)
    return evaluate(candidate, parameters.margin, parameters.search_samples)


def _kept(choice: Choice, found: Search | None) -> dict[str, str]:
    """Names of the nodes that stay float although they could be quantised, with the reason."""
    searched = {name: SEARCHED for group in (found.kept if found else ()) for name in group.nodes}
    return choice.kept | searched


def _report(
    job: _Job, quantized: ModelProto, nodes: frozenset[str], kept: Mapping[str, str], how: How
) -> dict[str, Json]:
    operators = Counter(node.op_type for node in job.proto.graph.node if node.name in nodes)
    calibration = job.calibration
    named: dict[str, Json] = {"samples": calibration.samples, "available": calibration.available, "method": how.method}
    if how.method == "percentile":
        named["percentile"] = how.percentile
    return {
        "nodes_quantized": len(nodes),
        "nodes_kept": len(kept),
        "operators": dict(sorted(operators.items())),
        "kept_because": dict(sorted(Counter(kept.values()).items())),
        "kept": [*list(kept)[:_NAMED]],
        "calibration": named,
        "parameters": {**census_of(quantized).parameters},
    }


def _cost(
    job: _Job, quantized: ModelProto, nodes: frozenset[str], feeds: Mapping[str, Path], where: str
) -> dict[str, Json]:
    """How far the answers move; where the settings are others than the defaults, beside what the defaults would do."""
    candidates = {"these": quantized}
    if job.settings != DEFAULTS:
        candidates["defaults"] = job.quantize(nodes, DEFAULTS)
    errors = relative_errors(job.proto, candidates, feeds, job.scratch, where)
    found: dict[str, Json] = {"relative_error": {**errors["these"]}}
    if job.settings != DEFAULTS:
        sizes = {key: candidate.ByteSize() for key, candidate in candidates.items()}
        found["cost"] = {
            "relative_error_with_defaults": {**errors["defaults"]},
            "bytes": sizes["these"],
            "bytes_with_defaults": sizes["defaults"],
        }
        if job.settings.activations == "int8":
            found["slower_on"] = "x64 processors, whose kernels want unsigned activations"
    return found
