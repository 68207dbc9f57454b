"""Which loaders of samples there are, what a plan may say, and which files of its repository a loader reads.

Imports nothing heavy: the pipeline asks here before it fetches anything.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from bot.records import Json, Record

LOADERS = ("wider_face", "image_folder", "audio_folder", "text_lines")
"""The names that a recipe may use under `measure.samples`."""

MATERIALS = {
    "wider_face": "picture",
    "image_folder": "picture",
    "audio_folder": "sound",
    "text_lines": "text",
}
"""What the samples of each loader are."""

_FETCHING = frozenset({"loader", "repo", "revision"})
_WIDER_NAMES = {"validation": "val", "train": "train"}


class SamplePlan(Record):
    """Which samples are taken out of a data set.

    Attributes:
        split: Part of the data set; `image_folder` has no parts and ignores it.
        count: How many samples are wanted; None takes all there are.
        minimum_px: The smallest width and height of a box, in pixels, before it is widened.
        take: `boxes`: each box of a picture is a sample. `pictures`: each picture is one, and its boxes are what there
            is to be found in it; smaller ones than `minimum_px` need not be found.
        portion: Only pictures whose path's digest, as a share of all digests, is from the first up to the second. Two
            plans whose portions do not overlap have no picture in common.
    """

    split: Literal["validation", "train"] = "validation"
    count: int | None = Field(default=None, ge=1, le=100_000)
    minimum_px: int = Field(default=1, ge=1)
    take: Literal["boxes", "pictures"] = "boxes"
    portion: tuple[float, float] = (0.0, 1.0)


def parse_plan(loader: str, plan: dict[str, Json]) -> SamplePlan:
    """Reads a recipe's sampling plan.

    Args:
        loader: One of `LOADERS`.
        plan: The plan as plain data. What belongs to the fetching (`loader`, `repo`, `revision`) is passed over.

    Raises:
        ValueError: There is no such loader, or the plan says something that it does not understand.
    """
    if loader not in LOADERS:
        raise ValueError(f"there is no loader of samples named {loader!r}; there are {', '.join(LOADERS)}")
    try:
        return SamplePlan.model_validate({key: value for key, value in plan.items() if key not in _FETCHING})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place} is not understood: {first['msg']}") from None


def required_files(loader: str, plan: dict[str, Json]) -> dict[str, str]:
    """The files that a loader reads, as patterns of paths in the data set's repository.

    A pattern without `*` is one file, and the task is given that file's path under the same name. A pattern such as
    `images/*` is a folder, and the task is given that folder's path.

    Args:
        loader: One of `LOADERS`.
        plan: The sampling plan as plain data.

    Returns:
        Pattern by name.

    Raises:
        ValueError: There is no such loader, or the plan is not understood.
    """
    parsed = parse_plan(loader, plan)
    if loader == "wider_face":
        return {
            "images": f"data/WIDER_{_WIDER_NAMES[parsed.split]}.zip",
            "annotations": "data/wider_face_split.zip",
        }
    if loader == "audio_folder":
        return {"sounds": "sounds/*", "metadata": "metadata.jsonl"}
    if loader == "text_lines":
        return {"texts": "texts.txt"}
    return {"images": "images/*", "metadata": "metadata.jsonl"}


def wider_name(split: str) -> str:
    """The short name that WIDER FACE's archives give to a split."""
    return _WIDER_NAMES[split]
