"""Judges one converted file against its source: does it load, does it pass the checker, what does it answer, how fast.

A program of its own for `peers.py`, so that a file that takes the process down takes no other result with it. Prints
one JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[2]))

from bot.graph.inspection import inspect_model
from bot.measure.fp16_emulation import emulate

Answers = list[dict[str, np.ndarray]]


def open_session(path: Path, threads: int, *, optimise: bool = True) -> Any:
    """On the CPU provider."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def runs_of(path: Path) -> list[dict[str, np.ndarray]]:
    """The samples: one dictionary of inputs per run."""
    samples = np.load(path)
    found: dict[int, dict[str, np.ndarray]] = {}
    for key in samples.files:
        run, _, name = key.partition("/")
        found.setdefault(int(run), {})[name] = samples[key]
    return [found[run] for run in sorted(found)]


def answers_of(session: Any, runs: list[dict[str, np.ndarray]]) -> Answers:
    """What a session answers to every run, by output."""
    names = [value.name for value in session.get_outputs()]
    wanted = {value.name for value in session.get_inputs()}
    return [
        dict(zip(names, session.run(names, {key: run[key] for key in run if key in wanted}), strict=True))
        for run in runs
    ]


def reference(place: Path, threads: int) -> Answers:
    """The source's answers, which are kept beside it."""
    kept = place / "answers.npz"
    if not kept.exists():
        found = answers_of(open_session(place / "source.onnx", threads), runs_of(place / "samples.npz"))
        np.savez(kept, **{f"{run}/{name}": each[name] for run, each in enumerate(found) for name in each})
    return runs_of(kept)


def distance(expected: Answers, found: Answers, decode: str | None) -> dict[str, Any]:
    """How far answers are apart.

    Returns:
        `relative`: the largest difference of an output over that output's largest magnitude, of the worst output;
        `finite`; and `years_mean`, `years_max` where an output is an age.
    """
    outputs = expected[0].keys()
    joined = [
        {name: np.concatenate([run[name].reshape(-1) for run in each]) for name in outputs}
        for each in (expected, found)
    ]
    finite, relative = True, 0.0
    for name in outputs:
        ours, theirs = (each[name].astype(np.float64) for each in joined)
        finite = finite and bool(np.isfinite(theirs).all())
        scale = max(float(np.abs(ours).max(initial=0)), 1e-30)
        relative = max(relative, float(np.abs(ours - theirs).max(initial=0)) / scale)
    result: dict[str, Any] = {"finite": finite, "relative": relative if finite else None}
    if decode == "coral" and finite:
        ages = [np.concatenate([years(run["age_logits"]) for run in each]) for each in (expected, found)]
        away = np.abs(ages[0] - ages[1])
        result |= {"years_mean": float(away.mean()), "years_max": float(away.max())}
    return result


def years(logits: np.ndarray) -> np.ndarray:
    """CORAL: the sum of the sigmoids."""
    return (1 / (1 + np.exp(-logits.astype(np.float64)))).sum(axis=1)


def first_line(error: Exception) -> str:
    """Enough of an error for a table."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def check(path: Path) -> str:
    """What ONNX's full checker has against a file; nothing if it passes."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        return first_line(error)
    return ""


def judge_on_cpu(place: Path, path: Path, expected: Answers, about: dict[str, Any], threads: int) -> dict[str, Any]:
    """Whether it loads and runs, and what it answers."""
    runs = runs_of(place / "samples.npz")
    try:
        session = open_session(path, threads)
    except Exception as error:
        return {"loads": False, "reason": first_line(error)}
    try:
        found = answers_of(session, runs)
    except Exception as error:
        return {"loads": True, "runs": False, "reason": first_line(error)}
    return {"loads": True, "runs": True, **distance(expected, found, about.get("decode"))}


def judge_emulated(place: Path, path: Path, expected: Answers, about: dict[str, Any], threads: int) -> dict[str, Any]:
    """What half-precision hardware would answer."""
    rewritten = path.parent / "emulated" / "model.onnx"
    rewritten.parent.mkdir(exist_ok=True)
    report = emulate(path, rewritten)
    if report.status != "emulated":
        return {"status": report.status, "reason": report.reason[:300]}
    try:
        found = answers_of(open_session(rewritten, threads, optimise=False), runs_of(place / "samples.npz"))
    except Exception as error:
        return {"status": "not measured", "reason": first_line(error)}
    return {"status": "emulated", "runtime": report.runtime, **distance(expected, found, about.get("decode"))}


def time_pairs(candidate: Callable[[], Any], baseline: Callable[[], Any], seconds: float, least: int) -> dict[str, Any]:
    """The candidate's time over the baseline's, run in turns."""
    for run in (candidate, baseline):
        run()
    pairs: list[tuple[float, float]] = []
    started = time.perf_counter()
    while len(pairs) < 200 and (len(pairs) < least or time.perf_counter() - started < seconds):
        pairs.append((_time(candidate), _time(baseline)))
    return {
        "ratio": statistics.median(mine / theirs for mine, theirs in pairs),
        "candidate_ms": statistics.median(mine for mine, _ in pairs),
        "source_ms": statistics.median(theirs for _, theirs in pairs),
        "pairs": len(pairs),
    }


def _time(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def latencies(place: Path, path: Path, threads: int, seconds: float, least: int) -> dict[str, Any]:
    """The ratio per batch size, on the CPU provider."""
    sessions = [open_session(each, threads) for each in (path, place / "source.onnx")]
    found = {}
    for batch in sorted(place.glob("batch_*.npz"), key=lambda each: int(each.stem.partition("_")[2])):
        feeds = dict(np.load(batch))
        runners = [_runner(session, feeds) for session in sessions]
        found[batch.stem.partition("_")[2]] = time_pairs(runners[0], runners[1], seconds, least)
    return found


def _runner(session: Any, feeds: dict[str, np.ndarray]) -> Callable[[], Any]:
    wanted = {value.name for value in session.get_inputs()}
    fitting = {name: array for name, array in feeds.items() if name in wanted}
    return lambda: session.run(None, fitting)


def judge(place: Path, path: Path, threads: int, seconds: float, least: int) -> dict[str, Any]:
    """All that there is to say of one file."""
    about = json.loads((place / "about.json").read_text("utf-8"))
    expected = reference(place, threads)
    inspection = inspect_model(path)
    beside = [path.parent / name for name in inspection.signature.external_files]
    halves = bool(inspection.census.parameters.get("float16") or inspection.census.casts)
    result: dict[str, Any] = {
        "bytes": path.stat().st_size + sum(each.stat().st_size for each in beside),
        "nodes": inspection.census.nodes,
        "casts": inspection.census.casts,
        "checker": check(path),
        "cpu": judge_on_cpu(place, path, expected, about, threads),
    }
    result["emulated"] = judge_emulated(place, path, expected, about, threads) if halves else {"status": "no fp16"}
    if result["cpu"].get("runs"):
        result["latency"] = latencies(place, path, threads, seconds, least)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, help="the model's folder, as material.py lays it out")
    parser.add_argument("file", type=Path, help="the converted file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="for the clock, per batch size")
    parser.add_argument("--least", type=int, default=5, help="pairs of runs at least")
    given = parser.parse_args()
    print(json.dumps(judge(given.place, given.file, given.threads, given.seconds, given.least)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
