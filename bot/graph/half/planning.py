"""Decides, for every node, whether it computes in float16, and for every tensor, in which dtypes it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.graph.half import measured, regions, rules
from bot.graph.half.constants import Constants
from bot.graph.half.scopes import Node, Scope, State, Value
from bot.graph.tensors import FLOAT, FLOAT16, FLOAT16_MAX

if TYPE_CHECKING:
    from bot.graph.ranges import Ranges

KEEP = "named in keep"
NO_SCHEMA = "an operator that ONNX does not define"
UNKNOWN_TYPE = "the dtype of one of its tensors is unknown"
COMPOSITE = "a sequence, an optional, a map or a sparse tensor"
NO_HALF = "its definition has no float16"
WEIGHTS_BEYOND = "weights beyond float16's range"
OWN_RESULT = "its result's dtype is its own affair"
BETWEEN_FLOAT = "between nodes that stay float32"
MOVES_FLOAT = "moves float32 values"
ATTRIBUTE_BEYOND = "an attribute beyond float16's range"

_FEW = 16
"""Elements up to which a constant is a number like an epsilon rather than weights."""


@dataclass
class Plan:
    """What was decided beside the states of the nodes.

    Attributes:
        masks: Constants that became `constants.MASK`.
        bounds: Places where a bound beyond float16's range became infinite.
        beyond: Constants beyond float16's range that keep their readers in float32.
        small: Constants that float16 would make zero and that keep their readers in float32.
        unmatched: Entries of keep that match no node.
        measured: Nodes that stay float32 because of what was measured.
    """

    masks: int = 0
    bounds: int = 0
    beyond: dict[str, None] = field(default_factory=dict)
    small: dict[str, None] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    measured: list[measured.Kept] = field(default_factory=list)


def make_plan(root: Scope, keep: Sequence[str], constants: Constants, ranges: Ranges | None = None) -> Plan:
    """Decides on a whole model. The decisions are in the nodes and values of the scopes.

    Args:
        root: The main graph.
        keep: Operator types, node names, or patterns of either, that stay float32.
        constants: The model's constants.
        ranges: What was measured of the tensors, if it is to count.
    """
    plan = Plan()
    nodes = list(root.all_nodes())
    used: set[str] = set()
    for node in nodes:
        _classify(node, keep, used)
    plan.unmatched = [pattern for pattern in keep if pattern not in used]
    regions.mark_integers(nodes, constants)
    values = [value for scope in root.all_scopes() for value in scope.values.values()]
    plan.masks = regions.mark_masks(values, constants)
    regions.mark_roots(nodes, constants)
    if ranges is not None:
        plan.measured = measured.mark_measured(root, ranges)
    for node in nodes:
        _look_at_numbers(node, constants, plan)
    _settle_dtypes(root, constants)
    for node in nodes:
        _want(node)
    for value in values:
        if value.is_output and value.is_float:
            value.wanted.add(value.output_dtype)
    _settle_made(values)
    return plan


def half_variables(node: Node) -> frozenset[str]:
    """The type variables of a node that can be float16: those of a float32 input whose every place allows it."""
    reads = {variable for inputs, _, value, variable, _ in node.slots() if inputs and value.is_float}
    refuses = {variable for _, _, value, variable, half in node.slots() if value.is_float and not half}
    in_float = rules.SLOTS_IN_FLOAT.get(node.op, frozenset())
    refuses |= {variable for inputs, place, _, variable, _ in node.slots() if inputs and place in in_float}
    return frozenset(reads - refuses)


def reads_any(node: Node) -> bool:
    """Whether a node reads its float32 input in whichever dtype it has."""
    return node.op in rules.READS_ANY or (node.op == "Cast" and node.state is State.PLAIN)


def _classify(node: Node, keep: Sequence[str], used: set[str]) -> None:
    """What becomes of a node as far as its operator and its types tell."""
    touched = [value for _, _, value, _, _ in node.slots()]
    kept = _matches(node, keep, used) or _within_kept(node)
    if node.op == "Constant":
        node.state = State.MADE if node.outputs and node.outputs[0] and node.outputs[0].constant else State.PLAIN
    elif node.op in rules.NESTED:
        node.state = State.FLOAT if kept else State.NESTED
        node.reason = KEEP if kept else ""
    elif node.op in ("Cast", "ConstantOfShape"):
        _classify_maker(node, kept)
    elif any(value.composite for value in touched) and any(value.is_float for value in touched):
        node.stay(COMPOSITE)
    elif any(value.unknown for value in touched) and (node.schema is None or _could_be_float(node)):
        node.stay(UNKNOWN_TYPE if node.schema is not None else NO_SCHEMA)
    elif not any(value.is_float for value in touched) or node.op in rules.READS_ANY:
        node.state = State.PLAIN
    elif kept:
        node.stay(KEEP)
    elif node.schema is None and node.op not in rules.RUNTIME_OPERATORS:
        node.stay(NO_SCHEMA)
    elif reason := rules.reason_to_keep(node.proto):
        node.stay(reason)
    elif _makes_its_own(node):
        node.stay(OWN_RESULT)
    elif not half_variables(node):
        node.stay(NO_HALF)
    else:
        node.state = State.FOLLOW if node.op in rules.MOVES else State.HALF


def _classify_maker(node: Node, kept: bool) -> None:
    """Casts and fills can make either dtype, unless they are told to stay."""
    source = node.inputs[0] if node.inputs else None
    result = node.outputs[0] if node.outputs else None
    if source is None or result is None:
        return
    if result.is_float and kept:
        node.stay(KEEP)
        result.constant = None
    elif node.op == "ConstantOfShape":
        node.state = State.MADE if result.is_float and result.constant is not None else State.PLAIN
    elif result.is_float and source.is_float:
        node.state = State.FOLLOW
    elif result.is_float:
        node.state = State.FLOAT if source.unknown else State.MADE
        node.reason = UNKNOWN_TYPE if source.unknown else ""
    elif source.is_float and result.elem == FLOAT16:
        node.state = State.ALIAS


def _makes_its_own(node: Node) -> bool:
    """Whether a result's dtype is not tied to any input's by the definition, although it could be float16."""
    slots = [slot for slot in node.slots() if slot[2].is_float]
    read = {variable for inputs, _, _, variable, _ in slots if inputs}
    return any(half and not inputs and variable not in read for inputs, _, _, variable, half in slots)


def _matches(node: Node, keep: Sequence[str], used: set[str]) -> bool:
    names = [node.proto.op_type, node.op, *([node.proto.name] if node.proto.name else [])]
    matching = [pattern for pattern in keep if any(fnmatchcase(name, pattern) for name in names)]
    used.update(matching)
    return bool(matching)


def _within_kept(node: Node) -> bool:
    """Whether a node around it stays float32 as a whole."""
    scope = node.scope
    if scope.parent is None:
        return False
    return any(scope in outer.inner and outer.state is State.FLOAT for outer in scope.parent.nodes)


def _could_be_float(node: Node) -> bool:
    """Whether a tensor of unknown dtype is at a place that may be float32."""
    if node.schema is None:
        return True
    for inputs, place, value, _, _ in node.slots():
        formals = node.schema.inputs if inputs else node.schema.outputs
        if value.unknown and (not formals or "tensor(float)" in formals[min(place, len(formals) - 1)].types):
            return True
    return False


def _look_at_numbers(node: Node, constants: Constants, plan: Plan) -> None:
    """Keeps a node in float32 whose constants or attributes float16 cannot hold."""
    if node.state not in (State.HALF, State.FOLLOW, State.FLOAT) or node.op in rules.NESTED:
        return
    if node.op != "Clip" and any(_beyond(attribute.f) for attribute in node.proto.attribute):
        node.stay(ATTRIBUTE_BEYOND)
    for value in node.inputs:
        if value is None or value.constant is None or not value.is_float or value.saturate:
            continue
        fit = constants.fit(value)
        if fit.overflowed:
            _meet_large(node, value, constants, plan)
        elif fit.vanished and fit.elements <= _FEW and node.op not in rules.COMPARISONS:
            plan.small.setdefault(value.name)
            node.stay(regions.TOO_SMALL)
            regions.spread_small(node)


def _meet_large(node: Node, value: Value, constants: Constants, plan: Plan) -> None:
    if regions.harmless(node, value, constants):
        plan.bounds += 1
        return
    plan.beyond.setdefault(value.name)
    if node.op in rules.CONTRACTIONS:
        node.stay(WEIGHTS_BEYOND)
        return
    node.stay(regions.BEYOND)
    if not (node.op == "Div" and node.inputs[0] is not value):
        regions.spread_beyond(node, constants)


def _beyond(number: float) -> bool:
    return FLOAT16_MAX < abs(number) < float("inf")


@dataclass(frozen=True)
class _Demand:
    """What is read of the results of nodes that could have either dtype.

    Attributes:
        half: Nodes whose every reader computes in float16.
        full: Nodes whose every reader stays float32.
    """

    half: set[Node] = field(default_factory=set)
    full: set[Node] = field(default_factory=set)


def _settle_dtypes(root: Scope, constants: Constants) -> None:
    """Gives nodes that only move values the dtype around them, and tensors the dtype that they are made in.

    A light node between nodes that stay float32 stays float32 too: two casts would cost more than it saves.
    """
    order = list(root.inner_first())
    demand = _demand(order)
    for node in order:
        if node.state is State.FOLLOW:
            node.state = State.HALF if _follows_half(node, constants, demand) else State.FLOAT
            node.reason = "" if node.state is State.HALF else MOVES_FLOAT
        elif _is_light(node) and node in demand.full and _reads_only_full(node):
            node.stay(BETWEEN_FLOAT)
        if node.state is State.HALF:
            _make_native(node)
        if node.op == "If" and node.state is State.NESTED:
            _let_results_be_half(node)


def _demand(order: list[Node]) -> _Demand:
    demand = _Demand()
    for node in reversed(order):
        results = [value for value in node.outputs if value is not None and value.is_float]
        readers = [reader for value in results for reader, _ in value.readers if not reads_any(reader)]
        if not readers or any(value.is_output for value in results):
            continue
        if all(_computes_in_half(reader, demand) for reader in readers):
            demand.half.add(node)
        if all(reader.state in (State.FLOAT, State.NESTED) or reader in demand.full for reader in readers):
            demand.full.add(node)
    return demand


def _computes_in_half(node: Node, demand: _Demand) -> bool:
    if node.state is State.FOLLOW:
        return node in demand.half
    return node.state is State.ALIAS or (node.state is State.HALF and not (_is_light(node) and node in demand.full))


def _is_light(node: Node) -> bool:
    return node.state is State.HALF and node.op not in rules.HEAVY


def _reads_only_full(node: Node) -> bool:
    """Whether all that a node reads while it runs comes from nodes that stay float32."""
    running = [value for value in node.inputs if value is not None and value.is_float and not value.on_demand]
    return bool(running) and all(
        value.native == FLOAT and value.producer is not None and value.producer.state is State.FLOAT
        for value in running
    )


def _follows_half(node: Node, constants: Constants, demand: _Demand) -> bool:
    variables = half_variables(node) or {"T1"}
    moved = [value for inputs, _, value, name, _ in node.slots() if inputs and value.is_float and name in variables]
    running = [value for value in moved if not value.on_demand]
    if any(value.native == FLOAT16 for value in running):
        return True
    if not running and moved and node.op in rules.TABLE_LOOKUPS:
        return constants.fit(moved[0]).elements > rules.SMALL_CONSTANT or node in demand.half
    return node in demand.half


def _make_native(node: Node) -> None:
    if node.op == "Cast":
        outputs = [value for value in node.outputs if value is not None]
    else:
        half = half_variables(node)
        outputs = [
            value for inputs, _, value, name, _ in node.slots() if not inputs and value.is_float and name in half
        ]
    for value in outputs:
        value.native = FLOAT16


def _let_results_be_half(node: Node) -> None:
    """A result of If is float16 where every branch makes it so: a cast in each branch and one after it cancel out."""
    for place, value in enumerate(node.outputs):
        results = [inner.outputs[place] for inner in node.inner]
        if value is None or not value.is_float or not results:
            continue
        halves = [each.native == FLOAT16 and each.scope in node.inner for each in results]
        once = all(each.scope.outputs.count(each) == 1 for each in results if each.scope in node.inner)
        if all(halves) and once:
            value.native = FLOAT16
            for each in results:
                each.output_dtype = FLOAT16


def _want(node: Node) -> None:
    """Notes the dtypes that a node reads."""
    half = half_variables(node) if node.state is State.HALF else frozenset()
    for inputs, _, value, name, _ in node.slots():
        if not inputs or not value.is_float or reads_any(node):
            continue
        as_half = name in half or node.state is State.ALIAS or (node.op == "Cast" and node.state is State.HALF)
        value.wanted.add(FLOAT16 if as_half else FLOAT)


def _settle_made(values: list[Value]) -> None:
    """What can be made in either dtype is made in the one that is read; so nobody reads it, it stays as it was."""
    for value in values:
        if value.is_float and value.on_demand and value.wanted == {FLOAT16}:
            value.native = FLOAT16
