"""Reads the parts that all transformers have out of a folded graph: projections, attention, feed-forward layers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.rebuild import behaviour
from bot.graph.rebuild.behaviour import Attention
from bot.graph.rebuild.folding import Folded, Operation, Value
from bot.graph.rebuild.patterns import Linear, Region, linear_ending_at, region_before

Known = dict[Hashable, tuple[Attention, tuple[int, int, int]] | None]
"""What parts of earlier blocks were found to be: blocks that are written alike are looked into once."""


@dataclass(frozen=True)
class Projection:
    """Some columns of a projection: all, or those of query, key or value in a packed one."""

    linear: Linear
    columns: slice

    @property
    def factor(self) -> NDArray[np.float64]:
        """Shape (columns,)."""
        return self.linear.factor[self.columns]

    @property
    def bias(self) -> NDArray[np.float64]:
        """Shape (columns,)."""
        return self.linear.bias[self.columns]


@dataclass(frozen=True)
class Activation:
    """A projection and the kind of GELU over it: `erf`, its definition, or `tanh`, its approximation."""

    projection: Projection
    kind: str


def whole(linear: Linear) -> Projection:
    """All columns of a projection."""
    return Projection(linear, slice(0, linear.shape[1]))


def refusal(folded: Folded, place: str, expected: str, found: str = "") -> StepError:
    """The error that says where a network is not of its architecture, and what was expected there."""
    text = f"{place}: expected {expected}{f', found {found}' if found else ''}."
    return StepError(f"is not a {folded.architecture} that this step can rebuild. {text}", where=folded.where)


def residual_addition(value: Value, folded: Folded, place: str) -> Operation | None:
    """The addition of something computed to the residual stream; None where it ends.

    Raises:
        StepError: There is more than one.
    """
    found = [
        reader
        for reader in value.readers
        if reader.op == "Add" and not any(operand.constant for operand in reader.operands)
    ]
    if len(found) > 1:
        raise refusal(folded, place, "one addition to the residual stream", str(len(found)))
    return found[0] if found else None


class PartReader:
    """Reads the parts of one block."""

    def __init__(self, folded: Folded, place: str, known: Known, kinds: tuple[str, ...]) -> None:
        """Reads in a graph.

        Args:
            folded: The graph.
            place: The block's name, for messages.
            known: What parts of earlier blocks were found to be.
            kinds: Of GELU, that the architecture has: `erf`, `tanh`.
        """
        self.folded = folded
        self.place = place
        self.known = known
        self.kinds = kinds

    def refusal(self, expected: str, found: str = "") -> StepError:
        """The error that names this block."""
        return refusal(self.folded, self.place, expected, found)

    def projection_back(self, value: Value, addition: Operation, what: str) -> Linear:
        """The projection whose result is added to a value of the residual stream."""
        branch = next((each for each in addition.operands if each is not value), value)
        linear = linear_ending_at(branch)
        if linear is None or linear.shape[1] != value.width or linear.base.output.elements != value.elements:
            made = branch.producer.op if branch.producer is not None else "an input"
            raise self.refusal(f"{what}, a MatMul or Gemm with constant weights", made)
        return linear

    def attention(
        self, end: Value, shape: tuple[int, ...], expected: str, patches: int | None, mask: Value | None = None
    ) -> tuple[tuple[Projection, Projection, Projection], Attention]:
        """Query, key and value, and what is done with them, before the output projection.

        Args:
            end: What the output projection reads.
            shape: Batch, tokens, width.
            expected: For messages.
            patches: How many tokens, the last ones, rotary positions turn; None for attention without them.
            mask: The input that may say which tokens are read: batch x tokens.
        """
        region = region_before(end, self.folded, lambda value: self._ends(value, mask))
        linears = {value: each for value, each in region.ends.items() if isinstance(each, Linear)}
        width = shape[-1]
        parts: list[tuple[Value, Projection]] = []
        for value, linear in linears.items():
            count = linear.shape[1] // width if linear.shape[1] % width == 0 else 0
            parts += [(value, Projection(linear, slice(n * width, (n + 1) * width))) for n in range(count)]
        if region.foreign is not None or len(parts) != 3:
            found = f"{len(parts)} projections" if region.foreign is None else f"{region.foreign.name!r} in it"
            raise self.refusal("attention over projections of query, key and value", found)
        if len({linear.input for linear in linears.values()}) != 1:
            raise self.refusal("query, key and value from one LayerNorm")
        feeds = [(value, projection.columns) for value, projection in parts]
        masked = mask if mask in region.ends else None
        same = behaviour.signature(region.operations, feeds, end, masked)
        if same not in self.known:
            self.known[same] = behaviour.read_attention(region.operations, feeds, end, shape, patches, masked)
        found_here = self.known[same]
        if found_here is None:
            raise self.refusal(expected, f"another computation, of {_named(region)}")
        attention, order = found_here
        query, key, values = (parts[place][1] for place in order)
        return (query, key, values), attention

    def _ends(self, value: Value, mask: Value | None) -> Any:
        return value if value is mask else linear_ending_at(value, whole_vectors=True)

    def feed_forward(self, end: Value) -> Activation:
        """The first projection of a feed-forward layer, with the GELU that the second one reads."""
        region = region_before(end, self.folded, lambda value: linear_ending_at(value, whole_vectors=True))
        how = " or ".join({"erf": "by the error function", "tanh": "by the tangent"}[kind] for kind in self.kinds)
        expected = f"a feed-forward layer of two projections with GELU ({how}) between them"
        if region.foreign is not None or len(region.ends) != 1:
            raise self.refusal(expected, f"{len(region.ends)} projections before it")
        ((value, linear),) = region.ends.items()
        kind = behaviour.gelu_kind(region.operations, value, end)
        if kind is None or kind not in self.kinds:
            raise self.refusal(expected, f"another activation, of {_named(region) or 'nothing'}")
        return Activation(whole(linear), kind)


def _named(region: Region) -> str:
    return ", ".join(sorted({operation.op for operation in region.operations}))
