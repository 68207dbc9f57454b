"""How each input of a graph is filled: one form per kind of material."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from bot.errors import RecipeError
from bot.measure.preprocess import ImageSpec, parse_image_spec
from bot.measure.sounds import AudioSpec
from bot.measure.tensors import TensorSpec
from bot.measure.texts import TextSpec
from bot.records import Json, Record

InputSpec = ImageSpec | AudioSpec | TextSpec | TensorSpec

_FORMS: dict[str, type[Record]] = {"audio": AudioSpec, "text": TextSpec, "tensor": TensorSpec}

KINDS = ("image", *_FORMS)
"""The kinds of material, as a recipe writes them below an input's name."""


def parse_input_spec(key: str, spec: Json) -> InputSpec:
    """Reads the description of an input.

    Args:
        key: Name of the input, for errors.
        spec: `{KIND: {...}}` as plain data.

    Raises:
        RecipeError: It is not understood.
    """
    if not isinstance(spec, dict) or len(spec) != 1 or next(iter(spec)) not in KINDS:
        raise RecipeError(f"should have one key, of {', '.join(KINDS)}", where=f"inputs.{key}")
    ((kind, inner),) = spec.items()
    if kind == "image":
        return parse_image_spec(key, inner)
    try:
        parsed: Any = _FORMS[kind].model_validate(inner)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"is not understood: {first['msg']}", where=f"inputs.{key}.{kind}.{place}") from error
    return parsed  # type: ignore[no-any-return]


def material_of(spec: InputSpec) -> str:
    """What a sample has to be for an input: `picture`, `sound`, `text`, or `none` for numbers from a seed."""
    if isinstance(spec, ImageSpec):
        return "picture"
    if isinstance(spec, AudioSpec):
        return "sound"
    return "text" if isinstance(spec, TextSpec) else "none"
