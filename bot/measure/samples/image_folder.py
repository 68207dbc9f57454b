"""A folder of pictures with a `metadata.jsonl` beside them.

Each line is an object with `file_name` (relative to the folder of the list), an optional `bbox` of
`[x, y, width, height]` in pixels of the upright picture, and any other keys, which are labels. Where whole pictures are
taken, the boxes of all lines about one picture are what there is to be found in it, with `category` as their class; or
one line has them all under `objects`: `bbox`, a list of boxes, `categories`, a number each, and optionally `ignore`, a
truth value each.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from bot.errors import UpstreamError
from bot.measure import images
from bot.measure.images import PictureError
from bot.measure.loaders import SamplePlan
from bot.measure.preprocess import Box
from bot.measure.samples.candidate import Candidate
from bot.records import Json

MAX_LINE = 1 << 20


class ImageFolder:
    """The data set, opened.

    Args:
        files: `metadata`: path of the list. `images`: the folder of pictures beside it, which the list names.
        plan: How small a box may be.
    """

    def __init__(self, files: dict[str, Path], plan: SamplePlan) -> None:
        self.plan = plan
        self._metadata = files["metadata"]
        self._root = self._metadata.parent

    def candidates(self, skipped: Counter[str]) -> Iterator[Candidate]:
        """Every entry that counts. Those that do not are counted in `skipped`, by reason.

        Raises:
            UpstreamError: The list cannot be read; the line is named.
        """
        if self.plan.take == "pictures":
            yield from self._pictures()
            return
        for _, candidate in self._entries():
            if candidate.box and min(candidate.box[2:]) < self.plan.minimum_px:
                skipped["smaller than minimum_px"] += 1
            else:
                yield candidate

    def _entries(self) -> Iterator[tuple[str, Candidate]]:
        """Every line with where it stands."""
        try:
            with self._metadata.open("rb") as stream:
                for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
                    if line.strip():
                        where = f"{self._metadata}:{number}"
                        yield where, _parse_line(line, where)
        except OSError as error:
            raise UpstreamError(f"cannot be read: {error.strerror}", where=str(self._metadata)) from error

    def _pictures(self) -> Iterator[Candidate]:
        """One candidate per picture, all that its lines say of it taken together."""
        objects: dict[str, dict[str, list[Any]]] = {}
        labels: dict[str, dict[str, Json]] = {}
        for where, entry in self._entries():
            found = objects.setdefault(entry.path, {"bbox": [], "categories": [], "ignore": []})
            labels.setdefault(entry.path, {}).update({key: v for key, v in entry.label.items() if key != "objects"})
            for box, category, ignore in _objects(entry, where):
                found["bbox"].append(list(box))
                found["categories"].append(category)
                found["ignore"].append(ignore or min(box[2:]) < self.plan.minimum_px)
        for path, found in objects.items():
            told: dict[str, Json] = {"objects": dict(found)} if found["bbox"] else {}
            yield Candidate(path, label={**labels[path], **told})

    def read(self, path: str) -> bytes:
        """The bytes of a picture.

        Raises:
            PictureError: It is not there or too large.
        """
        try:
            with (self._root / path).open("rb") as stream:
                return stream.read(images.MAX_BYTES + 1)
        except OSError as error:
            raise PictureError("picture missing") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _parse_line(line: bytes, where: str) -> Candidate:
    if len(line) > MAX_LINE:
        raise UpstreamError("the line is too long", where=where)
    try:
        entry = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UpstreamError("is not a JSON object", where=where) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("file_name"), str):
        raise UpstreamError("has no file_name", where=where)
    path = PurePosixPath(entry.pop("file_name"))
    if path.is_absolute() or ".." in path.parts or "\\" in str(path) or "\0" in str(path) or not path.parts:
        raise UpstreamError("file_name leads out of the folder", where=where)
    return Candidate(str(path), _parse_box(entry.pop("bbox", None), where), entry)


def _objects(entry: Candidate, where: str) -> Iterator[tuple[Box, int, bool]]:
    """The boxes that one line names, with class and whether they need not be found."""
    if entry.box is not None:
        yield entry.box, _category(entry.label.get("category", 0), where), False
    told: Any = entry.label.get("objects")
    if told is None:
        return
    boxes = told.get("bbox") if isinstance(told, dict) else None
    if not isinstance(boxes, list):
        raise UpstreamError("objects is not a mapping with a list bbox", where=where)
    categories, ignore = told.get("categories", [0] * len(boxes)), told.get("ignore", [False] * len(boxes))
    if not all(isinstance(each, list) and len(each) == len(boxes) for each in (categories, ignore)):
        raise UpstreamError("objects has not as many categories, or ignore, as boxes", where=where)
    for box, category, ignored in zip(boxes, categories, ignore, strict=True):
        parsed = _parse_box(box, where)
        if parsed is None:
            raise UpstreamError("a box of objects is null", where=where)
        yield parsed, _category(category, where), ignored is True


def _category(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UpstreamError("a category is not a whole number from 0 on", where=where)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_box(box: Any, where: str) -> Box | None:
    if box is None:
        return None
    numbers = isinstance(box, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in box
    )
    if not numbers or len(box) != 4 or min(box[2:]) <= 0:
        raise UpstreamError("bbox is not [x, y, width, height] with a width and a height above 0", where=where)
    return (float(box[0]), float(box[1]), float(box[2]), float(box[3]))
