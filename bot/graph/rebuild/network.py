"""Reads a DINOv3 out of a folded graph: its patch embedding, tokens, blocks and final norm, all found by structure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.rebuild import behaviour
from bot.graph.rebuild.behaviour import Attention
from bot.graph.rebuild.folding import Folded, Operation, Value, evaluate
from bot.graph.rebuild.patterns import Linear, Norm, linear_ending_at, norm_ending_at, region_before
from bot.graph.tensors import FLOAT

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
class Block:
    """One block: attention and feed-forward layer, each with its norm and a projection back to the residual stream."""

    first_norm: Norm
    query: Projection
    key: Projection
    value: Projection
    attention: Attention
    output: Projection
    second_norm: Norm
    up: Projection
    down: Projection


@dataclass(frozen=True)
class Network:
    """A DINOv3.

    Attributes:
        picture: The input.
        convolution: The patch embedding.
        prefix: The class token and the registers: prefix tokens x width.
        patches: Number of patches.
        width: Of the residual stream.
        blocks: In order.
        last: The residual stream after the last block.
        stream: All values of the residual stream.
    """

    picture: Value
    convolution: Operation
    prefix: NDArray[np.float32]
    patches: int
    width: int
    blocks: list[Block]
    last: Value
    stream: frozenset[Value]

    @property
    def tokens(self) -> int:
        """Class token, registers and patches."""
        return len(self.prefix) + self.patches


def read_network(folded: Folded) -> Network:
    """Reads the network.

    Raises:
        StepError: Something is not as in a DINOv3; the error names the block and what was expected.
    """
    convolution = _patch_embedding(folded)
    patches = convolution.output.sizes[2] * convolution.output.sizes[3]
    width = convolution.output.sizes[1]
    tokens = _tokens(convolution, width, patches, folded)
    prefix = _prefix(tokens, patches, folded)
    blocks: list[Block] = []
    known: Known = {}
    stream, value = [tokens.output], tokens.output
    while (addition := _residual_addition(value, folded, _block(len(blocks)))) is not None:
        reader = _BlockReader(folded, _block(len(blocks)), patches, known)
        middle, end, block = reader.read(value, addition)
        blocks.append(block)
        stream += [middle, end]
        value = end
    if not blocks:
        raise _refusal(folded, "block 0", "a LayerNorm, attention, and an addition to the residual stream")
    picture = convolution.operands[0]
    return Network(picture, convolution, prefix, patches, width, blocks, value, frozenset(stream))


def _block(number: int) -> str:
    return f"block {number}"


def _refusal(folded: Folded, place: str, expected: str, found: str = "") -> StepError:
    text = f"{place}: expected {expected}{f', found {found}' if found else ''}."
    return StepError(f"is not a DINOv3 that this step can rebuild. {text}", where=folded.where)


def _patch_embedding(folded: Folded) -> Operation:
    expected = "one Conv that reads the picture, a float32 input, with its kernel as its stride and no padding"
    found = [each for each in folded.operations if each.op == "Conv"]
    if len(found) != 1:
        raise _refusal(folded, "patch embedding", expected, f"{len(found)} of them")
    (convolution,) = found
    attributes, weight = convolution.attributes, convolution.operands[1]
    plain = (
        convolution.operands[0] in folded.inputs
        and convolution.operands[0].elem == FLOAT
        and all(value.constant for value in convolution.operands[1:])
        and len(weight.sizes) == 4
        and list(attributes.get("strides", [1, 1])) == list(weight.sizes[2:])
        and not any(attributes.get("pads", []))
        and attributes.get("group", 1) == 1
        and all(size == 1 for size in attributes.get("dilations", []))
        and attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    )
    if not plain:
        raise _refusal(folded, "patch embedding", expected)
    if convolution.output.shape is None:
        raise _refusal(folded, "patch embedding", "a picture of fixed height and width")
    return convolution


def _tokens(convolution: Operation, width: int, patches: int, folded: Folded) -> Operation:
    """The Concat that puts class token and registers in front of the patches."""
    value, path = convolution.output, []
    while len(value.readers) == 1 and value.readers[0].op in ("Reshape", "Flatten", "Transpose", "Squeeze"):
        path.append(value.readers[0])
        value = value.readers[0].output
    batch = convolution.output.sizes[0]
    expected = "patches as tokens in reading order (batch x patches x width)"
    if value.shape != (batch, patches, width):
        raise _refusal(folded, "patch embedding", expected, f"the shape {value.shape}")
    numbers = np.arange(batch * width * patches, dtype=np.float32).reshape(convolution.output.sizes)
    (moved,) = evaluate(path, {convolution.output: numbers}, [value]) if path else (numbers,)
    if not np.array_equal(moved, numbers.reshape(batch, width, patches).transpose(0, 2, 1)):
        raise _refusal(folded, "patch embedding", expected, "another order")
    reader = value.readers[0] if len(value.readers) == 1 else None
    while reader is not None and reader.op == "Concat" and len(reader.output.readers) == 1:
        outer = reader.output.readers[0]
        if outer.op != "Concat":
            break
        reader = outer
    if reader is None or reader.op != "Concat":
        raise _refusal(folded, "tokens", "a Concat of the class token, registers and patches")
    return reader


def _prefix(tokens: Operation, patches: int, folded: Folded) -> NDArray[np.float32]:
    parts = _flat_parts(tokens)
    constant = [value for value in parts[:-1] if value.constant]
    if tokens.attributes.get("axis") not in (1, -2) or len(constant) != len(parts) - 1 or not constant:
        raise _refusal(folded, "tokens", "the class token and registers, constant, in front of the patches")
    if any(len(value.sizes) != 3 for value in parts) or parts[-1].sizes[1] != patches:
        raise _refusal(folded, "tokens", "tokens of the shape batch x count x width")
    array = np.concatenate([value.read() for value in constant], axis=1)
    if (array != array[:1]).any():
        raise _refusal(folded, "tokens", "the same class token and registers for every picture")
    prefix: NDArray[np.float32] = array[0].astype(np.float32)
    return prefix


def _flat_parts(concat: Operation) -> list[Value]:
    parts: list[Value] = []
    for value in concat.operands:
        inner = value.producer
        if inner is not None and inner.op == "Concat" and not value.constant:
            parts += _flat_parts(inner)
        else:
            parts.append(value)
    return parts


def _residual_addition(value: Value, folded: Folded, place: str) -> Operation | None:
    """The addition of something computed to the residual stream."""
    found = [
        reader
        for reader in value.readers
        if reader.op == "Add" and not any(operand.constant for operand in reader.operands)
    ]
    if len(found) > 1:
        raise _refusal(folded, place, "one addition to the residual stream", str(len(found)))
    return found[0] if found else None


class _BlockReader:
    """Reads one block."""

    def __init__(self, folded: Folded, place: str, patches: int, known: Known) -> None:
        self.folded = folded
        self.place = place
        self.patches = patches
        self.known = known

    def refusal(self, expected: str, found: str = "") -> StepError:
        return _refusal(self.folded, self.place, expected, found)

    def read(self, value: Value, addition: Operation) -> tuple[Value, Value, Block]:
        """Reads the block that begins at a value of the residual stream.

        Returns:
            The stream after its attention, the stream after the block, and the block.
        """
        output = self._projection_back(value, addition, "attention's output projection")
        projections, core = self._attention(output.input, value.sizes)
        normed = projections[0].linear.input
        first = self._norm(normed, value, "the LayerNorm in front of attention")
        middle = addition.output
        second_addition = _residual_addition(middle, self.folded, self.place)
        if second_addition is None:
            raise self.refusal("a feed-forward layer that is added to the residual stream")
        down = self._projection_back(middle, second_addition, "the feed-forward layer's second projection")
        up = self._feed_forward(down.input)
        second = self._norm(up.input, middle, "the LayerNorm in front of the feed-forward layer")
        block = Block(first, *projections, core, _whole(output), second, _whole(up), _whole(down))
        return middle, second_addition.output, block

    def _projection_back(self, value: Value, addition: Operation, what: str) -> Linear:
        branch = next((each for each in addition.operands if each is not value), value)
        linear = linear_ending_at(branch)
        if linear is None or linear.shape[1] != value.width or linear.base.output.elements != value.elements:
            made = branch.producer.op if branch.producer is not None else "an input"
            raise self.refusal(f"{what}, a MatMul or Gemm with constant weights", made)
        return linear

    def _norm(self, normed: Value, value: Value, what: str) -> Norm:
        norm = norm_ending_at(normed)
        if norm is None or norm.input is not value:
            made = normed.producer.op if normed.producer is not None else "an input"
            raise self.refusal(f"{what}, over the residual stream", made)
        return norm

    def _attention(
        self, end: Value, shape: tuple[int, ...]
    ) -> tuple[tuple[Projection, Projection, Projection], Attention]:
        region = region_before(end, self.folded, lambda value: linear_ending_at(value, whole_vectors=True))
        ends: list[tuple[Value, Linear]] = list(region.ends.items())
        width = end.width
        parts: list[tuple[Value, Projection]] = []
        for value, linear in ends:
            count = linear.shape[1] // width if linear.shape[1] % width == 0 else 0
            parts += [(value, Projection(linear, slice(n * width, (n + 1) * width))) for n in range(count)]
        if region.foreign is not None or len(parts) != 3:
            raise self.refusal("attention over projections of query, key and value", f"{len(parts)} projections")
        if len({linear.input for _, linear in ends}) != 1:
            raise self.refusal("query, key and value from one LayerNorm")
        feeds = [(value, projection.columns) for value, projection in parts]
        same = behaviour.signature(region.operations, feeds, end)
        if same not in self.known:
            self.known[same] = behaviour.read_attention(region.operations, feeds, end, shape, self.patches)
        found = self.known[same]
        if found is None:
            ops = ", ".join(sorted({operation.op for operation in region.operations}))
            raise self.refusal(
                "softmax attention with rotary positions on the patches alone", f"another computation, of {ops}"
            )
        attention, order = found
        query, key, values = (parts[place][1] for place in order)
        return (query, key, values), attention

    def _feed_forward(self, end: Value) -> Linear:
        region = region_before(end, self.folded, lambda value: linear_ending_at(value, whole_vectors=True))
        expected = "a feed-forward layer of two projections with GELU (by the error function) between them"
        if region.foreign is not None or len(region.ends) != 1:
            raise self.refusal(expected, f"{len(region.ends)} projections before it")
        ((value, linear),) = region.ends.items()
        if not behaviour.is_gelu(region.operations, value, end):
            ops = ", ".join(sorted({operation.op for operation in region.operations}))
            raise self.refusal(expected, f"another activation, of {ops or 'nothing'}")
        typed: Linear = linear
        return typed


def _whole(linear: Linear) -> Projection:
    return Projection(linear, slice(0, linear.shape[1]))
