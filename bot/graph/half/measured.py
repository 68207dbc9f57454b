"""Nodes that stay float32 because of what was measured: `keep: auto`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.graph.half import regions, rules
from bot.graph.half.scopes import Node, Scope, State, Value
from bot.graph.tensors import FLOAT16_MAX, FLOAT16_SMALLEST_NORMAL, FLOAT16_VANISHES_AT
from bot.records import Json

if TYPE_CHECKING:
    from bot.graph.ranges import Range, Ranges

MAKES_BEYOND = "makes what was measured beyond float16's range"
READS_BEYOND = "reads what was measured beyond float16's range"
SUMS_BEYOND = "its inner sums would be beyond float16's range"
MAKES_DIVISOR = "makes a divisor that would be zero in float16"
READS_DIVISOR = "divides by what would be zero in float16"
MAKES_SMALL = "makes nothing but what is too small for float16"
READS_SMALL = "reads nothing but what is too small for float16"

MARGIN = 2.0
"""How much further than on the samples a tensor may go on other inputs."""

_SCALARS = frozenset({"Sqrt", "Max", "Clip", "Abs"}) | rules.MOVES
"""Operators whose result is zero where what they read is."""


@dataclass(frozen=True)
class Kept:
    """One node and what it was kept for."""

    node: Node
    because: str
    range: Range

    def to_plain(self) -> dict[str, Json]:
        """As plain JSON data, figures to four digits."""
        smallest = self.range.smallest if self.range.smallest < float("inf") else 0.0
        return {
            "node": self.node.label,
            "because": self.because,
            "tensor": self.range.name,
            "largest": float(f"{self.range.largest:.4g}"),
            "smallest": float(f"{smallest:.4g}"),
            "channel": self.range.channel,
        }


def mark_measured(root: Scope, ranges: Ranges) -> list[Kept]:
    """Keeps in float32 what float16 could not hold on the samples, with a margin.

    Args:
        root: The main graph. What is within its branches and loops was not measured.
        ranges: What was measured.

    Returns:
        The nodes that are kept for it, in the order in which they were found.
    """
    marker = _Marker(ranges)
    for value in list(root.values.values()):
        seen = ranges.tensors.get(value.name)
        if seen is None or not value.is_float or value.constant is not None:
            continue
        if seen.largest * MARGIN > FLOAT16_MAX and not _only_hides(value, seen):
            marker.hold(value, seen, MAKES_BEYOND, READS_BEYOND)
        elif 0 < seen.largest < FLOAT16_SMALLEST_NORMAL * MARGIN:
            marker.hold(value, seen, MAKES_SMALL, READS_SMALL)
        elif (seen.vanished or seen.smallest <= FLOAT16_VANISHES_AT * MARGIN) and _divides(value, {}):
            marker.hold(value, seen, MAKES_DIVISOR, READS_DIVISOR)
    for node in root.nodes:
        marker.look_inside(node)
    return marker.kept


@dataclass
class _Marker:
    ranges: Ranges
    kept: list[Kept] = field(default_factory=list)

    def hold(self, value: Value, seen: Range, makes: str, reads: str) -> None:
        """Keeps what makes a tensor, what reads it, and what moves its values on."""
        self._hold_maker(value, seen, makes)
        waiting, known = [value], {value}
        while waiting:
            for reader in regions.readers_of(waiting.pop()):
                self._keep(reader, seen, reads)
                if reader.op not in rules.MOVES:
                    continue
                onward = [each for each in reader.outputs if each is not None and each not in known]
                known.update(onward)
                waiting += onward

    def look_inside(self, node: Node) -> None:
        """Keeps a reduction whose result is in range and whose kernel stores a sum in float16 that is not."""
        source, result = (self._range(values) for values in (node.inputs, node.outputs))
        if source is None or result is None:
            return
        if node.op in rules.SQUARES_INSIDE and source.largest**2 * MARGIN > FLOAT16_MAX:
            self._keep(node, source, SUMS_BEYOND)
        elif node.op == "ReduceMean":
            terms = source.values / max(result.values, 1)
            if terms * max(result.largest, 1.0) * MARGIN > FLOAT16_MAX:
                self._keep(node, source, SUMS_BEYOND)

    def _range(self, values: list[Value | None]) -> Range | None:
        first = values[0] if values else None
        return self.ranges.tensors.get(first.name) if first is not None else None

    def _hold_maker(self, value: Value, seen: Range, makes: str) -> None:
        maker = value.producer
        if maker is None:
            return
        self._keep(maker, seen, makes)
        place = next((at for at, output in enumerate(maker.outputs) if output is value), -1)
        for inner in maker.inner if maker.op == "If" else []:
            self._hold_maker(inner.outputs[place], seen, makes)

    def _keep(self, node: Node, seen: Range, because: str) -> None:
        if node.state in (State.HALF, State.FOLLOW):
            node.stay(because)
            self.kept.append(Kept(node, because, seen))


def _only_hides(value: Value, seen: Range) -> bool:
    """Whether what is too large is a mask that lowers what goes into a softmax, and is written smaller in float16."""
    return seen.most_positive * MARGIN <= FLOAT16_MAX and _from_mask(value) and regions.only_lowers(value)


def _from_mask(value: Value) -> bool:
    waiting, known = [value], {value}
    while waiting:
        each = waiting.pop()
        if each.saturate:
            return True
        if each.producer is not None and each.producer.op in rules.MASK_CARRIERS:
            sources = [source for source in each.producer.inputs if source is not None and source not in known]
            known.update(sources)
            waiting += sources
    return False


def _divides(value: Value, seen: dict[Value, bool]) -> bool:
    """Whether something is divided by a tensor, or by what is zero where it is, or its logarithm is taken."""
    if value not in seen:
        seen[value] = False
        seen[value] = any(_is_divisor(node, place, seen) for node, place in value.readers)
    return seen[value]


def _is_divisor(node: Node, place: int, seen: dict[Value, bool]) -> bool:
    if node.op in ("Reciprocal", "Log"):
        return True
    if node.op in ("Div", "Mod"):
        return place == 1
    return node.op in _SCALARS and any(_divides(value, seen) for value in _results(node))


def _results(node: Node) -> Iterator[Value]:
    return (value for value in node.outputs if value is not None and value.is_float)
