"""How long a model takes, against a baseline, in pairs.

Both run in one process, one after the other, again and again: whatever disturbs the machine disturbs both. What counts
is the ratio within each pair; the milliseconds are this machine's at this hour.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import Array, open_array
from bot.measure.providers import device_name, runtime_name
from bot.measure.samples.collect import Progress
from bot.measure.sessions import fixed_batch, inputs_of, open_session, outputs_of, run_once
from bot.records import Measurement
from bot.tensor_types import DTYPES

MINIMUM_RUNS = 5

DEVICES = {"cuda": "cuda", "tensorrt": "cuda"}
"""Providers whose inputs and outputs stay on the accelerator while the clock runs."""

_SETTINGS = {"session.force_spinning_stop": "1"}
"""Idle threads of one session would go on spinning, and take time from the other session's run."""

Runner = Callable[[], None]


@dataclass(frozen=True)
class Timed:
    """The models of a pair, and how they are run.

    Attributes:
        candidate: File of the one that is measured.
        baseline: File of the one that it is measured against.
        artifact: Key of the candidate.
        against: Key of the baseline, or `source:KEY`.
        provider: The recipe's name of it.
        threads: For one operator; 0 leaves it to the runtime.
        seconds: Time for all batch sizes together, after which no further pair is started once there are enough.
        runs: Pairs at most.
        warmup: Pairs before the clock counts.
        samples_digest: Digest of the list of samples that the feeds were made of.
    """

    candidate: Path
    baseline: Path
    artifact: str
    against: str
    provider: str
    threads: int
    seconds: float
    runs: int
    warmup: int
    samples_digest: str = ""


def measure_latency(
    timed: Timed, feeds: dict[str, Path], batches: tuple[int, ...], progress: Progress
) -> list[Measurement]:
    """Times a candidate against its baseline at several batch sizes.

    Args:
        timed: The models.
        feeds: Path of the .npy by input; samples are repeated where a batch needs more than there are.
        batches: Batch sizes. One that a graph does not allow is left out.
        progress: Told of every batch size.

    Returns:
        For each batch size, about the candidate: `latency` (median, in ms) and `speedup` (the median of the pairs'
        ratios, with the baseline's runs beside the candidate's).

    Raises:
        StepError: The provider is not here, or a model cannot be run.
    """
    sessions = [
        open_session(path, timed.provider, timed.threads, _SETTINGS) for path in (timed.candidate, timed.baseline)
    ]
    arrays = {name: open_array(path) for name, path in feeds.items()}
    found: list[Measurement] = []
    for done, batch in enumerate(batches, start=1):
        if all(fixed_batch(session) in {None, batch} for session in sessions):
            rows = {name: array[np.arange(batch) % len(array)] for name, array in arrays.items()}
            runners = [_runner(session, rows, timed.provider) for session in sessions]
            found += _figures(timed, batch, _pairs(runners[0], runners[1], timed, timed.seconds / len(batches)))
        progress(done, len(batches), f"batch {batch}")
    return found


def _pairs(candidate: Runner, baseline: Runner, timed: Timed, seconds: float) -> list[tuple[float, float]]:
    """Milliseconds of candidate and baseline, pair by pair, for about so many seconds."""
    started = time.perf_counter_ns()
    for turn in range(max(timed.warmup, 1)):
        if turn and _seconds_since(started) > seconds / 2:
            break
        candidate()
        baseline()
    pairs: list[tuple[float, float]] = []
    wanted = max(timed.runs, MINIMUM_RUNS)
    while len(pairs) < wanted:
        if len(pairs) >= MINIMUM_RUNS and _seconds_since(started) > seconds:
            break
        pairs.append((_milliseconds(candidate), _milliseconds(baseline)))
    return pairs


def _milliseconds(run: Runner) -> float:
    started = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - started) / 1e6


def _seconds_since(started: int) -> float:
    return (time.perf_counter_ns() - started) / 1e9


def _runner(session: Any, feeds: dict[str, Array], provider: str) -> Runner:
    """A function of no arguments that runs the model once, and returns when the answer is there."""
    run_once(session, feeds)
    fitting = {port.name: np.ascontiguousarray(feeds[port.name], DTYPES[port.kind]) for port in inputs_of(session)}
    names = [port.name for port in outputs_of(session)]
    if provider not in DEVICES:
        return lambda: session.run(names, fitting)
    binding = _bind(session, fitting, names, DEVICES[provider])

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def _bind(session: Any, feeds: dict[str, Array], outputs: list[str], device: str) -> Any:
    """Puts the inputs on the accelerator once, and keeps the outputs there: copies are not what is timed."""
    import onnxruntime

    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
    for name in outputs:
        binding.bind_output(name, device, 0)
    binding.synchronize_inputs()
    return binding


def _figures(timed: Timed, batch: int, pairs: list[tuple[float, float]]) -> list[Measurement]:
    runs, runs_against = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    if min(*runs, *runs_against) <= 0:
        raise StepError("the clock is too coarse for this model", where=timed.artifact)
    where = "inputs and outputs bound on the device" if timed.provider in DEVICES else "inputs in memory"
    how = f"of {len(pairs)} runs with {where}, interleaved with {timed.against} in one process after a warm-up"
    common: dict[str, Any] = {
        "artifact": timed.artifact,
        "provider": timed.provider,
        "device": device_name(timed.provider),
        "runtime": runtime_name(),
        "batch": batch,
        "threads": timed.threads or None,
        "samples": batch,
        "samples_digest": timed.samples_digest,
    }

    ratios = [against / run for run, against in pairs]
    return [
        Measurement(
            subject="latency",
            metric="median",
            value=statistics.median(runs),
            unit="ms",
            method=f"median {how}",
            runs=runs,
            **common,
        ),
        Measurement(
            subject="speedup",
            metric="ratio",
            value=statistics.median(ratios),
            against=timed.against,
            method=f"median of the baseline's time divided by the candidate's, pair by pair, {how}",
            runs=runs,
            runs_against=runs_against,
            **common,
        ),
    ]
