"""Pictures to trace and to try a network on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def smooth_pictures(batch: int, size: int, generator: np.random.Generator) -> NDArray[Any]:
    """Smooth pictures, as photographs are, at the range that normalised ones have.

    Returns:
        float32 [batch, 3, size, size].
    """
    import numpy as np

    coarse = generator.normal(0.0, 1.0, (batch, 3, 8, 8))
    index = np.arange(size) * 8 // size
    fine = generator.normal(0.0, 0.1, (batch, 3, size, size))
    return (coarse[:, :, index][:, :, :, index] + fine).astype(np.float32)
