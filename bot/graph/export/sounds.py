"""Sounds to trace and to try a network on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def voices(batch: int, samples: int, rate: int, generator: np.random.Generator) -> NDArray[Any]:
    """Harmonics of a pitch that glides, in noise, at the level of speech.

    Args:
        batch: How many.
        samples: Of each.
        rate: Samples a second.
        generator: Chooses the pitches and the noise.

    Returns:
        float32 [batch, samples].
    """
    import numpy as np

    time = np.arange(samples) / rate
    pitch = generator.uniform(90, 250, (batch, 1)) * (1 + 0.2 * np.sin(2 * np.pi * 3 * time))
    phase = 2 * np.pi * np.cumsum(pitch, axis=1) / rate
    voice = sum(np.sin(number * phase) / number for number in range(1, 8))
    noise = generator.normal(0, 0.02, (batch, samples))
    return np.asarray(0.05 * voice + noise, np.float32)
