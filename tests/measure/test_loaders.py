"""What a loader reads, asked for before anything is fetched."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bot.measure.samples import parse_plan, required_files


def test_the_files_of_each_loader() -> None:
    assert required_files("wider_face", {"split": "validation", "count": 200, "minimum_px": 32, "repo": "a/b"}) == {
        "images": "data/WIDER_val.zip",
        "annotations": "data/wider_face_split.zip",
    }
    assert required_files("wider_face", {"split": "train"})["images"] == "data/WIDER_train.zip"
    assert required_files("image_folder", {}) == {"images": "images/*", "metadata": "metadata.jsonl"}


@pytest.mark.parametrize(
    ("loader", "plan", "words"),
    [
        ("imagenet", {}, "no loader of samples named 'imagenet'"),
        ("wider_face", {"split": "test"}, "split is not understood"),
        ("wider_face", {"count": 0}, "count is not understood"),
        ("wider_face", {"minimum": 3}, "minimum is not understood"),
    ],
)
def test_what_a_plan_cannot_say(loader: str, plan: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        required_files(loader, plan)  # type: ignore[arg-type]


def test_what_belongs_to_fetching_is_passed_over() -> None:
    plan = parse_plan("wider_face", {"loader": None, "repo": "a/b", "revision": "main", "count": 3})
    assert plan.count == 3


def test_asking_imports_nothing_heavy() -> None:
    light = ["samples", "providers", "runtimes", "tasks"]
    heavy = ["numpy", "PIL", "onnx", "onnxruntime", "torch"]
    code = f"import sys\nfrom bot.measure import {', '.join(light)}\nprint([n for n in {heavy} if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
