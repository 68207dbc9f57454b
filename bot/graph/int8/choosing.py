"""Which nodes are quantised: by operator, by name, and by how far they are from the end of the graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.errors import StepError
from bot.graph.int8.distance import distances
from bot.graph.int8.parameters import ChoosingParameters
from bot.graph.parameters import AUTO

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

KEEP = "named in keep"
WITHIN = "within keep_within of an output"
INFINITE = "reads or makes what is infinite"


@dataclass(frozen=True)
class Choice:
    """What a recipe's parameters decide, before anything is measured.

    Attributes:
        nodes: Names of the nodes to quantise, in the graph's order.
        kept: Names of those that could be and stay float, with the reason.
        unmatched: Entries of keep that match nothing.
    """

    nodes: tuple[str, ...]
    kept: dict[str, str]
    unmatched: tuple[str, ...]


def choose(
    proto: ModelProto,
    known: Collection[str],
    parameters: ChoosingParameters,
    infinite: Collection[str] = (),
) -> Choice:
    """Decides which nodes of a prepared model are quantised.

    Args:
        proto: The model.
        known: The operators that the step knows.
        parameters: What the recipe says.
        infinite: Tensors that hold infinite values, and cannot be on a grid.

    Raises:
        StepError: An operator is named that the step does not know, or nothing is left to quantise.
    """
    if strange := set(parameters.operators) - set(known):
        raise StepError(
            f"cannot quantise {', '.join(sorted(strange))}.",
            where="operators",
            remedy=f"It knows {', '.join(sorted(known))}.",
        )
    operators = set(parameters.operators or known)
    near = distances(proto.graph) if parameters.keep_within is not None else {}
    patterns = [pattern for pattern in parameters.keep if pattern != AUTO]
    matched: set[str] = set()
    nodes, kept = [], {}
    for node in proto.graph.node:
        matching = _matching(node, patterns)
        matched |= set(matching)
        if node.op_type not in operators or node.domain not in ("", "ai.onnx"):
            continue
        within = node.name in near and near[node.name] <= (parameters.keep_within or 0)
        if {*node.input, *node.output} & set(infinite):
            kept[node.name] = INFINITE
        elif matching:
            kept[node.name] = KEEP
        elif within:
            kept[node.name] = WITHIN
        else:
            nodes.append(node.name)
    if not nodes:
        raise StepError("has no node to quantise.", where=proto.graph.name, remedy="Keep less of it, or skip the step.")
    return Choice(tuple(nodes), kept, tuple(pattern for pattern in patterns if pattern not in matched))


def _matching(node: NodeProto, patterns: Sequence[str]) -> list[str]:
    return [each for each in patterns if any(fnmatchcase(name, each) for name in (node.op_type, node.name))]
