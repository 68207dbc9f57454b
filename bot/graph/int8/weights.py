"""A matrix in eight bits: signed numbers, symmetric around zero, with a scale for each tile of it.

A tile is a channel, or a part of one. Its scale is the largest magnitude in it divided by 127, so that no number is
further from its rounded one than half a scale. Contents are read a few rows at a time, twice: once for the scales, and
once when the result is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bot.graph.model_file import Payload, pieces_of

Floats = NDArray[np.float32]

LEVELS = 127
"""The largest number of the grid; its negative is the smallest, so that zero is in the middle."""

_SMALLEST_SCALE = np.finfo(np.float32).tiny
"""Of a tile of zeros, or of what is next to zero: below it scales are subnormal and lose bits of their own."""

_ROWS_OF = 1 << 18
"""Elements that are rounded at a time: temporaries stay in a processor's cache."""


class Tiles(NamedTuple):
    """How a matrix is parted.

    Attributes:
        shape: Of the matrix: rows, columns.
        rows: How many rows a tile has; the last one may have fewer.
        columns: How many columns.
    """

    shape: tuple[int, int]
    rows: int
    columns: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many tiles there are from top to bottom, and from left to right."""
        return -(-self.shape[0] // self.rows), -(-self.shape[1] // self.columns)


def tiles(shape: tuple[int, int], axis: int, block: int | None) -> Tiles:
    """The tiles of a matrix with a scale for each channel, or for so many numbers of each channel.

    Args:
        shape: Of the matrix.
        axis: Along which the channels lie: 0 if each row is one, 1 if each column is.
        block: How many numbers of a channel share a scale; None for all.
    """
    length = block or shape[1 - axis]
    return Tiles(shape, *((1, length) if axis == 0 else (length, 1)))


def scales_of(pieces: Iterable[NDArray[np.uint8]], parted: Tiles) -> Floats | None:
    """Each tile's scale.

    Args:
        pieces: The matrix's float32 contents in order.
        parted: Its tiles.

    Returns:
        Shape `parted.counts`; None where a number is infinite or NaN, which no grid holds.
    """
    largest = np.zeros(parted.counts, np.float32)
    for start, rows in _rows(pieces, parted.shape[1]):
        found = np.maximum.reduceat(np.abs(rows), np.arange(0, parted.shape[1], parted.columns), axis=1)
        stop = start + len(rows)
        first = start // parted.rows
        begins = np.arange(first, -(-stop // parted.rows)) * parted.rows
        found = np.maximum.reduceat(found, np.maximum(begins - start, 0), axis=0)
        place = slice(first, first + len(begins))
        largest[place] = np.maximum(largest[place], found)
    if not np.isfinite(largest).all():
        return None
    scales: Floats = np.maximum(largest / np.float32(LEVELS), _SMALLEST_SCALE)
    return scales


@dataclass(frozen=True)
class EightBits:
    """A matrix's contents in eight bits, rounded when they are asked for.

    Attributes:
        source: Its float32 contents.
        parted: Its tiles.
        scales: One for each tile.
    """

    source: Payload
    parted: Tiles
    scales: Floats

    @property
    def length(self) -> int:
        """In bytes."""
        return self.source.length // 4

    def read(self) -> NDArray[np.uint8]:
        """All bytes."""
        return np.concatenate(list(self.pieces()))

    def pieces(self) -> Iterator[NDArray[np.uint8]]:
        """The bytes in order, whole rows at a time."""
        for _, _, rounded in self._rounded():
            yield rounded.astype(np.int8).view(np.uint8).reshape(-1)

    def squared_error(self) -> tuple[float, float]:
        """The sum of the squares of what rounding changes, and that of the numbers themselves."""
        changed = whole = 0.0
        for rows, scales, rounded in self._rounded():
            numbers = rows.astype(np.float64).reshape(-1)
            apart = (rounded * scales).astype(np.float64).reshape(-1) - numbers
            changed += float(np.dot(apart, apart))
            whole += float(np.dot(numbers, numbers))
        return changed, whole

    def _rounded(self) -> Iterator[tuple[Floats, Floats, Floats]]:
        """A few rows at a time: the numbers, the scale of each, and the whole number of scales next to each."""
        for start, rows in _rows(pieces_of(self.source), self.parted.shape[1]):
            scales = self.scales[np.arange(start, start + len(rows)) // self.parted.rows]
            if scales.shape[1] not in (1, rows.shape[1]):
                scales = np.repeat(scales, self.parted.columns, axis=1)[:, : rows.shape[1]]
            yield rows, scales, np.clip(np.rint(rows / scales), -LEVELS, LEVELS)


def _rows(pieces: Iterable[NDArray[np.uint8]], columns: int) -> Iterator[tuple[int, Floats]]:
    """Whole rows of a matrix, however its contents are cut, with the number of the first."""
    most = max(_ROWS_OF // columns, 1) * columns
    rest = np.empty(0, np.float32)
    done = 0
    for piece in pieces:
        values = piece.view("<f4")
        together = np.concatenate([rest, values]) if rest.size else values
        whole = together.size // columns * columns
        for start in range(0, whole, most):
            rows = together[start : min(start + most, whole)].reshape(-1, columns)
            yield done, rows
            done += len(rows)
        rest = together[whole:].copy()
