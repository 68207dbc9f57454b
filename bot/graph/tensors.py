"""Numbers in tensors: names of dtypes, and the way from float32 to float16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT, FLOAT16 = 1, 10
"""`TensorProto.FLOAT` and `TensorProto.FLOAT16`."""

FLOAT16_MAX = 65504.0
FLOAT16_SMALLEST_NORMAL = 2.0**-14
FLOAT16_OVERFLOWS_AT = 65520.0
"""Magnitudes from here on become infinite when they are rounded to nearest."""
FLOAT16_VANISHES_AT = 2.0**-25
"""Magnitudes up to here become zero."""

_CHUNK = 1 << 20
"""Elements that are converted at a time: temporaries of a few MiB, whatever the size of the tensor."""


class DType(NamedTuple):
    """A dtype of ONNX.

    Attributes:
        name: As in a Signature.
        bits: Per element, as stored in raw_data; 0 where the size of the raw form is not checked.
    """

    name: str
    bits: int


DTYPES: dict[int, DType] = {
    1: DType("float32", 32),
    2: DType("uint8", 8),
    3: DType("int8", 8),
    4: DType("uint16", 16),
    5: DType("int16", 16),
    6: DType("int32", 32),
    7: DType("int64", 64),
    8: DType("string", 0),
    9: DType("bool", 8),
    10: DType("float16", 16),
    11: DType("float64", 64),
    12: DType("uint32", 32),
    13: DType("uint64", 64),
    14: DType("complex64", 64),
    15: DType("complex128", 128),
    16: DType("bfloat16", 16),
    17: DType("float8e4m3fn", 8),
    18: DType("float8e4m3fnuz", 8),
    19: DType("float8e5m2", 8),
    20: DType("float8e5m2fnuz", 8),
    21: DType("uint4", 4),
    22: DType("int4", 4),
    23: DType("float4e2m1", 4),
    24: DType("float8e8m0", 8),
    25: DType("uint2", 2),
    26: DType("int2", 2),
    27: DType("float6e2m3", 0),
    28: DType("float6e3m2", 0),
}
"""By the number that TensorProto.DataType gives them."""


def dtype_name(number: int) -> str:
    """A dtype's name: `float32`, `int64`, …; `undefined` for 0 and `dtype N` for one that is newer than this table."""
    return DTYPES[number].name if number in DTYPES else ("undefined" if number == 0 else f"dtype {number}")


def to_float16(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Rounds to nearest, ties to even: what `values.astype(float16)` gives, without its slow path.

    The processor's own instruction, which numpy uses, takes many times as long for results that are subnormal in
    float16. Those are rounded by an addition instead: 0.5 in float32 has its last bit at 2^-24, which is float16's
    smallest step, so that |x| + 0.5 rounds |x| to that step and leaves the count of steps in its last bits.

    Args:
        values: Any shape.

    Returns:
        The same shape. Magnitudes from 65520 on are infinite.
    """
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    result = np.empty(flat.shape, np.float16)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, flat.size, _CHUNK):
            _round_chunk(flat[start : start + _CHUNK], result[start : start + _CHUNK])
    return result.reshape(values.shape)


def _round_chunk(chunk: NDArray[np.float32], result: NDArray[np.float16]) -> None:
    magnitude = np.abs(chunk)
    small = (magnitude < FLOAT16_SMALLEST_NORMAL) & (magnitude > 0)
    if not small.any():
        result[:] = chunk
        return
    result[:] = np.where(small, np.float32(0), chunk)
    tiny = chunk[small]
    steps = (np.abs(tiny) + np.float32(0.5)).view(np.uint32) - np.float32(0.5).view(np.uint32)
    sign = (tiny.view(np.uint32) >> np.uint32(16)) & np.uint32(0x8000)
    result.view(np.uint16)[small] = (steps | sign).astype(np.uint16)


@dataclass(frozen=True)
class Fit:
    """How a float32 tensor would fit into float16.

    Attributes:
        elements: Their number.
        overflowed: Finite elements that would become infinite.
        vanished: Elements other than zero that would become zero.
        subnormal: Elements that would be subnormal, so that they keep fewer than eleven bits.
        most_negative: The smallest finite element; 0 where there is none.
        most_positive: The largest finite element; 0 where there is none.
    """

    elements: int = 0
    overflowed: int = 0
    vanished: int = 0
    subnormal: int = 0
    most_negative: float = 0.0
    most_positive: float = 0.0

    def __add__(self, other: Fit) -> Fit:
        return Fit(
            self.elements + other.elements,
            self.overflowed + other.overflowed,
            self.vanished + other.vanished,
            self.subnormal + other.subnormal,
            min(self.most_negative, other.most_negative),
            max(self.most_positive, other.most_positive),
        )


def float16_fit(values: NDArray[Any]) -> Fit:
    """Counts what float16 would do to a float32 tensor of any shape."""
    flat = values.reshape(-1)
    total = Fit()
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        magnitude = np.abs(chunk)
        finite = np.isfinite(chunk)
        small = (magnitude < FLOAT16_SMALLEST_NORMAL) & (magnitude > 0)
        vanished = int(np.count_nonzero(small & (magnitude <= FLOAT16_VANISHES_AT)))
        total += Fit(
            elements=chunk.size,
            overflowed=int(np.count_nonzero(finite & (magnitude >= FLOAT16_OVERFLOWS_AT))),
            vanished=vanished,
            subnormal=int(np.count_nonzero(small)) - vanished,
            most_negative=float(chunk.min(initial=0.0, where=finite)),
            most_positive=float(chunk.max(initial=0.0, where=finite)),
        )
    return total
