"""A folder of pictures with a list beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring_material import drawn_face, encoded, ignore_progress

from bot.errors import UpstreamError
from bot.measure import tasks


def write_folder(root: Path, entries: list[dict[str, Any]] | str) -> dict[str, str]:
    """Six drawn pictures and a list."""
    (root / "images").mkdir(parents=True, exist_ok=True)
    for number in range(6):
        (root / "images" / f"{number}.jpg").write_bytes(encoded(drawn_face(number), "JPEG", quality=95))
    text = entries if isinstance(entries, str) else "".join(json.dumps(entry) + "\n" for entry in entries)
    (root / "metadata.jsonl").write_text(text, "utf-8")
    return {"images": str(root / "images"), "metadata": str(root / "metadata.jsonl")}


def take(files: dict[str, str], out: Path, **plan: Any) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    small, large = {"size": [8, 8]}, {"size": [20, 20], "color": "BGR"}
    inputs = {"small/x": {"image": small}, "large/x": {"image": large}}
    arguments = {"loader": "image_folder", "files": files, "plan": plan, "inputs": inputs, "out": str(out)}
    answer = tasks.samples(arguments, ignore_progress)
    assert isinstance(answer, dict)
    return answer


def test_labels_boxes_and_one_array_per_input(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"file_name": f"images/{number}.jpg", "gender": ["female", "male"][number % 2]} for number in range(5)
    ]
    entries.append({"file_name": "images/5.jpg", "bbox": [4, 5.5, 30, 40]})
    files = write_folder(tmp_path / "data", entries)

    answer = take(files, tmp_path / "out", count=6)

    picture = (tmp_path / "data" / "images" / "5.jpg").read_bytes()
    boxed = hashlib.sha256(picture + b"[4,5.5,30,40]").hexdigest()
    labels = {sample["digest"]: sample["label"] for sample in answer["samples"]}
    assert labels[boxed] is None
    whole = hashlib.sha256((tmp_path / "data" / "images" / "3.jpg").read_bytes() + b"null").hexdigest()
    assert labels[whole] == {"gender": "male"}
    assert np.load(tmp_path / "out" / "small__x.npy").shape == (6, 3, 8, 8)
    assert np.load(tmp_path / "out" / "large__x.npy").shape == (6, 3, 20, 20)


def test_all_there_are_when_no_number_is_asked_for(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "data", [{"file_name": f"images/{number}.jpg"} for number in range(6)])
    assert take(files, tmp_path / "out")["count"] == 6


def test_small_pictures_and_small_boxes_are_passed_over(tmp_path: Path) -> None:
    entries = [{"file_name": "images/0.jpg"}, {"file_name": "images/1.jpg", "bbox": [0, 0, 99, 20]}]
    files = write_folder(tmp_path / "data", entries)
    assert take(files, tmp_path / "out", minimum_px=96)["skipped"] == {"smaller than minimum_px": 1}
    with pytest.raises(UpstreamError, match="0 found"):
        take(files, tmp_path / "out", minimum_px=97)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[1, 2]", "has no file_name"),
        ("{'file_name': 1}", "is not a JSON object"),
        ('{"file_name": 7}', "has no file_name"),
        ('{"file_name": "images/0.jpg", "age": NaN}', "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
        ('{"file_name": "../secret.jpg"}', "leads out of the folder"),
        ('{"file_name": "/etc/passwd"}', "leads out of the folder"),
        ('{"file_name": "images\\\\..\\\\0.jpg"}', "leads out of the folder"),
        ('{"file_name": ""}', "leads out of the folder"),
        ('{"file_name": "images/0.jpg", "bbox": [1, 2, 3]}', "bbox"),
        ('{"file_name": "images/0.jpg", "bbox": [1, 2, 0, 5]}', "bbox"),
        ('{"file_name": "images/0.jpg", "bbox": [1, 2, true, 5]}', "bbox"),
        ('{"file_name": "images/0.jpg", "bbox": {"x": 1}}', "bbox"),
        ('{"file_name": "' + "a" * 2_000_000 + '"}', "too long"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    files = write_folder(tmp_path / "data", '{"file_name": "images/0.jpg"}\n\n' + line + "\n")
    with pytest.raises(UpstreamError, match=what) as caught:
        take(files, tmp_path / "out")
    assert caught.value.where == f"{files['metadata']}:3"


def test_a_picture_that_is_not_there(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "data", [{"file_name": "images/0.jpg"}, {"file_name": "images/none.jpg"}])
    assert take(files, tmp_path / "out")["skipped"] == {"picture missing": 1}


def test_no_list(tmp_path: Path) -> None:
    files = write_folder(tmp_path / "data", [])
    Path(files["metadata"]).unlink()
    with pytest.raises(UpstreamError, match="cannot be read") as caught:
        take(files, tmp_path / "out")
    assert caught.value.where == files["metadata"]
