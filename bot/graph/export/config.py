"""Upstream's configuration as data: known keys, typed and bounded; nothing in it names code that is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.errors import UpstreamError
from bot.graph.export.weights import bounded_json

Width = Annotated[int, Field(ge=1, le=65_536)]
"""Of a layer, in channels."""

Depth = Annotated[int, Field(ge=1, le=256)]
"""Layers, heads or groups."""

Vocabulary = Annotated[int, Field(ge=1, le=10_000_000)]
Length = Annotated[int, Field(ge=1, le=1_000_000)]
Small = Annotated[float, Field(gt=0.0, lt=1.0)]
"""Such as the epsilon of a normalisation."""

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class UpstreamConfig(BaseModel):
    """Base of the configurations: what a module is built from. Keys that are not named are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


Config = TypeVar("Config", bound=UpstreamConfig)


def read_config(path: Path, kind: type[Config], *model_types: str) -> Config:
    """Reads a config.json.

    Args:
        path: The file.
        kind: What may stand in it.
        model_types: What its `model_type` may be, if it has one; any, if none are given. Older files have none: then
            the weights' names decide.

    Raises:
        UpstreamError: It is of another model, or a value is missing, of the wrong type, or beyond its bounds.
    """
    data = bounded_json(path)
    found = data.get("model_type")
    if model_types and found is not None and found not in model_types:
        raise UpstreamError(
            f"describes a model of type {found!r}", where=path.name, remedy=f"Expected: {', '.join(model_types)}."
        )
    try:
        return kind.model_validate_json(_plain(data, kind))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        value = str(first["input"])[:60]
        raise UpstreamError(f"{place}: {first['msg']} (found {value})", where=path.name) from error


def _plain(data: dict[str, object], kind: type[UpstreamConfig]) -> str:
    """Only the known keys, so that nothing else is even looked at; null is as good as absent."""
    import json

    return json.dumps({key: value for key, value in data.items() if key in kind.model_fields and value is not None})
