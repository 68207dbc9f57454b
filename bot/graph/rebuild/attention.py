"""Writes attention with rotary positions: query, key and value apart, or packed into one tensor.

Packed, a head's columns are those of its query, its key and its value, one after the other. RotaryEmbedding turns the
first part of a head's columns and lets the rest through, and it can pair neighbouring columns in place of those half a
head apart: with the columns of query and key put into that order, the first two thirds are turned by one node and are
still a query and a key. Their products do not see the order, as long as both have the same. So a projection, a
rotation, a Reshape with a constant shape, and MultiHeadAttention are the whole attention, and nothing is split.

No CPU kernel reads packed queries, keys and values. `split` is the same graph but for the last step: the three are
gathered out of the packed tensor, whole, and given one by one. Each number is computed as in the packed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bot.graph.rebuild.behaviour import Rotation
from bot.graph.rebuild.builder import CONTRIB, Builder
from bot.graph.rebuild.network import Block, Network
from bot.graph.rebuild.patterns import Vector
from bot.graph.rebuild.projections import Projections
from bot.graph.rebuild.reading import Projection
from bot.graph.rebuild.rounding import Normed
from bot.graph.rebuild.weights import PackedPayload
from bot.graph.tensors import FLOAT, FLOAT16

Form = Literal["separate", "packed", "split"]


class AttentionWriter:
    """Writes the attention of all blocks in one form.

    Attributes:
        rows: The normed tokens are given as rows, without an axis for the batch; for packed and split.
    """

    def __init__(self, projections: Projections, network: Network, form: Form, batch: int | str) -> None:
        """Writes into the graph of the projections.

        Args:
            projections: How projections are written.
            network: What is read.
            form: How query, key and value are given to MultiHeadAttention.
            batch: What the graph calls its batch.
        """
        self.projections = projections
        self.builder: Builder = projections.builder
        self.network = network
        self.form = form
        self.batch = batch
        self.rows = False
        self.elem = FLOAT16 if projections.half else FLOAT

    def write(self, block: Block, name: str, asking: Normed, normed: Normed) -> str:
        """Writes one block's attention, without its output projection; the bias of the values is left out.

        Args:
            block: The block.
            name: Of the block.
            asking: The normed tokens that ask: all, or the class token, which has no position to turn by.
            normed: All normed tokens.
        """
        every = asking.name == normed.name
        if self.form == "separate":
            inputs = self._separate(block, name, asking, normed, every)
        elif every:
            parts = (block.query, block.key, block.value)
            inputs = self._packed(block, f"{name}/qkv", parts, normed)
        else:
            query = self._asking_alone(block, f"{name}/query", asking)
            inputs = [query, *self._packed(block, f"{name}/kv", (block.key, block.value), normed)]
        attention = block.attention
        attributes: dict[str, Any] = {"num_heads": attention.heads}
        if attention.scale != (self.network.width / attention.heads) ** -0.5:
            attributes["scale"] = attention.scale
        kind = (self.elem, [self.batch, self.network.tokens if every else 1, self.network.width])
        return self.builder.node("MultiHeadAttention", inputs, f"{name}/attention", kind, domain=CONTRIB, **attributes)

    # --- apart -------------------------------------------------------------------------------------------------------

    def _separate(self, block: Block, name: str, asking: Normed, normed: Normed, every: bool) -> list[str]:
        query = self.projections.biased(block.query, f"{name}/query", asking)
        # A key without a bias gets none for the sake of its mean: that would be a node more.
        plain = normed if block.key.bias.any() or normed.rest is not None else replace(normed, mean=None)
        key = self.projections.biased(block.key, f"{name}/key", plain)
        rotation = block.attention.rotation
        if rotation is not None:
            tables = self._tables(rotation)
            key = self._rotate(block, f"{name}/key_rotary", key, tables)
            if every:
                query = self._rotate(block, f"{name}/query_rotary", query, tables)
        return [query, key, self.projections.product(block.value, f"{name}/value", normed)]

    def _tables(self, rotation: Rotation) -> tuple[NDArray[Any], NDArray[Any]]:
        """Cosines and sines, tokens x half a head; tokens without a position are turned by nothing."""
        still = len(self.network.prefix), rotation.cos.shape[1]
        cos = np.concatenate([np.ones(still), rotation.cos]).astype(self.projections.dtype)
        sin = np.concatenate([np.zeros(still), rotation.sin]).astype(self.projections.dtype)
        return cos, sin

    def _rotate(
        self,
        block: Block,
        name: str,
        value: str,
        tables: tuple[NDArray[Any], NDArray[Any]],
        parts: int = 1,
        **attributes: Any,
    ) -> str:
        builder = self.builder
        inputs = [
            value,
            builder.array("rotary/start", np.zeros(1, np.int64)),
            builder.array("rotary/cos", tables[0]),
            builder.array("rotary/sin", tables[1]),
        ]
        kind = (self.elem, [self.batch, self.network.tokens, parts * self.network.width])
        heads = block.attention.heads
        return builder.node("RotaryEmbedding", inputs, name, kind, domain=CONTRIB, num_heads=heads, **attributes)

    # --- packed ------------------------------------------------------------------------------------------------------

    def _packed(self, block: Block, name: str, parts: Sequence[Projection], normed: Normed) -> list[str]:
        """Query, key and value, or key and value, as MultiHeadAttention reads them."""
        projections, heads = self.projections, block.attention.heads
        head = self.network.width // heads
        order = _packed_columns(heads, head, len(parts))
        payload = PackedPayload(tuple(projections.payload(part, name, normed) for part in parts), order)
        turned = [projections.bias(part, normed) for part in parts[:-1]]
        bias = np.concatenate([*turned, np.zeros(self.network.width)])[order]
        packed = self._product(name, normed.name, self.builder.matrix(f"{name}/weight", payload), bias)
        rotation = block.attention.rotation
        if rotation is not None:
            cos, sin = (np.tile(table, (1, len(turned))) for table in self._tables(rotation))
            turns: dict[str, Any] = {"interleaved": 1, "rotary_embedding_dim": len(turned) * head}
            packed = self._rotate(block, f"{name}_rotary", packed, (cos, sin), len(parts), **turns)
        shape = np.array([-1, self.network.tokens, heads, len(parts), head], np.int64)
        packed = self.builder.node("Reshape", [packed, self.builder.array(f"{name}/heads", shape)], f"{name}_heads")
        if self.form == "packed":
            return [packed]
        return [self._part(packed, f"{name}_part_{number}", number) for number in range(len(parts))]

    def _product(self, name: str, value: str, weight: str, bias: Vector) -> str:
        """A product and its bias, with an axis for the batch. Rows take the bias in the same node."""
        builder = self.builder
        if not self.rows:
            return self.projections.add(builder.node("MatMul", [value, weight], name), name, bias)
        if bias.any():
            constant = builder.array(f"{name}/bias", bias.astype(self.projections.dtype))
            made = builder.node("Gemm", [value, weight, constant], name)
        else:
            made = builder.node("MatMul", [value, weight], name)
        shape = np.array([-1, self.network.tokens, len(bias)], np.int64)
        return builder.node("Reshape", [made, builder.array(f"{name}/tokens", shape)], f"{name}_tokens")

    def _part(self, packed: str, name: str, number: int) -> str:
        """One of those that are packed, on its own: batch x tokens x width."""
        index = self.builder.array(f"constant/part_{number}", np.array(number, np.int64))
        taken = self.builder.node("Gather", [packed, index], name, axis=3)
        shape = np.array([-1, self.network.tokens, self.network.width], np.int64)
        return self.builder.node("Reshape", [taken, self.builder.array("tokens/shape", shape)], f"{name}_whole")

    def _asking_alone(self, block: Block, name: str, asking: Normed) -> str:
        """The class token's query: it is not turned, but its columns have to be in the order of the packed keys'."""
        heads = block.attention.heads
        order = _in_pairs(heads, self.network.width // heads)
        payload = PackedPayload((self.projections.payload(block.query, name, asking),), order)
        query = self.builder.node("MatMul", [asking.name, self.builder.matrix(f"{name}/weight", payload)], name)
        return self.projections.add(query, name, self.projections.bias(block.query, asking)[order])


def _in_pairs(heads: int, head: int) -> NDArray[np.int64]:
    """The columns of all heads, those that are turned together beside each other: 0, half, 1, half + 1, …"""
    pairs = np.arange(head).reshape(2, head // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * head + pairs).reshape(-1)


def _packed_columns(heads: int, head: int, parts: int) -> NDArray[np.int64]:
    """The columns of parts side by side in the order head, part, number; the last part, the value, is not turned."""
    width = heads * head
    columns = np.empty((heads, parts, head), np.int64)
    for part in range(parts):
        plain = np.arange(width) if part == parts - 1 else _in_pairs(heads, head)
        columns[:, part] = part * width + plain.reshape(heads, head)
    return columns.reshape(-1)
