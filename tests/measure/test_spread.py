"""How far a figure may be off: measured by running in another way, and wide enough for what other ways there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.graph.tasks import step
from bot.measure.run import run_model
from bot.measure.sessions import open_session, run_rows
from bot.measure.spread import FACTOR, HALF_SHARE, LIMIT, SHARE, spread, spread_of
from bot.measure.tasks import compare
from tests.world import network

PLANS = {
    "score": {
        "decode": "expectation",
        "from": "probabilities",
        "values": [0, 1, 2, 3, 4],
        "metrics": ["mean_absolute"],
    },
    "class": {"decode": "argmax", "from": "probabilities", "metrics": ["agreement"]},
}


def _silent(*_: object) -> None:
    """Listens and says nothing."""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the task is told about a network, its conversion to half precision, and more samples than are run again."""
    folder = tmp_path_factory.mktemp("spread")
    source, candidate, feed = folder / "source.onnx", folder / "half" / "model.onnx", folder / "images.npy"
    source.write_bytes(network())
    candidate.parent.mkdir()
    step({"step": "float16", "source": str(source), "output": str(candidate), "scratch": str(folder)}, _silent)
    samples = 2 * LIMIT + 5
    np.save(feed, np.random.default_rng(0).normal(size=(samples, 3, 32, 32)).astype(np.float32))
    outputs = {}
    for name, model in (("source", source), ("candidate", candidate)):
        out = folder / f"{name}-answers"
        out.mkdir()
        answer: Any = run_model(model, {"images": feed}, 8, "cpu", 1, out, _silent)
        outputs[name] = {key: each["file"] for key, each in answer["outputs"].items()}
    return {
        **outputs,
        "plans": PLANS,
        "samples": [f"{index:064x}" for index in range(samples)],
        "artifact": "half",
        "source_model": str(source),
        "candidate_model": str(candidate),
        "feeds": {"images": str(feed)},
    }


def _figures(arguments: dict[str, Any]) -> dict[str, float]:
    names = ("source", "candidate", "plans", "samples", "artifact")
    found: Any = compare({name: arguments[name] for name in names}, _silent)
    return {f"{each['subject']}.{each['metric']}": each["value"] for each in found["measurements"]}


def test_every_figure_of_a_comparison_gets_a_change(arguments: dict[str, Any]) -> None:
    told: list[int] = []
    answer: Any = spread(arguments, lambda done, total, what: told.append(total))
    figures = _figures(arguments)
    assert answer["changes"].keys() == figures.keys() and max(told) <= LIMIT
    assert 0 < answer["changes"]["score.mean_absolute"] < 0.01 * figures["score.mean_absolute"]


@pytest.mark.parametrize(("level", "batch", "threads"), [("basic", 7, 2), ("all", 1, 1), ("all", 64, 2)])
def test_another_way_of_running_stays_within_the_spread(
    arguments: dict[str, Any], level: Any, batch: int, threads: int, tmp_path: Path
) -> None:
    answer: Any = spread(arguments, _silent)
    other = dict(arguments)
    for name in ("source", "candidate"):
        session = open_session(arguments[f"{name}_model"], "cpu", threads, level=level)
        feeds = {"images": np.load(arguments["feeds"]["images"])}
        rows = [block["probabilities"] for _, block in run_rows(session, feeds, batch)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(rows))
        other[name] = {"probabilities": str(tmp_path / f"{name}.npy")}
    now = _figures(other)
    for key, value in _figures(arguments).items():
        assert abs(now[key] - value) <= spread_of(value, answer["changes"][key], half=False), key


def test_what_no_onnx_file_stands_for_is_not_run_again(arguments: dict[str, Any]) -> None:
    answer: Any = spread({**arguments, "source_model": ""}, _silent)
    assert answer["changes"]["score.mean_absolute"] > 0


@given(st.floats(0, 1e6), st.floats(0, 1e3), st.booleans())
def test_a_spread_is_ten_changes_and_at_least_a_share(value: float, change: float, half: bool) -> None:
    found = spread_of(value, change, half=half)
    assert found >= FACTOR * change and found >= (HALF_SHARE if half else SHARE) * value
    assert found in (FACTOR * change, (HALF_SHARE if half else SHARE) * value)
    assert spread_of(-value, -change, half=half) == found
