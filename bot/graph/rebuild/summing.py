"""Writes a vision transformer whose float16 residual stream is rounded once in several blocks.

Every addition to a stream in float16 rounds it, and what a block adds is small beside it: after twenty-four blocks most
of the error is that of forty-eight roundings. Here the stream stays as it is for several blocks. What they add is
summed by itself, in the products that make it: a Gemm takes the sum so far as its C, adds in float32 and rounds once,
to the precision of the sum and not of the stream. Each norm reads both, adding them in float32 too; the last norm of a
group also gives their sum, which is the next group's stream. Biases are added up while the graph is written.

The first block is written as ever, and the first group begins behind it: where a network writes very large values, it
does so early, and sums that held them would have no precision left.

A Gemm wants rows, so tokens have no axis for the batch between the second block and the last. That costs a block one
node: two Reshapes more, and one addition of a bias less.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bot.graph.rebuild.network import Block
from bot.graph.rebuild.patterns import Norm, Vector
from bot.graph.rebuild.rounding import Normed
from bot.graph.rebuild.vision import Before, VisionWriter


class SummingWriter(VisionWriter):
    """Writes the network up to the final norm."""

    def __init__(self, *given: Any) -> None:
        """Takes what `VisionWriter` takes."""
        super().__init__(*given)
        width = self.network.width
        self.rows = False
        self.norms = 0
        self.sum = ""
        self.waiting: Vector = np.zeros(width)
        self.flat: set[str] = set()
        self.last_norms = 2 * len(self.network.blocks) - 2 if self.head.class_only else 2 * len(self.network.blocks)

    # --- groups ------------------------------------------------------------------------------------------------------

    def _norm(self, norm: Norm, name: str, before: Before) -> tuple[Normed, str]:
        number, self.norms = self.norms, self.norms + 1
        stream, branch, added = before
        bias = self.waiting + (0 if added is None else added)
        if not self._ends_group(number):
            self.sum, self.waiting = branch, bias
            return self._noted(self._normed(norm, name, (stream, branch, bias), [])), stream
        total = self.builder.fresh(f"{name}/stream")
        normed = self._noted(self._normed(norm, name, (stream, branch, bias), [total]))
        # What rounding the bias left out of the stream is part of the next bias.
        self.sum, self.waiting = "", bias - bias.astype(np.float16)
        if self.rows:
            self.flat.add(total)
        elif number == 2 and number < self.last_norms:
            total = self._as_rows(total, f"{name}/stream_rows")
            self.rows = True
        return normed, total

    def _ends_group(self, number: int) -> bool:
        """Whether the stream takes in the sum at this norm, of which there are two a block."""
        within = number - 2
        return within <= 0 or within % (2 * self.parameters.residual_every) == 0 or number >= self.last_norms

    def _noted(self, normed: Normed) -> Normed:
        if self.rows:
            self.flat.add(normed.name)
        return normed

    def _product(self, name: str, value: str, weight: str, apart: Vector | None) -> str:
        if not self.sum or apart is not None:
            made = super()._product(name, value, weight, apart)
            return self.builder.node("Add", [self.sum, made], f"{name}/sum") if self.sum else made
        return self.builder.node("Gemm", [value, weight, self.sum], name)

    def _final_norm(self, stream: str, branch: str, bias: Vector | None) -> str:
        if self.rows:
            stream, branch = (self._as_tokens(each, f"norm/{each}") for each in (stream, branch))
        return super()._final_norm(stream, branch, self.waiting + (0 if bias is None else bias))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _attend(self, block: Block, name: str, asking: Normed, normed: Normed) -> str:
        self.attention.rows = normed.name in self.flat
        mixed = super()._attend(block, name, asking, normed)
        return self._as_rows(mixed, f"{name}/attention_rows") if self.rows else mixed

    def _first_token(self, value: str, name: str, elem: int) -> str:
        if value in self.flat:
            value = self._as_tokens(value, f"{name}_tokens")
            self.rows = False
        return super()._first_token(value, name, elem)

    def _kind(self, elem: int, width: int) -> tuple[int, list[int | str]]:
        if not self.rows:
            return super()._kind(elem, width)
        return elem, [self.batch * self.count if isinstance(self.batch, int) else "rows", width]

    def _as_rows(self, value: str, name: str) -> str:
        shape = np.array([-1, self.network.width], np.int64)
        return self.builder.node("Reshape", [value, self.builder.array("rows/shape", shape)], name)

    def _as_tokens(self, value: str, name: str) -> str:
        shape = np.array([-1, self.network.tokens, self.network.width], np.int64)
        return self.builder.node("Reshape", [value, self.builder.array("tokens/shape", shape)], name)
