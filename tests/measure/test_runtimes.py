"""Older versions of the runtime, from the package index, and opening files in them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from measuring_material import ignore_progress, save_graph, save_rows
from onnx import helper

from bot.errors import RecipeError, StepError
from bot.measure import runtimes, tasks
from bot.measure.runtimes import ensure_runtime, oldest_version
from bot.worker import Worker

ROWS = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime that the recipes promise, in its folder. Two processes at once want it."""
    cache = tmp_path_factory.mktemp("runtimes")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: ensure_runtime("onnxruntime>=1.22", cache), range(2))
    assert first == second
    assert [path.name for path in cache.iterdir()] == [first.name]
    return first


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        ("onnxruntime>=1.22", "1.22"),
        (" onnxruntime >= 1.20.1 ", "1.20.1"),
        ("onnxruntime-gpu>=1.22,<2", "1.22"),
        ("onnxruntime==1.23.0", "1.23.0"),
    ],
)
def test_the_oldest_version_of_a_requirement(requirement: str, version: str) -> None:
    assert oldest_version(requirement) == version


@pytest.mark.parametrize(
    "requirement", ["onnxruntime", "onnxruntime<2", "onnx>=1.22", "onnxruntime>=1.22 --index-url=x", "", "-r file"]
)
def test_a_requirement_without_an_oldest_version(requirement: str) -> None:
    with pytest.raises(RecipeError, match="does not name the oldest runtime"):
        oldest_version(requirement)


def test_the_old_runtime_imports_beside_the_new_one(oldest: Path) -> None:
    code = "import onnxruntime, numpy; print(onnxruntime.__version__)"
    answer = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(oldest)}, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "1.22.0"


def test_what_is_there_is_not_installed_again(oldest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be started")

    monkeypatch.setattr(runtimes, "_run", refuse)
    assert ensure_runtime("onnxruntime>=1.22", oldest.parent) == oldest


def test_without_a_network_the_error_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(StepError, match=r"onnxruntime 1\.22 cannot be installed: ERROR") as caught:
        ensure_runtime("onnxruntime>=1.22", tmp_path / "cache")
    assert "Check the network" in caught.value.remedy
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_version_that_never_was(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"onnxruntime 1\.22\.77 cannot be installed"):
        ensure_runtime("onnxruntime==1.22.77", tmp_path)


def test_a_file_opens_in_both_runtimes(tmp_path: Path, linear: Callable[..., Path], oldest: Path) -> None:
    model, feeds = linear(), {"x": save_rows(tmp_path / "x.npy", ROWS)}
    (tmp_path / "out").mkdir()
    tasks.run({"model": str(model), "feeds": feeds, "out": str(tmp_path / "out"), "batch": 5}, ignore_progress)
    arguments = {"model": str(model), "feeds": feeds, "expected": {"y": str(tmp_path / "out" / "y.npy")}}
    for extra, version in (([], onnxruntime.__version__), ([oldest], "1.22.0")):
        answer = Worker().call("measure.open", arguments, reads=[tmp_path], extra_path=extra)
        assert answer["runtime"] == f"onnxruntime {version}"
        assert answer["ok"], answer["reason"]
        assert answer["max_absolute"] < 1e-6


def test_a_file_that_only_the_new_runtime_reads(tmp_path: Path, oldest: Path) -> None:
    """IR version 13 came after ONNX Runtime 1.22."""
    import onnx

    node = helper.make_node("Abs", ["x"], ["y"])
    path = save_graph(tmp_path / "new.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]})
    model = onnx.load(path)
    model.ir_version = 13
    onnx.save(model, path)
    arguments = {"model": str(path), "feeds": {"x": save_rows(tmp_path / "x.npy", ROWS)}, "expected": None}
    assert Worker().call("measure.open", arguments, reads=[tmp_path])["ok"]
    answer = Worker().call("measure.open", arguments, reads=[tmp_path], extra_path=[oldest])
    assert not answer["ok"]
    assert "cannot open it" in answer["reason"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y + 1, "the output y differs by 1"),
        (lambda y: y[:, :2], "another shape"),
        (lambda y: np.where(np.arange(3) == 1, np.nan, y), "another shape, or is not finite"),
    ],
)
def test_an_answer_that_is_not_the_expected_one(
    tmp_path: Path, linear: Callable[..., Path], change: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    model, feeds = linear(), {"x": save_rows(tmp_path / "x.npy", ROWS)}
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wrong = save_rows(tmp_path / "y.npy", change(session.run(None, {"x": ROWS})[0]))
    answer = tasks.open_model({"model": str(model), "feeds": feeds, "expected": {"y": wrong}}, ignore_progress)
    assert isinstance(answer, dict)
    assert answer["ok"] is False
    assert words in str(answer["reason"])


def test_an_answer_that_is_not_finite_is_never_ok(tmp_path: Path) -> None:
    node = helper.make_node("Log", ["x"], ["y"])
    model = save_graph(tmp_path / "log.onnx", [node], {"x": ["N", 4]}, {"y": ["N", 4]})
    feeds = {"x": save_rows(tmp_path / "x.npy", -np.abs(ROWS))}
    answer = tasks.open_model({"model": str(model), "feeds": feeds, "expected": None}, ignore_progress)
    assert answer == {
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "ok": False,
        "reason": "y is not finite",
        "max_absolute": None,
    }
