"""The parameters of the step `export_torch`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bot.graph.export.registry import ARCHITECTURES, find_architecture


class ExportTorchParameters(BaseModel):
    """How a torch module is exported. Keys beside these are the architecture's own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    architecture: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="What the module is.")
    opset: int = Field(default=17, ge=13, le=26, description="Of ONNX's own operators.")
    exporter: Literal["auto", "torchscript", "dynamo"] = Field(
        default="auto", description="torch's exporter; `auto` takes the one that does the architecture justice."
    )
    tolerance: float = Field(
        default=1e-3,
        gt=0,
        lt=1,
        description="How far the graph may be from torch, as a share of the largest magnitude of torch's answer.",
    )

    @property
    def own(self) -> dict[str, Any]:
        """What the architecture itself takes."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _known_keys(self) -> ExportTorchParameters:
        if self.architecture in ARCHITECTURES:  # another one may be the recipe's own: its recipe.py knows what it takes
            try:
                find_architecture(self.architecture).parameters.model_validate(self.own)
            except ValidationError as error:
                raise ValueError(_of_architecture(self.architecture, error)) from None
        return self


def _of_architecture(name: str, error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"the architecture {name} has no parameter {key!r}"
    return f"the architecture {name}: {key}: {first['msg'].lower()}"
