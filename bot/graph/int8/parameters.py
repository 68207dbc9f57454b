"""What a recipe may write under `quantize_static`, `quantize_dynamic` and `quantize_weights`. Imports no ONNX."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from bot.graph.parameters import AUTO, Parameters

WEIGHT_OPERATORS = ("Gather", "Gemm", "MatMul")
"""The operators whose weights can be stored in eight bits for a graph that computes in float."""


class ChoosingParameters(Parameters):
    """What all of these steps take: which nodes are quantised."""

    operators: tuple[str, ...] = Field(
        default=(), description="Only nodes of these operators are quantised; by default, all that the step knows."
    )
    keep: tuple[str, ...] = Field(
        default=(),
        description="What stays float: operator types, node names, or patterns of either (`/model.23/*`).",
    )
    keep_within: int | None = Field(
        default=None,
        ge=0,
        description="Nodes that are at most so many nodes away from an output stay float; the node that makes it is "
        "at 0.",
    )

    @field_validator("keep", mode="before")
    @classmethod
    def _one_alone(cls, keep: Any) -> Any:
        return (keep,) if isinstance(keep, str) else keep


class QuantizeParameters(ChoosingParameters):
    """What the steps take that ONNX Runtime's quantiser does."""

    weights: Literal["int8", "uint8"] = Field(default="int8", description="Type of the weights.")
    per_channel: bool = Field(default=True, description="A scale for each output channel of a weight.")


class QuantizeStaticParameters(QuantizeParameters):
    """How a graph is quantised with ranges that are calibrated before."""

    keep: tuple[str, ...] = Field(
        default=(),
        description="What stays float: operator types, node names, or patterns of either (`/model.23/*`); `auto`, "
        "alone or among them, for the fewest nodes without which the recipe's limits break.",
    )
    activations: Literal["uint8", "int8"] = Field(default="uint8", description="Type of the activations.")
    method: Literal["minmax", "percentile", "entropy"] = Field(
        default="minmax", description="How the range of a tensor is taken from its values."
    )
    percentile: float | None = Field(
        default=None,
        gt=50,
        le=100,
        description="For that method: the share of the values, in percent, that is kept; 99.99 by default.",
    )
    samples: int = Field(default=0, ge=0, description="How many samples to calibrate on at most; 0 for all.")
    search_samples: int = Field(default=16, ge=1, description="For keep: auto: how many samples a candidate is run on.")
    margin: float = Field(
        default=0.25, ge=0, lt=1, description="For keep: auto: the share of each limit's room that has to be left."
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> QuantizeStaticParameters:
        if self.percentile is not None and self.method != "percentile":
            raise ValueError("percentile belongs to method: percentile")
        return self

    @property
    def searches(self) -> bool:
        """Whether what stays float is to be found out."""
        return AUTO in self.keep


class QuantizeDynamicParameters(QuantizeParameters):
    """How the weights of a graph are quantised, and its activations at every run."""

    operators: tuple[str, ...] = Field(
        default=("MatMul", "Gemm"), description="Only nodes of these operators are quantised."
    )


class QuantizeWeightsParameters(ChoosingParameters):
    """How weights are stored in eight bits for a graph that computes in float."""

    operators: tuple[str, ...] = Field(
        default=WEIGHT_OPERATORS, description="Only weights of these operators are quantised."
    )
    block: Literal[16, 32, 64, 128, 256] | None = Field(
        default=None,
        description="How many numbers of a channel share a scale; by default, all of them. Needs opset 21, to which "
        "the graph is converted.",
    )
