"""The parameters of each step: what a recipe may write under its name.

Kept apart from the steps, so that reading a recipe imports no ONNX.
"""

from __future__ import annotations

from typing import Any

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
