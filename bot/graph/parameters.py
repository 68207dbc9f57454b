"""The parameters of each step: what a recipe may write under its name.

Kept apart from the steps, so that reading a recipe imports no ONNX.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

AUTO = "auto"
"""Stands in keep for what measuring shows."""


class Parameters(BaseModel):
    """Base of all steps' parameters: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def twin_on(self, provider: str) -> Parameters | None:
        """The same arithmetic in a form that a provider has kernels for; None where there is no need of one."""
        return None


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
    """How a network is written anew with fused operators.

    With nothing but the architecture said, the residual stream and its norms are float32, query, key and value have a
    projection each, and the patches come from a convolution. The other forms have fewer nodes and casts; each says
    what it needs.
    """

    architecture: Literal["bert", "dinov2", "dinov3"] = Field(
        description="What the source is; it is refused if it is anything else."
    )
    precision: Literal["fp16", "fp32"] = Field(
        default="fp16", description="Of projections and attention; the residual stream has a precision of its own."
    )
    residual_scale: float | Literal["auto"] = Field(
        default=0.125,
        description="What the residual stream is multiplied by: a power of two, such as 1/8; `auto` measures on the "
        "samples which one keeps it within float16.",
    )
    residual: Literal["fp32", "fp16"] = Field(
        default="fp32",
        description="Of the residual stream and its norms. fp16 saves four casts a block; on CUDA it needs ONNX "
        "Runtime 1.27, whose kernel was the first to sum in float32.",
    )
    residual_every: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Rounds a residual stream in fp16 once in so many blocks: in between, what they add is summed by "
        "itself. 0 rounds it at every addition. For dinov3 in residual: fp16, attention: packed or split.",
    )
    compensate: bool = Field(
        default=False,
        description="Makes good in the next matrix and its bias what rounding the norms to float16 changes; for "
        "residual: fp16.",
    )
    calibrate: bool = Field(
        default=False,
        description="Makes good in each bias what rounding the matrix in front of it changes on average, which is "
        "measured on the samples; for dinov3 in precision: fp16.",
    )
    attention: Literal["separate", "packed", "split"] = Field(
        default="separate",
        description="packed: one projection and one rotation for query, key and value, which no CPU kernel reads; "
        "split: the same arithmetic, taken apart for the CPU.",
    )
    patches: Literal["conv", "matmul"] = Field(
        default="conv", description="matmul: patches are cut out by a transposition and projected by a MatMul."
    )

    @field_validator("residual_scale", mode="before")
    @classmethod
    def _read_fraction(cls, value: object) -> object:
        try:
            return float(Fraction(value)) if isinstance(value, str) and value != AUTO else value
        except ZeroDivisionError as error:
            raise ValueError("should be a power of two, not a division by zero") from error

    @field_validator("residual_scale")
    @classmethod
    def _is_power_of_two(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and (not 2.0**-12 <= value <= 1.0 or math.frexp(value)[0] != 0.5):
            raise ValueError("should be a power of two from 1/4096 to 1")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> RebuildParameters:
        if self.architecture == "bert":
            for name in ("residual_scale", "compensate", "attention", "patches"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is no parameter of architecture: bert")
        if self.residual == "fp16" and self.precision == "fp32":
            raise ValueError("residual: fp16 needs precision: fp16")
        if self.compensate and self.residual == "fp32":
            raise ValueError("compensate needs residual: fp16, since norms in fp32 are not rounded")
        summed = self.architecture == "dinov3" and self.residual == "fp16" and self.attention != "separate"
        if self.residual_every and not summed:
            raise ValueError("residual_every needs architecture: dinov3, residual: fp16 and attention: packed or split")
        if self.calibrate and (self.precision == "fp32" or self.architecture != "dinov3"):
            raise ValueError("calibrate needs architecture: dinov3 in precision: fp16")
        return self

    def unrounded(self) -> RebuildParameters:
        """The same network in fp32, in a form that every provider runs."""
        plain = {"precision": "fp32", "residual": "fp32", "compensate": False, "calibrate": False, "residual_every": 0}
        return self.model_copy(update=plain | {"attention": "separate"})

    def twin_on(self, provider: str) -> RebuildParameters | None:
        """See `Parameters`: packed attention is read by CUDA's kernel only."""
        needed = self.attention == "packed" and provider != "cuda"
        return self.model_copy(update={"attention": "split"}) if needed else None
