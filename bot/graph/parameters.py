"""The parameters of each step: what a recipe may write under its name.

Kept apart from the steps, so that reading a recipe imports no ONNX.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

AUTO = "auto"
"""Stands in keep for what measuring shows."""


class Parameters(BaseModel):
    """Base of all steps' parameters: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoParameters(Parameters):
    """A step that has none."""


class Float16Parameters(Parameters):
    """What stays float32 in a conversion to float16."""

    keep: tuple[str, ...] = Field(
        default=(),
        description="What stays float32: operator types (`Softmax`), node names, or patterns of either (`/head/*`); "
        "`auto`, alone or among them, for what the samples show that float16 cannot hold.",
    )

    @field_validator("keep", mode="before")
    @classmethod
    def _auto_alone(cls, keep: Any) -> Any:
        return (keep,) if keep == AUTO else keep


class Float16CommonParameters(Parameters):
    """What stays float32 in onnxconverter-common's conversion."""

    keep: tuple[str, ...] = Field(
        default=(),
        description="Operator types that stay float32, besides those that onnxconverter-common keeps itself.",
    )


class RebuildParameters(Parameters):
    """How a network is written anew with fused operators."""

    architecture: Literal["dinov3"] = Field(description="What the source is; it is refused if it is anything else.")
    precision: Literal["fp16", "fp32"] = Field(
        default="fp16", description="Of projections and attention; the residual stream and its norms are fp32 in both."
    )
    residual_scale: float = Field(
        default=0.125, description="What the residual stream is multiplied by: a power of two, such as 1/8."
    )

    @field_validator("residual_scale", mode="before")
    @classmethod
    def _read_fraction(cls, value: object) -> object:
        try:
            return float(Fraction(value)) if isinstance(value, str) else value
        except ZeroDivisionError as error:
            raise ValueError("should be a power of two, not a division by zero") from error

    @field_validator("residual_scale")
    @classmethod
    def _is_power_of_two(cls, value: float) -> float:
        if not 2.0**-12 <= value <= 1.0 or math.frexp(value)[0] != 0.5:
            raise ValueError("should be a power of two from 1/4096 to 1")
        return value
