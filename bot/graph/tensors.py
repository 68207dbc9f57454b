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

_CHUNK = 1 << 17
"""Elements that are converted at a time: temporaries that stay in a processor's cache, whatever the tensor's size."""

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITE = np.uint32(0x7F800000)
_DROPPED = np.uint32(13)
"""Bits that float32's fraction has more than float16's."""
_REBIASED = np.uint32((1 << 12) - 1 - (112 << 23) & 0xFFFFFFFF)
"""Half of the last bit that stays, less one; and the difference of the exponents' biases, taken away."""
_NORMAL_BITS = np.uint32(0x38800000)
"""Of float32 without its sign: what lies below is zero or subnormal in float16."""
_OVERFLOW_BITS = np.uint32(0x477FF000)
"""From here on, which is 65520, numbers become infinite."""
_SUBNORMAL_BITS = np.uint32(0x38800000 - 1)
"""Of float32, as an integer without its sign and less one: what lies below is subnormal in float16. Zero is above."""

_DENSE = 8
"""Where more than one of so many numbers becomes subnormal, all are rounded the other way and the right ones chosen."""


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

    numpy converts one number after the other, and takes many times as long for results that are subnormal in float16.
    Here the bits are rounded as whole numbers, many at a time. What is subnormal comes out of an addition: 0.5 in
    float32 has its last bit at 2^-24, which is float16's smallest step, so that |x| + 0.5 rounds |x| to that step and
    leaves the count of steps in its last bits.

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
    bits, halves = chunk.view(np.uint32), result.view(np.uint16)
    magnitude = np.bitwise_and(bits, _MAGNITUDE)
    rounded = np.right_shift(magnitude, _DROPPED)
    np.bitwise_and(rounded, np.uint32(1), out=rounded)  # an odd last bit makes a tie go up, to an even one
    np.add(rounded, magnitude, out=rounded)
    np.add(rounded, _REBIASED, out=rounded)  # wraps around for what is subnormal, which is put right below
    np.right_shift(rounded, _DROPPED, out=rounded)
    sign = np.right_shift(bits, np.uint32(16))
    np.bitwise_and(sign, np.uint32(0x8000), out=sign)
    np.bitwise_or(rounded, sign, out=rounded)
    np.copyto(halves, rounded, casting="unsafe")
    small = np.less(magnitude, _NORMAL_BITS)
    count = int(np.count_nonzero(small))
    if count * _DENSE > chunk.size:
        np.copyto(halves, _steps(chunk), where=small)
    elif count:
        places = np.flatnonzero(small)
        halves[places] = _steps(chunk[places])
    if magnitude.max() >= _OVERFLOW_BITS:  # NaN, too, is left to numpy
        places = np.flatnonzero(magnitude >= _OVERFLOW_BITS)
        result[places] = chunk[places]


def _becomes_subnormal(chunk: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which numbers are subnormal, or vanish, in float16; zeros are not among them."""
    bits = np.bitwise_and(chunk.view(np.uint32), _MAGNITUDE)
    np.subtract(bits, np.uint32(1), out=bits)  # zero becomes the largest of all
    return np.less(bits, _SUBNORMAL_BITS)


def _steps(small: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float16's bits of numbers that are subnormal there."""
    steps = np.abs(small)
    np.add(steps, np.float32(0.5), out=steps)
    bits = steps.view(np.uint32)
    np.subtract(bits, np.float32(0.5).view(np.uint32), out=bits)
    sign = np.bitwise_and(small.view(np.uint32) >> np.uint32(16), np.uint32(0x8000))
    np.bitwise_or(bits, sign, out=bits)
    return bits.astype(np.uint16)


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
    flat = np.ascontiguousarray(values).reshape(-1)
    total = Fit()
    for start in range(0, flat.size, _CHUNK):
        total += _fit_of_chunk(flat[start : start + _CHUNK])
    return total


def _fit_of_chunk(chunk: NDArray[np.float32]) -> Fit:
    small = _becomes_subnormal(chunk)
    count = int(np.count_nonzero(small))
    vanished = int(np.count_nonzero(np.abs(chunk[small]) <= FLOAT16_VANISHES_AT)) if count else 0
    lowest, highest = float(chunk.min()), float(chunk.max())
    overflowed = 0
    if not (lowest > -FLOAT16_OVERFLOWS_AT and highest < FLOAT16_OVERFLOWS_AT):  # NaN, too, takes the long way
        finite = np.bitwise_and(chunk.view(np.uint32), _MAGNITUDE) < _INFINITE
        overflowed = int(np.count_nonzero(finite & (np.abs(chunk) >= FLOAT16_OVERFLOWS_AT)))
        lowest, highest = float(chunk.min(initial=0.0, where=finite)), float(chunk.max(initial=0.0, where=finite))
    return Fit(chunk.size, overflowed, vanished, count - vanished, min(lowest, 0.0), max(highest, 0.0))
