"""Reads a vision transformer out of a folded graph: its patch embedding, tokens and blocks, all found by structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.graph.rebuild.behaviour import Attention
from bot.graph.rebuild.folding import Folded, Operation, Value, evaluate
from bot.graph.rebuild.patterns import Norm, norm_ending_at, region_before
from bot.graph.rebuild.reading import Known, PartReader, Projection, refusal, residual_addition, whole
from bot.graph.tensors import FLOAT

_TOKEN_OPERATORS = frozenset(
    {"Add", "Cast", "Concat", "Expand", "Flatten", "Gather", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
    | {"Unsqueeze"}
)
"""What may stand between the patches and the first norm: what moves numbers, and additions."""


@dataclass(frozen=True)
class Architecture:
    """What tells one vision transformer from another.

    Attributes:
        name: For messages.
        rotary: The patches have rotary positions; without, positions are added to the tokens.
        activations: The kinds of GELU that it has.
        whole_model: The picture is an input of the model; without, it may be computed from one.
    """

    name: str
    rotary: bool
    activations: tuple[str, ...]
    whole_model: bool


DINOV3 = Architecture("DINOv3", rotary=True, activations=("erf",), whole_model=True)
DINOV2 = Architecture("DINOv2", rotary=False, activations=("erf", "tanh"), whole_model=False)


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
    activation: str
    down: Projection


@dataclass(frozen=True)
class Network:
    """A vision transformer.

    Attributes:
        picture: What the patch embedding reads.
        convolution: The patch embedding.
        table: What is added to the patches and the empty rows in front of them, without the convolution's bias: class
            token, registers and, where they are added, positions. Tokens x width.
        patches: Number of patches.
        width: Of the residual stream.
        blocks: In order.
        stream: The residual stream in front of the first block and after each.
        inside: All values of the residual stream.
    """

    picture: Value
    convolution: Operation
    table: NDArray[np.float32]
    patches: int
    width: int
    blocks: list[Block]
    stream: list[Value]
    inside: frozenset[Value]

    @property
    def last(self) -> Value:
        """The residual stream after the last block."""
        return self.stream[-1]

    @property
    def tokens(self) -> int:
        """Class token, registers and patches."""
        return len(self.table)

    @property
    def prefix(self) -> NDArray[np.float32]:
        """The rows of the table in front of the patches."""
        return self.table[: self.tokens - self.patches]


def read_network(folded: Folded, architecture: Architecture) -> Network:
    """Reads the network.

    Raises:
        StepError: Something is not as in that architecture; the error names the block and what was expected.
    """
    convolution = _patch_embedding(folded, architecture)
    patches = convolution.output.sizes[2] * convolution.output.sizes[3]
    width = convolution.output.sizes[1]
    value = _first_tokens(convolution, width, patches, folded)
    table = _table(convolution, value, patches, folded)
    if architecture.rotary and table[len(table) - patches :].any():
        raise refusal(folded, "tokens", "patches to which nothing is added", "a table of positions")
    blocks: list[Block] = []
    known: Known = {}
    stream, inside = [value], [value]
    while (addition := residual_addition(value, folded, _block(len(blocks)))) is not None:
        reader = _BlockReader(folded, _block(len(blocks)), architecture, patches, known)
        middle, value, block = reader.read(value, addition)
        blocks.append(block)
        stream.append(value)
        inside += [middle, value]
    if not blocks:
        raise refusal(folded, "block 0", "a LayerNorm, attention, and an addition to the residual stream")
    picture = convolution.operands[0]
    return Network(picture, convolution, table, patches, width, blocks, stream, frozenset(inside))


def _block(number: int) -> str:
    return f"block {number}"


def _patch_embedding(folded: Folded, architecture: Architecture) -> Operation:
    reads = "the picture, a float32 input," if architecture.whole_model else "a float32 picture"
    expected = f"one Conv that reads {reads} with its kernel as its stride and no padding"
    found = [each for each in folded.operations if each.op == "Conv"]
    if not architecture.whole_model:
        found = [each for each in found if _is_patch_embedding(each)]
        behind = {value for each in found for value in _after(each.output, folded)}
        found = [each for each in found if each.output not in behind]  # a decoder may have one that looks like it
    if len(found) != 1:
        raise refusal(folded, "patch embedding", expected, f"{len(found)} of them")
    (convolution,) = found
    from_input = convolution.operands[0] in folded.inputs or not architecture.whole_model
    if not from_input or not _is_patch_embedding(convolution):
        raise refusal(folded, "patch embedding", expected)
    if convolution.output.shape is None:
        raise refusal(folded, "patch embedding", "a picture of fixed height and width")
    return convolution


def _is_patch_embedding(convolution: Operation) -> bool:
    attributes, weight = convolution.attributes, convolution.operands[1]
    return (
        convolution.operands[0].elem == FLOAT
        and all(value.constant for value in convolution.operands[1:])
        and len(weight.sizes) == 4
        and max(weight.sizes[2:]) > 1
        and list(attributes.get("strides", [1, 1])) == list(weight.sizes[2:])
        and not any(attributes.get("pads", []))
        and attributes.get("group", 1) == 1
        and all(size == 1 for size in attributes.get("dilations", []))
        and attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    )


def _first_tokens(convolution: Operation, width: int, patches: int, folded: Folded) -> Value:
    """Where the residual stream begins: the tokens that the first LayerNorm reads."""
    batch = convolution.output.sizes[0]
    expected = "class token, registers and patches as tokens, in front of a LayerNorm"
    for value in _after(convolution.output, folded):
        norm = norm_ending_at(value) if len(value.sizes) == 3 and value.width == width else None
        if norm is None or norm.input.shape != value.shape or norm.input.constant:
            continue
        tokens = norm.input
        if tokens.sizes[0] != batch or tokens.sizes[1] <= patches:
            raise refusal(folded, "tokens", expected, f"the shape {tokens.shape} for {patches} patches")
        return tokens
    raise refusal(folded, "tokens", expected, "no LayerNorm")


def _after(value: Value, folded: Folded) -> Iterator[Value]:
    """What is computed from a value, in the order of the graph."""
    reached = {value}
    for operation in folded.operations:
        if any(operand in reached for operand in operation.operands):
            reached.update(operation.outputs)
            yield from operation.outputs


def _table(convolution: Operation, tokens: Value, patches: int, folded: Folded) -> NDArray[np.float32]:
    """What the tokens are where the patches are zero; they have to be the patches, in reading order, added to it."""
    patch = convolution.output
    region = region_before(tokens, folded, lambda value: value if value is patch else None)
    strange = sorted({each.op for each in region.operations} - _TOKEN_OPERATORS)
    expected = "a class token, registers and positions, all constant, and the patches, put together"
    if region.foreign is not None or strange or patch not in region.ends:
        found = ", ".join(strange) or "another input"
        raise refusal(folded, "tokens", expected, found)
    (table,) = evaluate(region.operations, {patch: np.zeros(patch.sizes, np.float32)}, [tokens])
    if (table != table[:1]).any():
        raise refusal(folded, "tokens", "the same class token and registers for every picture")
    batch, width = patch.sizes[:2]
    numbers = np.random.default_rng(0).integers(1, 1 << 20, patch.sizes).astype(np.float32)
    (placed,) = evaluate(region.operations, {patch: numbers}, [tokens])
    rows = numbers.reshape(batch, width, patches).transpose(0, 2, 1)
    first = table.shape[1] - patches
    if not np.array_equal(placed, table + np.pad(rows, ((0, 0), (first, 0), (0, 0)))):
        raise refusal(folded, "patch embedding", "patches as the last tokens, in reading order", "another order")
    found_table: NDArray[np.float32] = table[0].astype(np.float32)
    return found_table


class _BlockReader:
    """Reads one block."""

    def __init__(self, folded: Folded, place: str, architecture: Architecture, patches: int, known: Known) -> None:
        self.folded = folded
        self.place = place
        self.patches = patches if architecture.rotary else None
        self.parts = PartReader(folded, place, known, architecture.activations)

    def read(self, value: Value, addition: Operation) -> tuple[Value, Value, Block]:
        """Reads the block that begins at a value of the residual stream.

        Returns:
            The stream after its attention, the stream after the block, and the block.
        """
        output = self.parts.projection_back(value, addition, "attention's output projection")
        where = "with rotary positions on the patches alone" if self.patches else "over all tokens"
        projections, core = self.parts.attention(output.input, value.sizes, f"softmax attention {where}", self.patches)
        first = self._norm(projections[0].linear.input, value, "the LayerNorm in front of attention")
        middle = addition.output
        second_addition = residual_addition(middle, self.folded, self.place)
        if second_addition is None:
            raise self.parts.refusal("a feed-forward layer that is added to the residual stream")
        down = self.parts.projection_back(middle, second_addition, "the feed-forward layer's second projection")
        up = self.parts.feed_forward(down.input)
        second = self._norm(up.projection.linear.input, middle, "the LayerNorm in front of the feed-forward layer")
        block = Block(first, *projections, core, whole(output), second, up.projection, up.kind, whole(down))
        return middle, second_addition.output, block

    def _norm(self, normed: Value, value: Value, what: str) -> Norm:
        norm = norm_ending_at(normed)
        if norm is None or norm.input is not value:
            made = normed.producer.op if normed.producer is not None else "an input"
            raise self.parts.refusal(f"{what}, over the residual stream", made)
        return norm
