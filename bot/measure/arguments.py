"""Reading the plain data that a worker task is called with."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from bot.errors import StepError
from bot.records import Json, Record

Form = TypeVar("Form", bound=Record)


def read_arguments(form: type[Form], arguments: dict[str, Json]) -> Form:
    """A task's arguments in their typed form.

    Raises:
        StepError: They are not what the task takes: a fault of the caller, named with its place.
    """
    try:
        return form.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise StepError(
            f"a task was called with wrong arguments: {place}: {first['msg']}", where=form.__name__
        ) from error
