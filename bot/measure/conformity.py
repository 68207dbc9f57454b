"""Whether arrays are what a recipe's preprocessing makes: a model that is calibrated on other ones is wrong everywhere.

Ranges decide every scale of a quantised model. Pictures from 0 to 1 in place of 0 to 255, or in another size, give a
file that opens, runs and is useless.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import open_array
from bot.measure.preprocess import ImageSpec

SLACK = 1e-3
"""Beyond the range that a picture can have by so much of it: rounding."""

LEAST_SPAN = 0.1
"""Photographs use more of the range than this share. One of 0 to 1 where 0 to 255 is wanted uses 0.4 %."""

_ROWS = 64
"""Samples that are looked at, evenly spread."""


def check_pictures(name: str, spec: ImageSpec, path: Path) -> None:
    """Refuses an array that this preprocessing did not make.

    Args:
        name: The input.
        spec: How the recipe prepares its pictures.
        path: A .npy file, one row per sample.

    Raises:
        StepError: Shape, type or values are not what the recipe's `inputs` give.
    """
    array = open_array(path)
    where = f"calibration of {name}"
    remedy = f"Prepare the samples as the recipe's inputs.{name} says; the bot does so by itself."
    if array.shape[1:] != spec.row_shape or array.dtype != np.float32:
        wanted = f"float32 of shape {list(spec.row_shape)}"
        found = f"{array.dtype} of shape {list(array.shape[1:])}"
        raise StepError(f"is {found} per sample, and inputs.{name} gives {wanted}.", where=where, remedy=remedy)
    rows = np.unique(np.linspace(0, len(array) - 1, min(_ROWS, len(array))).round().astype(int))
    channels = 1 if spec.layout == "NCHW" else 3
    others = tuple(axis for axis in range(4) if axis != channels)
    values = np.asarray(array[rows])
    lowest, highest = values.min(axis=others), values.max(axis=others)
    ends = [(np.array([0.0, 255.0]) * spec.scale - mean) / std for mean, std in zip(spec.mean, spec.std, strict=True)]
    for channel, (low, high) in enumerate((float(min(each)), float(max(each))) for each in ends):
        span = high - low
        if lowest[channel] < low - SLACK * span or highest[channel] > high + SLACK * span:
            raise StepError(
                f"has values from {lowest[channel]:.4g} to {highest[channel]:.4g} in channel {channel}, and "
                f"inputs.{name} gives {low:.4g} to {high:.4g}.",
                where=where,
                remedy=remedy,
            )
        if highest[channel] - lowest[channel] < LEAST_SPAN * span:
            raise StepError(
                f"has values from {lowest[channel]:.4g} to {highest[channel]:.4g} in channel {channel}: not a tenth of "
                f"the {low:.4g} to {high:.4g} that inputs.{name} gives.",
                where=where,
                remedy=remedy,
            )
