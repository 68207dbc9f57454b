"""WIDER FACE as its authors publish it: one zip of pictures, one zip of annotations.

An annotation file repeats: the picture's path, the number of faces, and per face a line
`x y w h blur expression illumination invalid occlusion pose`. A picture without faces has one line of zeros all the
same. Nothing is unpacked to disk; every member is read up to a limit, whatever its header claims.
"""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.errors import UpstreamError
from bot.measure import images
from bot.measure.images import PictureError
from bot.measure.loaders import SamplePlan, wider_name
from bot.measure.samples.candidate import Candidate
from bot.records import Json

MAX_ANNOTATIONS = 64 * 1024 * 1024
MAX_MEMBERS = 1_000_000
_FIELDS = 10
_INVALID = 7
_BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, ValueError)


@dataclass(frozen=True)
class Face:
    """One annotated face: its box in pixels, and whether the annotators call it invalid."""

    x: int
    y: int
    width: int
    height: int
    invalid: bool = False


def parse_annotations(lines: Iterable[str], where: str = "") -> Iterator[tuple[str, list[Face]]]:
    """Reads an annotation file.

    Args:
        lines: The file's lines, with or without their ends.
        where: Name of the file, for errors.

    Yields:
        The picture's path, and its faces as they are annotated; none for a picture without faces.

    Raises:
        UpstreamError: A line is not what the format has there.
    """
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    for number, path in numbered:
        if not path:
            continue
        if not path.lower().endswith((".jpg", ".jpeg", ".png")):
            raise UpstreamError("a picture's path was expected", where=f"{where}:{number}")
        number, line = next(numbered, (number + 1, ""))
        if not (line.isascii() and line.isdigit()):
            raise UpstreamError("the number of faces was expected", where=f"{where}:{number}")
        count, faces = int(line), []
        for _ in range(max(count, 1)):
            number, text = next(numbered, (number + 1, ""))
            faces.append(_parse_face(text, f"{where}:{number}"))
        yield path, faces if count else []


def _parse_face(line: str, where: str) -> Face:
    try:
        values = [int(value) for value in line.split()]
    except ValueError as error:
        raise UpstreamError("a face's line of ten whole numbers was expected", where=where) from error
    if len(values) != _FIELDS:
        raise UpstreamError(f"a face has {len(values)} numbers instead of ten", where=where)
    return Face(values[0], values[1], values[2], values[3], invalid=values[_INVALID] != 0)


class WiderFace:
    """The data set, opened.

    Args:
        files: `images` and `annotations`: paths of the two archives.
        plan: Which split, and how small a face may be.

    Raises:
        UpstreamError: An archive is broken, or lacks what it should hold.
    """

    def __init__(self, files: dict[str, Path], plan: SamplePlan) -> None:
        self.plan = plan
        self._folder = f"WIDER_{wider_name(plan.split)}/images"
        self._annotations = files["annotations"]
        self._where = str(files["images"])
        self._archive = _open_zip(files["images"])

    def candidates(self, skipped: Counter[str]) -> Iterator[Candidate]:
        """Every face that counts. Those that do not are counted in `skipped`, by reason."""
        name = f"wider_face_split/wider_face_{wider_name(self.plan.split)}_bbx_gt.txt"
        with _open_zip(self._annotations) as archive:
            try:
                text = read_member(archive, name, MAX_ANNOTATIONS).decode("utf-8")
            except (KeyError, PictureError, UnicodeDecodeError, *_BROKEN_ZIP) as error:
                raise UpstreamError(f"the annotations {name} cannot be read", where=str(self._annotations)) from error
        for path, faces in parse_annotations(text.splitlines(), where=f"{self._annotations}:{name}"):
            if self.plan.take == "pictures":
                yield Candidate(path, label={"objects": self._objects(faces)})
                continue
            for face in faces:
                if reason := self._unfit(face):
                    skipped[reason] += 1
                else:
                    yield Candidate(path, (face.x, face.y, face.width, face.height))

    def _objects(self, faces: list[Face]) -> Json:
        """All faces of a picture; those that would be no sample need not be found."""
        return {
            "bbox": [[face.x, face.y, face.width, face.height] for face in faces],
            "categories": [0] * len(faces),
            "ignore": [bool(self._unfit(face)) for face in faces],
        }

    def _unfit(self, face: Face) -> str:
        if face.invalid:
            return "marked invalid"
        if face.width <= 0 or face.height <= 0:
            return "box without size"
        if min(face.width, face.height) < self.plan.minimum_px:
            return "smaller than minimum_px"
        return ""

    def read(self, path: str) -> bytes:
        """The bytes of a picture.

        Raises:
            PictureError: It is not there, too large, or its part of the archive is broken.
        """
        try:
            return read_member(self._archive, f"{self._folder}/{path}", images.MAX_BYTES)
        except KeyError as error:
            raise PictureError("picture missing") from error
        except _BROKEN_ZIP as error:
            raise PictureError("broken in the archive") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except _BROKEN_ZIP as error:
        raise UpstreamError(f"is not a zip archive that can be read: {error}", where=str(path)) from error
    if len(archive.infolist()) > MAX_MEMBERS:
        raise UpstreamError(f"holds more than {MAX_MEMBERS} members", where=str(path))
    return archive


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """A member's bytes, of which no more than `limit` are ever unpacked.

    Raises:
        KeyError: There is no such member.
        PictureError: It is larger than the limit.
    """
    with archive.open(name) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise PictureError("file too large")
    return data
