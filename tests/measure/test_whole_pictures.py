"""Whole pictures as samples: letterboxes, where boxes come to lie in them, and which pictures are taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measuring_material import drawn_face, encoded, ignore_progress, write_zip
from PIL import Image

from bot.errors import StepError, UpstreamError
from bot.measure.arrays import open_array
from bot.measure.conformity import check_pictures
from bot.measure.detection.labels import placed_objects, read_truths
from bot.measure.loaders import SamplePlan
from bot.measure.preprocess import ImageSpec, placement, to_tensor
from bot.measure.samples.collect import collect

LETTERBOX = ImageSpec(size=(64, 96), scale=1 / 255, fit="letterbox", pad_value=114)
RAW = ImageSpec(size=(64, 64), color="BGR", fit="letterbox", place="top-left")


def by_hand(picture: Image.Image, spec: ImageSpec) -> np.ndarray:
    """A letterbox, row by row on an array: nothing of it but the resizing is Pillow's."""
    height, width = spec.size
    if picture.width * height > picture.height * width:
        inner_width, inner_height = width, round(picture.height * width / picture.width)
    else:
        inner_width, inner_height = round(picture.width * height / picture.height), height
    inner = np.asarray(picture.resize((max(inner_width, 1), max(inner_height, 1)), Image.Resampling.BILINEAR))
    canvas = np.full((height, width, 3), spec.pad_value, np.float64)
    above, before = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
    if spec.place == "top-left":
        above = before = 0
    for row in range(inner.shape[0]):
        canvas[above + row, before : before + inner.shape[1]] = inner[row]
    planes = [canvas[:, :, channel] * spec.scale for channel in ((2, 1, 0) if spec.color == "BGR" else (0, 1, 2))]
    return np.stack(planes)


@pytest.mark.parametrize("spec", [LETTERBOX, RAW])
@pytest.mark.parametrize("size", [(50, 50), (300, 100), (31, 207), (96, 64), (640, 480), (3, 400)])
def test_a_letterbox_is_what_it_is_by_hand(spec: ImageSpec, size: tuple[int, int]) -> None:
    picture = drawn_face(3, size)
    tensor = to_tensor(picture, None, spec)
    assert tensor.shape == (3, *spec.size)
    np.testing.assert_allclose(tensor, by_hand(picture, spec), atol=1e-5)


@given(st.tuples(st.integers(1, 2000), st.integers(1, 2000)), st.sampled_from([LETTERBOX, RAW]))
def test_a_letterbox_fills_one_side_and_leaves_the_aspect(size: tuple[int, int], spec: ImageSpec) -> None:
    placed = placement(size, spec)
    height, width = spec.size
    assert placed.size[0] == width or placed.size[1] == height
    assert placed.left + placed.size[0] <= width and placed.top + placed.size[1] <= height
    # Half a pixel of rounding is all that the two sides may differ by.
    across, down = placed.size[0] / size[0], placed.size[1] / size[1]
    ratio = min(width / size[0], height / size[1])
    assert abs(across - ratio) * size[0] <= 0.5 + 1e-9 or placed.size[0] == 1
    assert abs(down - ratio) * size[1] <= 0.5 + 1e-9 or placed.size[1] == 1


@settings(max_examples=25)
@given(st.integers(20, 300), st.integers(20, 300), st.data())
def test_a_box_lies_where_its_pixels_lie(width: int, height: int, data: st.DataObject) -> None:
    left, top = data.draw(st.integers(0, width - 10)), data.draw(st.integers(0, height - 10))
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[top : top + 10, left : left + 10] = 255
    spec = ImageSpec(size=(256, 256), resample="nearest", fit="letterbox")
    tensor = to_tensor(Image.fromarray(pixels), None, spec)
    rows, columns = np.nonzero(tensor[0] > 0)
    x, y, w, h = placement((width, height), spec).box((left, top, 10, 10))
    found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    np.testing.assert_allclose(found, [x, y, x + w, y + h], atol=1.0)


# -- which pictures are taken, and what is in them


def wider_face(folder: Path, count: int = 12) -> dict[str, Path]:
    """So many pictures of 100 × 80 with two faces each: a large one, and one of five pixels."""
    images, lines = {}, []
    for index in range(count):
        path = f"0--E/{index}.jpg"
        images[f"WIDER_val/images/{path}"] = encoded(drawn_face(index, (100, 80)), "JPEG")
        lines += [path, "2", "10 20 30 40 0 0 0 0 0 0", "70 60 5 5 0 0 0 0 0 0"]
    name = "wider_face_split/wider_face_val_bbx_gt.txt"
    return {
        "images": write_zip(folder / "WIDER_val.zip", images),
        "annotations": write_zip(folder / "wider_face_split.zip", {name: "\n".join(lines).encode()}),
    }


def taken(folder: Path, loader: str, files: dict[str, Path], **plan: Any) -> dict[str, Any]:
    out = folder / f"out-{len(list(folder.glob('out-*')))}"
    out.mkdir()
    chosen = SamplePlan(take="pictures", **plan)
    answer = collect(loader, files, chosen, {"images": LETTERBOX}, out, ignore_progress)
    answer["array"] = open_array(out / "images.npy")
    return answer


def test_a_picture_of_wider_face_is_a_sample_with_its_faces(tmp_path: Path) -> None:
    answer = taken(tmp_path, "wider_face", wider_face(tmp_path, 4), minimum_px=10)
    assert answer["count"] == 4 and answer["array"].shape == (4, 3, 64, 96)
    (large, small) = answer["samples"][0]["objects"]["images"]
    # 100 × 80 into 96 × 64: at 0.8, eight columns of grey on either side.
    assert large == {"box": [16.0, 16.0, 40.0, 48.0], "class": 0, "ignore": False}
    assert small["ignore"] is True
    truths = read_truths([sample["objects"]["images"] for sample in answer["samples"]])
    assert truths[0].boxes.shape == (2, 4) and truths[0].ignore.tolist() == [False, True]


def test_portions_part_the_pictures(tmp_path: Path) -> None:
    files = wider_face(tmp_path, 24)
    digests = [
        {sample["digest"] for sample in taken(tmp_path, "wider_face", files, portion=portion)["samples"]}
        for portion in ((0.0, 0.4), (0.4, 1.0), (0.0, 1.0))
    ]
    assert digests[0] and digests[1] and not digests[0] & digests[1]
    assert digests[0] | digests[1] == digests[2]


def test_an_image_folder_lists_objects_in_either_form(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "images" / f"{name}.png").write_bytes(encoded(drawn_face(ord(name), (96, 64))))
    lines = [
        {"file_name": "images/a.png", "bbox": [1, 2, 30, 40], "category": 3},
        {"file_name": "images/a.png", "bbox": [50, 2, 30, 40]},
        {"file_name": "images/b.png", "objects": {"bbox": [[0, 0, 5, 5], [9, 9, 20, 20]], "categories": [1, 2]}},
        {"file_name": "images/c.png"},
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    files = {"images": tmp_path / "images", "metadata": tmp_path / "metadata.jsonl"}
    answer = taken(tmp_path, "image_folder", files, minimum_px=8)
    found = {
        tuple((each["class"], each["ignore"]) for each in sample["objects"].get("images", ()))
        for sample in answer["samples"]
    }
    assert found == {((3, False), (0, False)), ((1, True), (2, False)), ()}


@pytest.mark.parametrize(
    "objects",
    [
        {"bbox": [[0, 0, 5, 5]], "categories": [1, 2]},
        {"bbox": [[0, 0, 5]]},
        {"bbox": [None]},
        {"bbox": "all"},
        {"bbox": [[0, 0, 5, 5]], "categories": ["cat"]},
        {"bbox": [[0, 0, 5, 5]], "ignore": True},
        7,
    ],
)
def test_objects_that_are_not_understood_are_named_with_their_line(tmp_path: Path, objects: Any) -> None:
    (tmp_path / "images").mkdir()
    line = {"file_name": "images/a.png", "objects": objects}
    (tmp_path / "metadata.jsonl").write_text("\n" + json.dumps(line))
    files = {"images": tmp_path / "images", "metadata": tmp_path / "metadata.jsonl"}
    with pytest.raises(UpstreamError) as caught:
        taken(tmp_path, "image_folder", files)
    assert caught.value.where.endswith("metadata.jsonl:2")


def test_a_label_without_objects_says_nothing_of_what_is_there() -> None:
    assert placed_objects({"gender": "female"}, placement((10, 10), LETTERBOX)) is None
    with pytest.raises(StepError):
        read_truths([[{"box": [0, 0, 1]}]])


# -- whether arrays are what the recipe's preprocessing makes


def made(spec: ImageSpec, count: int = 3) -> np.ndarray:
    return np.stack([to_tensor(drawn_face(seed, (120, 90)), None, spec) for seed in range(count)])


STANDARDISED = ImageSpec(size=(32, 32), scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), layout="NHWC")


@pytest.mark.parametrize("spec", [LETTERBOX, RAW, STANDARDISED])
def test_what_the_preprocessing_made_passes(tmp_path: Path, spec: ImageSpec) -> None:
    np.save(tmp_path / "x.npy", made(spec))
    check_pictures("images", spec, tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("fed", "spec", "says"),
    [
        (made(RAW) / 255, RAW, "not a tenth"),
        (made(LETTERBOX) * 255, LETTERBOX, "values from"),
        (made(STANDARDISED), STANDARDISED.model_copy(update={"mean": (0, 0, 0), "std": (1, 1, 1)}), "values from"),
        (made(LETTERBOX)[:, :, :, :64], LETTERBOX, "of shape [3, 64, 64] per sample"),
        (made(LETTERBOX).astype(np.float64), LETTERBOX, "float64"),
        (made(LETTERBOX).transpose(0, 2, 3, 1).copy(), LETTERBOX, "of shape [64, 96, 3] per sample"),
    ],
)
def test_what_was_made_otherwise_is_refused(tmp_path: Path, fed: np.ndarray, spec: ImageSpec, says: str) -> None:
    np.save(tmp_path / "x.npy", fed)
    with pytest.raises(StepError) as caught:
        check_pictures("images", spec, tmp_path / "x.npy")
    assert says in caught.value.what and caught.value.where == "calibration of images"
