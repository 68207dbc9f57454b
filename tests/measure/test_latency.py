"""Timings in pairs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring_material import ignore_progress, save_graph, save_rows
from onnx import helper

from bot.errors import StepError
from bot.measure import latency, tasks
from bot.records import Measurement

ROWS = np.random.default_rng(4).normal(size=(6, 4)).astype(np.float32)


def measure(folder: Path, candidate: Path, baseline: Path, rows: np.ndarray = ROWS, **more: Any) -> list[Measurement]:
    arguments = {
        "candidate": str(candidate),
        "baseline": str(baseline),
        "feeds": {"x": save_rows(folder / "x.npy", rows)},
        "batches": [1, 5, 10],
        "provider": "cpu",
        "threads": 1,
        "seconds": 0.3,
        "artifact": "fused",
        "against": "fp16",
        "samples_digest": "a" * 64,
        **more,
    }
    answer = tasks.latency(arguments, ignore_progress)
    return [Measurement.model_validate(each) for each in answer["measurements"]]  # type: ignore[index, call-overload, union-attr]


def chain(path: Path, length: int) -> Path:
    """A network of so many products of 192 by 192."""
    weights = {"w": (np.random.default_rng(0).normal(size=(192, 192)) / 14).astype(np.float32)}
    nodes = [helper.make_node("MatMul", [f"h{step}" if step else "x", "w"], [f"h{step + 1}"]) for step in range(length)]
    nodes.append(helper.make_node("Tanh", [f"h{length}"], ["y"]))
    return save_graph(path, nodes, {"x": ["N", 192]}, {"y": ["N", 192]}, weights)


def test_every_batch_has_a_latency_and_a_speedup(tmp_path: Path, linear: Callable[..., Path]) -> None:
    found = measure(tmp_path, linear(), linear("base.onnx"))
    assert [figure.key for figure in found] == [
        f"{subject}.cpu.batch_{batch}" for batch in (1, 5, 10) for subject in ("latency", "speedup")
    ]
    for figure in found:
        assert (figure.artifact, figure.provider, figure.threads) == ("fused", "cpu", 1)
        assert figure.device and figure.runtime.startswith("onnxruntime ")
        assert len(figure.runs) >= latency.MINIMUM_RUNS
        assert "fp16" in figure.method
    time_of, ratio = found[0], found[1]
    assert (time_of.unit, time_of.metric, time_of.against) == ("ms", "median", "")
    assert time_of.value == statistics.median(time_of.runs)
    assert (ratio.unit, ratio.metric, ratio.against) == ("", "ratio", "fp16")
    pairs = zip(ratio.runs, ratio.runs_against, strict=True)
    assert ratio.value == statistics.median(against / run for run, against in pairs)


def test_eight_times_the_work_takes_several_times_as_long(tmp_path: Path) -> None:
    """On a machine that others use as well the ratio wobbles, but it never turns round."""
    rows = np.random.default_rng(1).normal(size=(256, 192)).astype(np.float32)
    short, long = chain(tmp_path / "short.onnx", 5), chain(tmp_path / "long.onnx", 40)
    (_, ratio) = measure(tmp_path, short, long, rows, batches=[256], seconds=2.0)
    (_, inverse) = measure(tmp_path, long, short, rows, batches=[256], seconds=2.0)
    (_, same) = measure(tmp_path, long, long, rows, batches=[256], seconds=2.0)
    assert 3 < ratio.value < 30
    assert 1 / 30 < inverse.value < 1 / 3
    assert 0.5 < same.value < 2


def test_runs_are_bounded_by_time_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(seconds: float, runs: int, pause: float) -> tuple[int, list[str]]:
        order: list[str] = []

        def runner(name: str) -> Callable[[], None]:
            def run() -> None:
                order.append(name)
                time.sleep(pause)

            return run

        plan = latency.Timed(Path(), Path(), "a", "b", "cpu", 1, seconds, runs, 2)
        return len(latency._pairs(runner("candidate"), runner("baseline"), plan, seconds)), order

    number, order = timed(60, 8, 0)
    assert number == 8
    assert order == ["candidate", "baseline"] * (8 + 2)
    number, _ = timed(0.02, 100, 0.004)
    assert number == latency.MINIMUM_RUNS
    assert timed(0.2, 1000, 0.004)[0] < 30


def test_a_batch_that_a_graph_does_not_allow_is_left_out(tmp_path: Path, linear: Callable[..., Path]) -> None:
    found = measure(tmp_path, linear(batch=5), linear("base.onnx"))
    assert {figure.batch for figure in found} == {5}


def test_a_provider_that_is_not_here_is_not_timed_on_the_cpu(tmp_path: Path, linear: Callable[..., Path]) -> None:
    with pytest.raises(StepError, match="not available here"):
        measure(tmp_path, linear(), linear(), provider="rocm")


def test_bound_inputs_and_outputs_give_the_same_answer(linear: Callable[..., Path]) -> None:
    """The binding that accelerators are timed with, on the CPU's own memory."""
    from bot.measure.sessions import open_session, run_once

    session = open_session(linear())
    binding = latency._bind(session, {"x": ROWS}, ["y"], "cpu")
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    (bound,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(bound, run_once(session, {"x": ROWS})["y"])
