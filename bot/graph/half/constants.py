"""Weights and other constants in float16: whether they fit, and how they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bot.graph.half.scopes import Value
from bot.graph.model_file import Model, Payload, pieces_of
from bot.graph.tensors import FLOAT, FLOAT16, FLOAT16_OVERFLOWS_AT, Fit, float16_fit, to_float16

if TYPE_CHECKING:
    from onnx import TensorProto

MASK = 32752.0
"""What stands for a magnitude beyond float16's range in a mask. It is half of float16's largest number: a score or a
second mask can be added to it without becoming infinite, which a fully masked row would turn into NaN, and the
exponential of it is zero all the same."""


@dataclass(frozen=True)
class ConvertedPayload:
    """float32 contents that are converted when they are asked for.

    Attributes:
        source: The contents in the source.
        half: Give float16 instead of float32.
        saturate: Set magnitudes beyond float16's range to `MASK`.
    """

    source: Payload
    half: bool
    saturate: bool

    @property
    def length(self) -> int:
        return self.source.length // 2 if self.half else self.source.length

    def read(self) -> NDArray[np.uint8]:
        return _convert(self.source.read().view("<f4"), self.half, self.saturate).view(np.uint8)

    def pieces(self) -> Iterator[NDArray[np.uint8]]:
        for piece in pieces_of(self.source):
            yield _convert(piece.view("<f4"), self.half, self.saturate).view(np.uint8)


@dataclass
class Constants:
    """The constants of one model.

    Attributes:
        model: Where their contents are.
    """

    model: Model
    _fits: dict[Value, Fit] = field(default_factory=dict)

    def fit(self, value: Value) -> Fit:
        """How a float32 constant fits into float16; looked at once."""
        if value not in self._fits:
            constant, fit = value.constant, Fit()
            if constant is not None and constant.data_type == FLOAT:
                for piece in self.model.pieces(constant):
                    fit += float16_fit(piece)
            self._fits[value] = fit
        return self._fits[value]

    def uniform(self, value: Value) -> float | None:
        """The number that all elements of a small constant are; None if they differ or it is no such constant."""
        if value.constant is None or not value.is_float or not 1 <= self.fit(value).elements <= 16:
            return None
        array = self.model.array(value.constant).reshape(-1)
        return float(array[0]) if bool((array == array[0]).all()) else None

    def write(self, tensor: TensorProto, *, half: bool, saturate: bool) -> None:
        """Converts a float32 tensor in place."""
        payload = self.model.payload_of(tensor)
        if payload is not None:
            self.model.point(tensor, ConvertedPayload(payload, half, saturate))
        else:
            array = _convert(np.asarray(self.model.array(tensor), np.float32), half, saturate)
            tensor.ClearField("float_data")
            tensor.raw_data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        tensor.data_type = FLOAT16 if half else FLOAT


def _convert(values: NDArray[Any], half: bool, saturate: bool) -> NDArray[Any]:
    if saturate:
        beyond = np.isfinite(values) & (np.abs(values) >= FLOAT16_OVERFLOWS_AT)
        values = np.where(beyond, np.copysign(np.float32(MASK), values), values)
    return to_float16(values) if half else values
