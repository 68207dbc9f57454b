"""Reads a BERT out of a folded graph: its embeddings, its mask and its blocks, all found by structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.graph.rebuild.behaviour import Attention
from bot.graph.rebuild.folding import Folded, Operation, Value, evaluate
from bot.graph.rebuild.patterns import Norm, Region, norm_ending_at, region_before
from bot.graph.rebuild.reading import Activation, Known, PartReader, Projection, refusal, residual_addition, whole
from bot.graph.tensors import FLOAT

_EMBEDDING_OPERATORS = frozenset({"Add", "Expand", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_INTEGERS = (6, 7)
"""int32 and int64."""

_MOST_TABLES = 3
"""Of words, positions and token types."""

_NOISE = 1e-5
"""How far sums of three embeddings may differ by the order in which they are added, against the largest."""


@dataclass(frozen=True)
class Lookup:
    """Rows of a constant table, chosen by numbers that the model is given.

    Attributes:
        ids: Batch x tokens.
        table: Rows x width.
        base: The Gather.
    """

    ids: Value
    table: Value
    base: Operation


@dataclass(frozen=True)
class Layer:
    """One block: attention, feed-forward layer, and the norm that follows each."""

    query: Projection
    key: Projection
    value: Projection
    attention: Attention
    output: Projection
    first_norm: Norm
    up: Activation
    down: Projection
    second_norm: Norm


@dataclass(frozen=True)
class Encoder:
    """A BERT.

    Attributes:
        words: The embedding of words.
        types: That of token types, if they are an input; else it is part of the positions.
        positions: What is added to a word's embedding at each position: positions x width.
        position_ids: Batch x tokens: which row of them each token gets; None where that is its place in the text.
        norm: Of the embeddings.
        layers: In order.
        mask: The input that says which tokens are read, if there is one.
        hidden: The normed values in front of the first block and after each.
        inside: Other values of the network, which nothing else may read.
    """

    words: Lookup
    types: Lookup | None
    positions: NDArray[np.float32]
    position_ids: Value | None
    norm: Norm
    layers: list[Layer]
    mask: Value | None
    hidden: list[Value]
    inside: frozenset[Value]

    @property
    def width(self) -> int:
        """Of the residual stream."""
        return self.hidden[0].width


def read_encoder(folded: Folded, other: Folded | None) -> Encoder:
    """Reads the network.

    Args:
        folded: The graph.
        other: The graph at another length of texts, if that is free.

    Raises:
        StepError: Something is not as in a BERT; the error names the block and what was expected there.
    """
    embedding = _Embedding(folded)
    positions = embedding.positions(None if other is None else _Embedding(other))
    lookups = [*embedding.lookups, *embedding.fixed]
    mask = _mask(folded, lookups)
    value = embedding.end
    layers: list[Layer] = []
    hidden, inside = [value], [embedding.norm.input, *(lookup.base.output for lookup in lookups)]
    known: Known = {}
    while (addition := residual_addition(value, folded, f"block {len(layers)}")) is not None:
        reader = _LayerReader(folded, f"block {len(layers)}", embedding.ends, mask, known)
        layer, middle, value = reader.read(value, addition)
        layers.append(layer)
        inside += [layer.first_norm.input, layer.second_norm.input, middle]
        hidden.append(value)
    if not layers:
        raise refusal(folded, "block 0", "attention, and its addition to the normed embeddings")
    if len({layer.attention for layer in layers}) > 1:
        raise refusal(folded, "blocks", "the same heads, scale and mask in all of them")
    read = mask if mask is not None and layers[0].attention.masked else None
    chosen = embedding.places.ids if embedding.places else None
    words, types = embedding.words, embedding.types
    return Encoder(words, types, positions, chosen, embedding.norm, layers, read, hidden, frozenset(inside))


class _Norms:
    """All LayerNorms of a graph, by what they read."""

    def __init__(self, folded: Folded) -> None:
        self._outputs = set(folded.outputs.values())
        self._found: dict[Value, dict[Value, Norm]] = {}
        for operation in folded.operations:
            norm = norm_ending_at(operation.output) if operation.outputs else None
            if norm is not None and norm.input.shape == operation.output.shape:
                self._found.setdefault(norm.input, {})[operation.output] = norm

    def __iter__(self) -> Iterator[Value]:
        return iter(self._found)

    def after(self, value: Value) -> tuple[Value, Norm] | None:
        """The norm of a value, and where it ends: behind its gain and bias, if they are operations of their own."""
        ends = self._found.get(value)
        if ends is None:
            return None
        end = next(iter(ends))
        while end not in self._outputs and len(end.readers) == 1 and end.readers[0].output in ends:
            end = end.readers[0].output
        return end, ends[end]


class _Embedding:
    """The embeddings, their sum and its norm."""

    def __init__(self, folded: Folded) -> None:
        self.folded = folded
        self.ends = _Norms(folded)
        expected = "embeddings of words, positions and token types, added, in front of a LayerNorm"
        for value in self.ends:
            region = region_before(value, folded, _lookup_at)
            if len(value.sizes) == 3 and region.ends and region.foreign is None:
                break
        else:
            raise refusal(folded, "embeddings", expected, "no Gather of token ids from a constant table")
        strange = sorted({operation.op for operation in region.operations} - _EMBEDDING_OPERATORS)
        found: list[Lookup] = list(region.ends.values())
        # Out of a table of one row only that one can be chosen, whatever chooses.
        self.fixed = [each for each in found if each.table.sizes[0] == 1]
        self.lookups = [each for each in found if each.table.sizes[0] != 1]
        fits = 1 <= len(self.lookups) <= _MOST_TABLES and all(each.table.width == value.width for each in found)
        if strange or not fits:
            what = ", ".join(strange) or f"{len(found)} tables of ids, {found[0].table.width} wide"
            raise refusal(folded, "embeddings", expected, what)
        self.region: Region = region
        self.value = value
        self.end, self.norm = self._normed(expected)
        self.sum = self._constant_part()
        self.words, self.places, self.types = self._parts(expected)

    def _parts(self, expected: str) -> tuple[Lookup, Lookup | None, Lookup | None]:
        """The embedding of words, of positions if those are chosen by ids, and of token types.

        All are added, so that it changes nothing which is called which. What is chosen by an input as it stands is
        taken for words: the ids of positions are computed from it where padding is not counted.
        """
        ranked = sorted(self.lookups, key=lambda each: (len(_sources(each.ids)), -each.table.sizes[0]))
        words, others = ranked[0], sorted(ranked[1:], key=lambda each: -each.table.sizes[0])
        level = not (self.sum != self.sum[:1]).any()
        places = others.pop(0) if level and others else None
        if len(others) > 1:
            raise refusal(self.folded, "embeddings", expected, f"{len(self.lookups)} tables of ids besides positions")
        return words, places, others[0] if others else None

    def _normed(self, expected: str) -> tuple[Value, Norm]:
        found = self.ends.after(self.value)
        if found is None:
            raise refusal(self.folded, "embeddings", expected, "no LayerNorm")
        return found

    def _constant_part(self) -> NDArray[np.float64]:
        """What is added to the embeddings that are looked up: tokens x width."""
        feeds = {lookup.base.output: np.zeros(lookup.base.output.sizes, np.float32) for lookup in self.lookups}
        for lookup in self.fixed:
            feeds[lookup.base.output] = np.broadcast_to(lookup.table.read()[0], lookup.base.output.sizes)
        (found,) = evaluate(self.region.operations, feeds, [self.value])
        if (found != found[:1]).any():
            raise refusal(self.folded, "embeddings", "the same positions for every text")
        ones = feeds | {each.base.output: np.ones(each.base.output.sizes, np.float32) for each in self.lookups}
        (plain,) = evaluate(self.region.operations, ones, [self.value])
        if np.abs(plain - found - len(self.lookups)).max() > 1e-3:
            raise refusal(self.folded, "embeddings", "embeddings that are added and not scaled")
        part: NDArray[np.float64] = found[0].astype(np.float64)
        return part

    def positions(self, other: _Embedding | None) -> NDArray[np.float32]:
        """What is added at each position, for texts of any length: positions x width.

        It is a table of positions, read from its start or where ids say, and what is added besides at all of them, such
        as the embedding of the only token type.
        """
        if self.places is not None:
            chosen: NDArray[np.float32] = (self.places.table.read().astype(np.float64) + self.sum[0]).astype(np.float32)
            return chosen
        free = other is not None and len(other.sum) != len(self.sum)
        sums = [self.sum, other.sum] if free and other is not None else [self.sum]
        needed = max(len(each) for each in sums)
        scale = max(float(np.abs(each).max()) for each in sums)
        for table in self._tables(needed):
            rest = (self.sum - table[: len(self.sum)]).mean(axis=0)
            if all(np.abs(each - table[: len(each)] - rest).max() <= _NOISE * scale for each in sums):
                whole_table: NDArray[np.float32] = (table + rest).astype(np.float32)
                return whole_table
        if free:
            raise refusal(self.folded, "embeddings", "a constant table of positions that is read from its start")
        return self.sum.astype(np.float32)

    def _tables(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """Constant matrices of at least so many rows, out of which what is added may have been read."""
        waiting = [each for operation in self.region.operations for each in operation.operands if each.constant]
        seen = set(waiting)
        while waiting:
            value = waiting.pop()
            sizes = tuple(size for size in value.sizes if size != 1)
            if value.elem == FLOAT and len(sizes) == 2 and sizes[0] >= rows and sizes[1] == self.value.width:
                yield value.read().astype(np.float64).reshape(sizes)
            new = [each for each in (value.producer.operands if value.producer else []) if each not in seen]
            seen.update(new)
            waiting += new


def _lookup_at(value: Value) -> Lookup | None:
    """The Gather of rows of a constant table that ends here."""
    gather = value.producer
    if gather is None or gather.op != "Gather" or gather.attributes.get("axis", 0) != 0 or len(gather.operands) != 2:
        return None
    table, ids = gather.operands
    plain = table.constant and table.elem == FLOAT and len(table.sizes) == 2 and not ids.constant
    return Lookup(ids, table, gather) if plain and ids.elem in _INTEGERS and len(ids.sizes) == 2 else None


def _mask(folded: Folded, lookups: list[Lookup]) -> Value | None:
    """The input that may say which tokens are read: the one of their shape that nothing is looked up by."""
    shape = lookups[0].ids.shape
    taken = {value for lookup in lookups for value in _sources(lookup.ids)}
    found = [value for value in folded.inputs if value.shape == shape and value not in taken and value.readers]
    if len(found) > 1:
        names = ", ".join(repr(value.name) for value in found)
        raise refusal(folded, "mask", "one input that says which tokens are read", names)
    return found[0] if found else None


def _sources(value: Value) -> set[Value]:
    """All that a value is computed from, and itself."""
    found, waiting = {value}, [value]
    while waiting:
        producer = waiting.pop().producer
        new = {operand for operand in (producer.operands if producer else []) if operand not in found}
        found |= new
        waiting += new
    return found


class _LayerReader:
    """Reads one block."""

    def __init__(self, folded: Folded, place: str, norms: _Norms, mask: Value | None, known: Known) -> None:
        self.norms = norms
        self.mask = mask
        self.parts = PartReader(folded, place, known, ("erf", "tanh"))

    def read(self, value: Value, addition: Operation) -> tuple[Layer, Value, Value]:
        """Reads the block that begins at a normed value.

        Returns:
            The block, the normed value after its attention, and that after it.
        """
        parts = self.parts
        output = parts.projection_back(value, addition, "attention's output projection")
        expected = "softmax attention over the tokens that the mask leaves"
        projections, core = parts.attention(output.input, value.sizes, expected, None, self.mask)
        if projections[0].linear.input is not value:
            raise parts.refusal("query, key and value of what attention is added to")
        middle, first = self._normed(addition.output, "a LayerNorm behind attention")
        second_addition = residual_addition(middle, parts.folded, parts.place)
        if second_addition is None:
            raise parts.refusal("a feed-forward layer that is added to what it reads")
        down = parts.projection_back(middle, second_addition, "the feed-forward layer's second projection")
        up = parts.feed_forward(down.input)
        if up.projection.linear.input is not middle:
            raise parts.refusal("a feed-forward layer of what it is added to")
        end, second = self._normed(second_addition.output, "a LayerNorm behind the feed-forward layer")
        return Layer(*projections, core, whole(output), first, up, whole(down), second), middle, end

    def _normed(self, value: Value, what: str) -> tuple[Value, Norm]:
        found = self.norms.after(value)
        if found is None:
            reads = ", ".join(sorted({reader.op for reader in value.readers})) or "nothing"
            raise self.parts.refusal(what, reads)
        return found
