"""WIDER FACE's archives and annotations, and the choice of samples from them."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measuring_material import drawn_face, encoded, ignore_progress, write_zip
from PIL import Image

from bot.errors import RecipeError, StepError, UpstreamError
from bot.measure import images, tasks
from bot.measure.images import PictureError
from bot.measure.loaders import SamplePlan
from bot.measure.preprocess import ImageSpec, to_tensor
from bot.measure.samples.wider_face import Face, WiderFace, parse_annotations

ANNOTATIONS = "wider_face_split/wider_face_val_bbx_gt.txt"
SPEC = {"size": [24, 16], "resample": "bicubic", "scale": 1 / 255, "crop_padding": 0.1}

faces = st.builds(
    Face, st.integers(-20, 5000), st.integers(-20, 5000), st.integers(0, 999), st.integers(0, 999), st.booleans()
)
paths = st.from_regex(r"\A[0-9]{1,2}--[A-Z][a-z]{1,8}/[A-Za-z_0-9 ]{1,20}[a-z]\.jpg\Z")


def annotation(face: Face) -> str:
    return f"{face.x} {face.y} {face.width} {face.height} 0 0 0 {int(face.invalid)} 0 0 "


def annotations(pictures: dict[str, list[Face]]) -> str:
    lines = []
    for path, found in pictures.items():
        lines += [path, str(len(found)), *[annotation(face) for face in found]]
        if not found:
            lines.append("0 0 0 0 0 0 0 0 0 0 ")
    return "".join(f"{line}\n" for line in lines)


def archives(
    folder: Path, files: dict[str, bytes], pictures: dict[str, list[Face]], text: str | None = None
) -> dict[str, str]:
    """Writes the two archives and returns the loader's files."""
    folder.mkdir(exist_ok=True)
    images_zip = {f"WIDER_val/images/{path}": data for path, data in files.items()}
    split = {ANNOTATIONS: (annotations(pictures) if text is None else text).encode()}
    return {
        "images": str(write_zip(folder / "WIDER_val.zip", images_zip)),
        "annotations": str(write_zip(folder / "wider_face_split.zip", split)),
    }


def take(files: dict[str, str], out: Path, **plan: Any) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    arguments = {
        "loader": "wider_face",
        "files": files,
        "plan": plan,
        "inputs": {"face": {"image": SPEC}},
        "out": str(out),
    }
    answer = tasks.samples(arguments, ignore_progress)
    assert isinstance(answer, dict)
    return answer


@pytest.fixture
def eleven(tmp_path: Path) -> tuple[dict[str, bytes], dict[str, list[Face]]]:
    """Eleven drawn pictures with two faces each."""
    files = {f"0--Drawn/0_Drawn_{number}.png": encoded(drawn_face(number)) for number in range(11)}
    return files, {path: [Face(10, 12, 40, 50), Face(30, 40, 60, 70)] for path in files}


@given(pictures=st.dictionaries(paths, st.lists(faces, max_size=4), max_size=5))
def test_annotations_come_back_as_they_were_written(pictures: dict[str, list[Face]]) -> None:
    assert dict(parse_annotations(annotations(pictures).splitlines())) == pictures


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a.jpg\n1\n1 2 3 4 0 0 0 0 0\n", 3),
        ("a.jpg\n1\n1 2 3 4 0 0 0 0 0 x\n", 3),
        ("a.jpg\n2\n1 2 3 4 0 0 0 0 0 0\n", 4),
        ("a.jpg\nmany\n", 2),
        ("a.jpg\n-1\n", 2),
        ("a.jpg\n", 2),
        ("1 2 3 4 0 0 0 0 0 0\n", 1),
        ("a.jpg\n0\n0 0 0 0 0 0 0 0 0 0\n7\n", 4),
    ],
)
def test_a_wrong_line_is_named(text: str, line: int) -> None:
    with pytest.raises(UpstreamError) as caught:
        list(parse_annotations(text.splitlines(), "gt.txt"))
    assert caught.value.where == f"gt.txt:{line}"


def test_a_photograph_in_the_archive_s_layout(tmp_path: Path, astronaut: bytes) -> None:
    """The tensor is what the plain steps make of the photograph, and the digest is that of bytes and box."""
    path = "12--Group/12_Group_Group_12_Group_Group_12_1.jpg"
    files = archives(tmp_path, {path: astronaut}, {path: [Face(178, 70, 96, 108)], "1--None/none.jpg": []})

    answer = take(files, tmp_path / "out", split="validation", count=1, minimum_px=32)

    with Image.open(io.BytesIO(astronaut)) as picture:
        crop = picture.convert("RGB").crop((168, 59, 284, 189)).resize((16, 24), Image.Resampling.BICUBIC)
    expected = (np.asarray(crop, np.float32) / 255).transpose(2, 0, 1)
    tensor = np.load(tmp_path / "out" / "face.npy")
    assert tensor.shape == (1, 3, 24, 16)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor[0], expected, atol=1e-6)
    digest = hashlib.sha256(astronaut + b"[178,70,96,108]").hexdigest()
    assert answer["samples"] == [{"digest": digest, "label": None}]
    assert answer["digest"] == hashlib.sha256(json.dumps([digest]).encode()).hexdigest()
    assert answer["skipped"] == {}


def test_the_choice_does_not_depend_on_the_order_of_anything(tmp_path: Path, eleven: Any) -> None:
    files, pictures = eleven
    first = take(archives(tmp_path / "a", files, pictures), tmp_path / "out-a", count=7)
    backwards = dict(reversed(files.items()))
    other = {path: found[::-1] for path, found in reversed(pictures.items())}
    second = take(archives(tmp_path / "b", backwards, other), tmp_path / "out-b", count=7)

    assert first == second
    assert np.array_equal(np.load(tmp_path / "out-a" / "face.npy"), np.load(tmp_path / "out-b" / "face.npy"))


def test_fewer_samples_are_the_first_of_more(tmp_path: Path, eleven: Any) -> None:
    files = archives(tmp_path, *eleven)
    few, many = take(files, tmp_path / "few", count=5), take(files, tmp_path / "many", count=22)
    assert many["samples"][:5] == few["samples"]
    assert len({sample["digest"] for sample in many["samples"]}) == 22


def test_every_row_belongs_to_its_digest(tmp_path: Path, eleven: Any) -> None:
    files, pictures = eleven
    answer = take(archives(tmp_path, files, pictures), tmp_path / "out", count=22)
    rows = np.load(tmp_path / "out" / "face.npy")
    spec = ImageSpec.model_validate(SPEC)
    expected = {}
    for path, data in files.items():
        for face in pictures[path]:
            box = (face.x, face.y, face.width, face.height)
            digest = hashlib.sha256(data + json.dumps(box, separators=(",", ":")).encode()).hexdigest()
            expected[digest] = to_tensor(images.decode(data), box, spec)
    for sample, row in zip(answer["samples"], rows, strict=True):
        assert np.array_equal(expected[sample["digest"]], row)


def test_faces_that_do_not_count_are_counted(tmp_path: Path) -> None:
    found = [
        Face(5, 5, 40, 50),
        Face(5, 5, 40, 50),
        Face(5, 5, 41, 50, invalid=True),
        Face(5, 5, 0, 50),
        Face(5, 5, 31, 90),
        Face(5, 5, 90, 31),
        Face(500, 5, 40, 50),
    ]
    files = archives(tmp_path, {"a.png": encoded(drawn_face(1))}, {"a.png": found})
    answer = take(files, tmp_path / "out", count=None, minimum_px=32)
    assert answer["count"] == 1
    assert answer["skipped"] == {
        "box outside the picture": 1,
        "box without size": 1,
        "marked invalid": 1,
        "smaller than minimum_px": 2,
    }


def test_bad_pictures_are_passed_over_and_named(tmp_path: Path, eleven: Any) -> None:
    files, pictures = eleven
    broken, missing, bomb = list(files)[:3]
    files = {**files, broken: files[broken][:200], bomb: encoded(Image.new("1", (20_000, 20_000)))}
    del files[missing]

    answer = take(archives(tmp_path, files, pictures), tmp_path / "out", count=16)

    assert answer["count"] == 16
    everything = take(archives(tmp_path, files, pictures), tmp_path / "all", count=None)
    assert everything["skipped"] == {"broken picture": 2, "picture missing": 2, "too many pixels": 2}
    named = {(each["digest"], each["reason"]) for each in everything["skipped_samples"]}
    assert (hashlib.sha256(files[broken] + b"[10,12,40,50]").hexdigest(), "broken picture") in named
    assert len(named) == 6


def test_too_few_samples_say_how_many_there_are(tmp_path: Path, eleven: Any) -> None:
    files, pictures = eleven
    files = {path: data[:100] if number < 2 else data for number, (path, data) in enumerate(files.items())}
    with pytest.raises(UpstreamError, match=r"20 samples were wanted and 18 found \(passed over: 4 broken picture\)"):
        take(archives(tmp_path, files, pictures), tmp_path / "out", count=20)


def test_no_samples_at_all_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="0 found"):
        take(archives(tmp_path, {}, {}), tmp_path / "out", count=None)


def test_a_member_that_claims_to_be_small_is_read_no_further_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 100_000)
    bomb = archives(tmp_path, {"bomb.png": b"\0" * 50_000_000}, {})
    archive = Path(bomb["images"])
    assert archive.stat().st_size < 100_000
    data = WiderFace({name: Path(path) for name, path in bomb.items()}, SamplePlan())
    with data, pytest.raises(PictureError, match="file too large"):
        data.read("bomb.png")

    # The same with a directory that lies about the size.
    raw = bytearray(archive.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 24 : entry + 28] = struct.pack("<I", 1000)
    archive.write_bytes(raw)
    data = WiderFace({name: Path(path) for name, path in bomb.items()}, SamplePlan())
    with data, pytest.raises(PictureError):
        data.read("bomb.png")


@pytest.mark.parametrize("which", ["images", "annotations"])
def test_an_archive_that_is_none(tmp_path: Path, which: str, eleven: Any) -> None:
    files = archives(tmp_path, *eleven)
    Path(files[which]).write_bytes(b"not a zip archive")
    with pytest.raises(UpstreamError) as caught:
        take(files, tmp_path / "out", count=2)
    assert caught.value.where == files[which]


def test_annotations_that_are_not_in_the_archive(tmp_path: Path, eleven: Any) -> None:
    files = archives(tmp_path, *eleven)
    with pytest.raises(UpstreamError, match="wider_face_train_bbx_gt"):
        take(files, tmp_path / "out", split="train", count=2)


def test_a_damaged_member_is_passed_over(tmp_path: Path, eleven: Any) -> None:
    files = archives(tmp_path, *eleven)
    archive = Path(files["images"])
    with zipfile.ZipFile(archive) as opened:
        offset = opened.infolist()[0].header_offset
    raw = bytearray(archive.read_bytes())
    raw[offset + 120 : offset + 140] = b"\xff" * 20
    archive.write_bytes(raw)
    assert take(files, tmp_path / "out", count=None)["skipped"] == {"broken in the archive": 2}


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_ranks_are_a_total_order_that_ignores_the_listing(random: Any) -> None:
    from bot.measure.samples.candidate import Candidate, in_order

    candidates = [Candidate(f"{number % 7}.jpg", (number, 0.0, 3.5, 4)) for number in range(40)]
    shuffled = candidates * 2
    random.shuffle(shuffled)
    assert in_order(shuffled) == in_order(candidates)
    assert Counter(in_order(shuffled)) == Counter(candidates)


def test_a_plan_or_files_that_do_not_fit(tmp_path: Path, eleven: Any) -> None:
    files = archives(tmp_path, *eleven)
    with pytest.raises(RecipeError, match="split is not understood"):
        take(files, tmp_path / "out", split="test", count=2)
    with pytest.raises(StepError, match="was given"):
        take({"images": files["images"]}, tmp_path / "out", count=2)
