"""Weights of a rebuilt graph: read from the source, scaled and rounded only while the file is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.rebuild.patterns import Linear
from bot.graph.tensors import to_float16

_COARSE = 2.0**-10
"""A matrix whose rounding error, against its own size, is larger than this has lost bits to subnormal numbers."""

_SAMPLED_ROWS = 256
"""Matrices with fewer rows than this are judged by all of them."""


@dataclass(frozen=True)
class MatrixPayload:
    """A projection's matrix as (in, out).

    Attributes:
        linear: Where it comes from.
        columns: Which of its columns.
        factor: Shape (columns,), by which they are multiplied; None for none.
        half: It is stored in float16.
        role: For messages.
        rows: Shape (in,), by which its rows are multiplied; None for none.
    """

    linear: Linear
    columns: slice
    factor: NDArray[np.float64] | None
    half: bool
    role: str
    rows: NDArray[np.float64] | None = None

    @property
    def dims(self) -> tuple[int, int]:
        """(in, out)."""
        rows, columns = self.linear.shape
        return rows, len(range(columns)[self.columns])

    @property
    def length(self) -> int:
        """In bytes."""
        return self.dims[0] * self.dims[1] * (2 if self.half else 4)

    def read(self) -> NDArray[np.uint8]:
        """The bytes.

        Raises:
            StepError: float16 cannot hold a weight.
        """
        return _stored(self.values(), self.half, self.role)

    def rounded(self) -> NDArray[np.float16]:
        """The matrix as it is stored, in float16."""
        return to_float16(self.values())

    def values(self, every: int = 1) -> NDArray[np.float32]:
        """The numbers of every so-manieth row, before they are rounded to float16."""
        matrix = self.linear.matrix()[::every, self.columns]
        if self.rows is not None:
            matrix = matrix * self.rows[::every, None].astype(np.float32)
        if self.factor is not None:
            matrix = matrix * self.factor.astype(np.float32)
        return np.ascontiguousarray(matrix, np.float32)

    def rounds_well(self) -> bool:
        """Whether float16 holds the scaled matrix about as well as it holds any, judged by every eighth row."""
        values = self.values(8 if self.dims[0] >= _SAMPLED_ROWS else 1)
        error = (to_float16(values).astype(np.float32) - values).reshape(-1)
        flat = values.reshape(-1)
        size = float(np.dot(flat, flat)) ** 0.5
        return bool(float(np.dot(error, error)) ** 0.5 <= _COARSE * size)


@dataclass(frozen=True)
class PackedPayload:
    """Matrices that read the same value, as one, its columns in an order of its own.

    Attributes:
        parts: The matrices, all of one precision.
        order: For each column of the result, which it is of the parts' columns side by side.
    """

    parts: tuple[MatrixPayload, ...]
    order: NDArray[np.int64]

    @property
    def half(self) -> bool:
        """It is stored in float16."""
        return self.parts[0].half

    @property
    def dims(self) -> tuple[int, int]:
        """(in, out)."""
        return self.parts[0].dims[0], len(self.order)

    @property
    def length(self) -> int:
        """In bytes."""
        return self.dims[0] * self.dims[1] * (2 if self.half else 4)

    def read(self) -> NDArray[np.uint8]:
        """The bytes.

        Raises:
            StepError: float16 cannot hold a weight.
        """
        together = np.concatenate([part.values() for part in self.parts], axis=1)[:, self.order]
        return _stored(together, self.half, self.parts[0].role)


def _stored(matrix: NDArray[np.float32], half: bool, role: str) -> NDArray[np.uint8]:
    """A matrix as the bytes of its tensor."""
    if not half:
        return np.ascontiguousarray(matrix, "<f4").view(np.uint8).reshape(-1)
    rounded = to_float16(np.ascontiguousarray(matrix))
    if not np.isfinite(rounded).all():
        raise StepError("has weights beyond float16's range.", where=role, remedy="Use precision: fp32.")
    return rounded.view(np.uint8).reshape(-1)


@dataclass(frozen=True)
class ArrayPayload:
    """Numbers that are computed when they are asked for and small enough to be kept."""

    array: NDArray[Any]

    @property
    def length(self) -> int:
        """In bytes."""
        return int(self.array.nbytes)

    def read(self) -> NDArray[np.uint8]:
        """The bytes."""
        return np.ascontiguousarray(self.array).view(np.uint8).reshape(-1)
