"""Converts a graph to half precision.

Inputs and outputs keep their dtypes. A node computes in float16 unless its definition does not allow it, the recipe
keeps it, or float16 cannot hold what it works with; then it stays float32 with its parameters. Each tensor is cast at
most once, right after the node that makes it, so no value takes a detour through float16. A constant that both kinds of
node read is there in both dtypes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.functions import inline_functions
from bot.graph.half.constants import Constants
from bot.graph.half.planning import Plan, make_plan
from bot.graph.half.rewriting import rewrite
from bot.graph.half.scopes import Scope, State, read_scopes
from bot.graph.inference import infer
from bot.graph.inspection import census_of, opsets_of
from bot.graph.model_file import Model, graphs_of, read_model, write_model
from bot.graph.parameters import AUTO, Float16Parameters
from bot.graph.ranges import Ranges, measure_ranges
from bot.graph.steps import StepContext
from bot.graph.tensors import FLOAT16, Fit, dtype_name
from bot.records import Json

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

_OLDEST_OPSET = 6
_CONVERT_OPSET = "Convert it to a newer opset first: no ONNX Runtime promises to read one before 7."

_WORST = 5
"""How many of the largest tensors the report names."""

_NAMED = 20
"""How many names a list in the report shows at most."""


def float16(source: Path, output: Path, parameters: Float16Parameters, context: StepContext) -> dict[str, Json]:
    """Converts a model file.

    Args:
        source: The model.
        output: Where the result goes. IR version, opsets and metadata are the source's.
        parameters: What stays float32.
        context: Its progress is told; with `auto` in keep, its samples are run.

    Returns:
        `nodes_converted` and `nodes_kept`; `kept_because`: nodes per reason; `kept_operators`: nodes per operator and
        reason; `casts_added`; `parameters`: elements per dtype; `weights`: what float16 did to those that were
        converted; and, where there are any, `masks` and `bounds_beyond_range` (how many constants beyond float16's
        range are one or the other), `beyond_range` and `too_small` (names of constants that keep nodes in float32),
        `keep_without_match` (entries of keep that match nothing), `functions_inlined`; with `auto`, `ranges` (what
        `Ranges.to_plain` says) and `kept_by_measurement`: node, reason, tensor and magnitudes.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: It cannot be converted, has nothing to convert, or there are no samples for `auto`.
    """
    model = read_model(source)
    report = convert(model, parameters, context)
    write_model(model, output)
    return report


def convert(model: Model, parameters: Float16Parameters, context: StepContext) -> dict[str, Json]:
    """Converts a model in memory; see `float16`."""
    where = model.path.name
    if model.proto.training_info:
        raise StepError("holds a training graph.", where=where, remedy="Export it for inference.")
    functions = inline_functions(model)
    opsets = opsets_of(model.proto)
    casts = census_of(model.proto).casts
    if 0 < opsets.get("ai.onnx", 0) < _OLDEST_OPSET:
        raise StepError(
            f"has opset {opsets['ai.onnx']}, in which Cast was another.", where=where, remedy=_CONVERT_OPSET
        )
    context.progress(0, 4, "types")
    ranges = _measure(model, context) if AUTO in parameters.keep else None
    root = read_scopes(model.proto, infer(model, opsets), opsets)
    constants = Constants(model)
    context.progress(1, 4, "decisions")
    plan = make_plan(root, [each for each in parameters.keep if each != AUTO], constants, ranges)
    if not any(node.state is State.HALF for node in root.all_nodes()):
        raise StepError("has no node that can be converted to float16.", where=where, remedy="Leave this step out.")
    context.progress(2, 4, "casts")
    report = _counts(root) | {"weights": _weights(root, constants)}
    rewrite(root, constants)
    if "ai.onnx" not in opsets:
        opsets |= _import_casts(model.proto)
    context.progress(3, 4, "types of the result")
    _settle(model, root, opsets)
    census = census_of(model.proto)
    report |= {"casts_added": census.casts - casts, "parameters": {**census.parameters}}
    if ranges is not None:
        report["ranges"] = ranges.to_plain(_WORST)
        report["kept_by_measurement"] = [kept.to_plain() for kept in plan.measured]
    return report | _remarks(plan, functions)


def _measure(model: Model, context: StepContext) -> Ranges:
    if not context.feeds:
        raise StepError(
            f"needs samples for keep: {AUTO}, and there are none.",
            where="float16",
            remedy="Give bot step --samples FEEDS.npz, or the recipe measure.samples; or name in keep what stays.",
        )
    return measure_ranges(model, context.feeds, context.scratch, context.progress)


def _import_casts(proto: ModelProto) -> dict[str, int]:
    """A model of foreign operators alone has to import ONNX's own for the casts."""
    version = 13 if proto.ir_version >= 7 else 9
    proto.opset_import.add(domain="", version=version)
    return {"ai.onnx": version}


def _settle(model: Model, root: Scope, opsets: dict[str, int]) -> None:
    """Infers the types of the result, and compares them with what was planned."""
    inferred = infer(model, opsets)
    for scope, graph, typed in zip(root.all_scopes(), graphs_of(model.proto), graphs_of(inferred), strict=True):
        types = {value.name: value.type.tensor_type.elem_type for value in [*typed.value_info, *typed.output]}
        for value in scope.values.values():
            for dtype, name in value.names.items():
                if types.get(name, 0) not in (0, dtype):
                    kind = f"{dtype_name(types[name])} instead of {dtype_name(dtype)}"
                    raise StepError(f"would come out with {name!r} as {kind}: a fault of this step.", where="float16")
        _declare(graph, typed)


def _declare(graph: GraphProto, typed: GraphProto) -> None:
    """Writes down what was inferred; a tensor whose rank is unknown is not declared, as the checker wants it."""
    del graph.value_info[:]
    graph.value_info.extend(value for value in typed.value_info if _is_complete(value))
    for value, inferred in zip(graph.output, typed.output, strict=True):
        if not _is_complete(value) and inferred.type.WhichOneof("value") is not None:
            value.type.CopyFrom(inferred.type)


def _is_complete(value: ValueInfoProto) -> bool:
    """Whether a type is declared, and with it, for a tensor, its rank."""
    kind = value.type.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or value.type.tensor_type.HasField("shape"))


def _counts(root: Scope) -> dict[str, Json]:
    nodes = list(root.all_nodes())
    kept = Counter(node.reason for node in nodes if node.state is State.FLOAT)
    operators = Counter(f"{node.op}: {node.reason}" for node in nodes if node.state is State.FLOAT)
    return {
        "nodes_converted": sum(node.state is State.HALF for node in nodes),
        "nodes_kept": kept.total(),
        "kept_because": dict(sorted(kept.items())),
        "kept_operators": dict(sorted(operators.items())),
    }


def _weights(root: Scope, constants: Constants) -> dict[str, Json]:
    """What float16 does to the constants that are converted."""
    total = Fit()
    for scope in root.all_scopes():
        for value in scope.values.values():
            if value.constant is not None and value.is_float and FLOAT16 in value.wanted:
                total += constants.fit(value)
    return {
        "elements": total.elements,
        "subnormal": total.subnormal,
        "vanished": total.vanished,
        "subnormal_share": round(total.subnormal / max(total.elements, 1), 9),
        "vanished_share": round(total.vanished / max(total.elements, 1), 9),
        "largest_magnitude": max(total.most_positive, -total.most_negative),
    }


def _remarks(plan: Plan, functions: int) -> dict[str, Json]:
    """What is worth a remark only where it happened."""
    remarks: dict[str, Json] = {
        "masks": plan.masks,
        "bounds_beyond_range": plan.bounds,
        "beyond_range": [*sorted(plan.beyond)[:_NAMED]],
        "too_small": [*sorted(plan.small)[:_NAMED]],
        "keep_without_match": [*plan.unmatched],
        "functions_inlined": functions,
    }
    return {key: value for key, value in remarks.items() if value}
