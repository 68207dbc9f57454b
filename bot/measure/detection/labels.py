"""What a data set says there is in a picture, in the pixels of the network's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bot.errors import StepError
from bot.measure.detection.average_precision import Truth
from bot.measure.preprocess import Placement
from bot.records import Json


def placed_objects(label: Mapping[str, Json], placement: Placement) -> list[dict[str, Json]] | None:
    """A label's boxes where they lie in the network's input.

    Args:
        label: With `objects`, if the data set has any: `bbox`, a list of left, top, width, height in pixels of the
            picture; and optionally `categories`, a number each, and `ignore`, a truth value each.
        placement: Where the picture came to lie.

    Returns:
        Per box, `box` (left, top, right, bottom), `class` and `ignore`; None where the label has no objects.
    """
    objects = label.get("objects")
    if not isinstance(objects, Mapping):
        return None
    boxes: Any = objects.get("bbox") or []
    categories: Any = objects.get("categories") or [0] * len(boxes)
    ignore: Any = objects.get("ignore") or [False] * len(boxes)
    found: list[dict[str, Json]] = []
    for box, category, ignored in zip(boxes, categories, ignore, strict=True):
        left, top, width, height = placement.box((float(box[0]), float(box[1]), float(box[2]), float(box[3])))
        found.append({"box": [left, top, left + width, top + height], "class": int(category), "ignore": bool(ignored)})
    return found


def read_truths(samples: Sequence[Sequence[Mapping[str, Json]]]) -> tuple[Truth, ...]:
    """Labels in the form that they are judged by; see `placed_objects`.

    Raises:
        StepError: One is not understood.
    """
    try:
        return tuple(_truth(objects) for objects in samples)
    except (KeyError, TypeError, ValueError) as error:
        raise StepError(f"a label is not understood: {error}", where="objects") from error


def _truth(objects: Sequence[Mapping[str, Any]]) -> Truth:
    return Truth(
        np.asarray([each["box"] for each in objects], np.float64).reshape(len(objects), 4),
        np.asarray([int(each["class"]) for each in objects], np.int64),
        np.asarray([bool(each["ignore"]) for each in objects], bool),
    )
