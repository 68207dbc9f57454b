"""Arrays in .npy files, read without unpickling and written row by row."""

from __future__ import annotations

import io
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError

Array = NDArray[Any]

MAX_HEADER = 10_000


def npy_name(key: str) -> str:
    """The file name for an array with this key: a slash becomes two underscores."""
    return key.replace("/", "__") + ".npy"


def open_array(path: str | Path) -> Array:
    """Opens a .npy file as a read-only view of the file, so that it is never whole in memory.

    Raises:
        StepError: It is not such a file, or holds objects instead of numbers.
    """
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=MAX_HEADER)
    except (OSError, ValueError) as error:
        raise StepError(f"cannot be read as an array: {error}", where=str(path)) from error
    if not isinstance(array, np.ndarray):
        raise StepError("holds several arrays where one was expected", where=str(path))
    return array


class RowWriter:
    """Writes a .npy file of unknown length, a block of rows at a time.

    numpy leaves room in the header for the first axis to grow, so the header is written again in place when the number
    of rows is known.

    Args:
        path: The file; an existing one is replaced.
        row_shape: Shape of one row, without the first axis.
        dtype: Of the elements.
    """

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: Any) -> None:
        self.path = path
        self.rows = 0
        self.row_shape = row_shape
        self.dtype = np.dtype(dtype)
        self._stream: BinaryIO = path.open("wb")
        self._stream.write(self._header())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape so far."""
        return (self.rows, *self.row_shape)

    def append(self, block: Array) -> None:
        """Adds rows: an array of shape (rows, *row_shape)."""
        if block.shape[1:] != self.row_shape:
            raise StepError(
                f"rows of shape {block.shape[1:]} follow rows of shape {self.row_shape}", where=str(self.path)
            )
        self._stream.write(np.ascontiguousarray(block, dtype=self.dtype).tobytes())
        self.rows += block.shape[0]

    def close(self) -> None:
        """Writes the final header."""
        self._stream.seek(0)
        self._stream.write(self._header())
        self._stream.close()

    def _header(self) -> bytes:
        buffer = io.BytesIO()
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(buffer, header)
        return buffer.getvalue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
