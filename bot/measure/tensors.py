"""Numbers from a seed, for inputs that stand for no picture, sound or text: another network's features, say.

What such a network answers to them means nothing; that two forms of it answer alike still does. The card says so.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bot.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TensorSpec(Record):
    """Numbers from a seed.

    Attributes:
        shape: Of one sample, without the batch.
        values: `normal`: mean 0 and standard deviation `scale`; `uniform`: from -`scale` to `scale`; `ones`: all 1;
            `mask`: 1 from the beginning up to a random length, at least one, and 0 after it.
        scale: See `values`.
        dtype: numpy's name.
    """

    shape: tuple[int, ...] = Field(min_length=1, max_length=6)
    values: Literal["normal", "uniform", "ones", "mask"] = "normal"
    scale: float = Field(default=1.0, gt=0.0, le=1e6)
    dtype: Literal["float32", "int64", "bool"] = "float32"

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.shape


def to_numbers(sample: str, key: str, spec: TensorSpec) -> NDArray[Any]:
    """One sample for a network, which depends on nothing but the sample's digest and the input's key."""
    import numpy as np

    seed = hashlib.sha256(f"{sample}/{key}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(seed[:16], "big"))
    if spec.values == "normal":
        row = generator.normal(0.0, spec.scale, spec.shape)
    elif spec.values == "uniform":
        row = generator.uniform(-spec.scale, spec.scale, spec.shape)
    elif spec.values == "ones":
        row = np.ones(spec.shape)
    else:
        length = int(generator.integers(1, spec.shape[0] + 1))
        row = np.zeros(spec.shape)
        row[:length] = 1
    return row.astype(spec.dtype)
