"""What rounding a norm's parameters to float16 changes, and where it can be made good without a node more.

A norm gives `x̂ · gain + bias`, and matrices read it. With `gain16` and `bias16` in their place, a matrix whose rows are
multiplied by `gain / gain16` reads the gain as it was; it then also multiplies `bias16` by that ratio, and what is left
of the bias goes through the matrix into the bias of the projection. Matrices are rounded anyway, and lose nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.rebuild.patterns import Norm, Vector
from bot.graph.tensors import to_float16


@dataclass(frozen=True)
class Normed:
    """A normed value, and what the projections that read it have to make good.

    Attributes:
        name: Of the value.
        rows: Shape (width,), by which the rows of a projection's matrix are multiplied; None for ones.
        rest: Shape (width,), what is missing from the value after that; None for nothing.
        mean: Shape (width,), of the value in the source over samples, if it was measured.
    """

    name: str
    rows: Vector | None = None
    rest: Vector | None = None
    mean: Vector | None = None


def rounded(norm: Norm, where: str) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Gain and bias in float16.

    Raises:
        StepError: float16 cannot hold one of them.
    """
    gain, bias = (to_float16(each.astype(np.float32)) for each in (norm.gain, norm.bias))
    if not (np.isfinite(gain).all() and np.isfinite(bias).all()):
        raise StepError("has a gain or bias beyond float16's range.", where=where, remedy="Use residual: fp32.")
    return gain, bias


def compensation(norm: Norm, gain: NDArray[np.float16], bias: NDArray[np.float16]) -> tuple[Vector, Vector]:
    """The ratio for the rows of the next matrices, and the rest of the bias for theirs.

    A gain that is zero in float16 has no ratio: what it let through, less than 3e-8 of its channel, is lost.

    Args:
        norm: As it should be.
        gain: What stands in the graph in place of its gain.
        bias: Likewise.

    Returns:
        `rows` and `rest`: `(x̂ · gain + bias) · rows + rest` is what the norm gives.
    """
    wide = gain.astype(np.float64)
    rows = np.divide(norm.gain, wide, out=np.ones_like(wide), where=wide != 0)
    return rows, norm.bias - rows * bias.astype(np.float64)
