"""Opening model files in ONNX Runtime, and running them over arrays of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bot.errors import StepError
from bot.measure.arrays import Array
from bot.measure.providers import built_with, check_providers_of
from bot.tensor_types import DTYPES

_FATAL = 4

OPENERS: dict[str, Callable[[Path, int], Any]] = {}
"""Ways to open what is no ONNX file: from the end of its name to a function of the path and the number of threads.

It gives an object with the methods of a session that are used here. `bot.reference` enters one for torch modules.
"""


@dataclass(frozen=True)
class Port:
    """An input or an output of a session: a size per axis, or a symbol, or None."""

    name: str
    kind: str
    shape: tuple[int | str | None, ...]


def open_session(
    model: str | Path | bytes,
    provider: str = "cpu",
    threads: int = 0,
    settings: dict[str, str] | None = None,
    level: Literal["all", "basic"] = "all",
) -> Any:
    """Opens a model on one provider, and makes sure that it is that provider.

    Args:
        model: Path of the file, or its bytes.
        provider: The recipe's name of it.
        threads: For one operator; 0 leaves it to the runtime.
        settings: Further session settings by ONNX Runtime's keys.
        level: How much the runtime may rewrite the graph; `basic` leaves out what it does for one kind of processor.

    Returns:
        An `onnxruntime.InferenceSession`, or what stands for one; see `OPENERS`.

    Raises:
        StepError: The provider is not here, or the runtime refuses the file.
    """
    import onnxruntime

    for ending, opener in OPENERS.items():
        if not isinstance(model, bytes) and str(model).endswith(ending):
            return opener(Path(model), threads)
    name = built_with(provider)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    if level == "basic":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    for key, value in (settings or {}).items():
        options.add_session_config_entry(key, value)
    where = "model" if isinstance(model, bytes) else Path(model).name
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = onnxruntime.InferenceSession(source, options, providers=[name], enable_fallback=0)
    except Exception as error:
        # The runtime raises classes of its own, which differ between its versions.
        raise StepError(f"the runtime cannot open it: {first_line(error)}", where=where) from error
    check_providers_of(session, provider)
    return session


def inputs_of(session: Any) -> list[Port]:
    """The inputs that must be fed, in the graph's order."""
    return [Port(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]


def outputs_of(session: Any) -> list[Port]:
    """The outputs, in the graph's order."""
    return [Port(item.name, item.type, tuple(item.shape)) for item in session.get_outputs()]


def run_once(session: Any, feeds: dict[str, Array], where: str = "model") -> dict[str, Array]:
    """One run.

    Args:
        session: The session.
        feeds: Array by input; a float array is cast to the float type of its input.
        where: Name of the model, for errors.

    Returns:
        Array by output.

    Raises:
        StepError: An input is missing, unknown or of the wrong type, the run fails, or an output is no tensor of
            numbers.
    """
    ports = {port.name: port for port in inputs_of(session)}
    if set(feeds) != set(ports):
        raise StepError(f"takes the inputs {sorted(ports)} and was fed {sorted(feeds)}", where=where)
    names = [port.name for port in outputs_of(session)]
    try:
        values = session.run(names, {name: _fitting(array, ports[name], where) for name, array in feeds.items()})
    except StepError:
        raise
    except Exception as error:
        raise StepError(f"the runtime cannot run it: {first_line(error)}", where=where) from error
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            raise StepError(f"the output {name} is no tensor of numbers", where=where)
    return dict(zip(names, values, strict=True))


def _fitting(array: Array, port: Port, where: str) -> Array:
    dtype = DTYPES.get(port.kind)
    if dtype is None:
        raise StepError(f"the input {port.name} is a {port.kind}, which cannot be fed", where=where)
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    if array.dtype.kind == "f" and np.dtype(dtype).kind == "f":
        return np.ascontiguousarray(array, dtype=dtype)
    raise StepError(f"the input {port.name} takes {dtype} and was fed {array.dtype}", where=where)


def fixed_batch(session: Any) -> int | None:
    """The size of the inputs' first axis where the graph fixes it for all of them alike, else None."""
    sizes = {port.shape[0] if port.shape else None for port in inputs_of(session)}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def run_rows(
    session: Any, feeds: dict[str, Array], batch: int, where: str = "model"
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Runs a model over all samples, some at a time.

    Where the graph fixes the batch, that one is used, and the last is filled up with repetitions, which are dropped.

    Args:
        session: The session.
        feeds: Array by input, one row per sample.
        batch: Samples per run.
        where: Name of the model, for errors.

    Yields:
        How many samples are done, and the rows of each output.

    Raises:
        StepError: Inputs differ in their number of rows, or an output does not have one row per sample.
    """
    counts = {len(array) for array in feeds.values()}
    if len(counts) != 1 or not counts - {0}:
        raise StepError(f"the inputs hold {sorted(counts)} samples", where=where)
    count = counts.pop()
    size = fixed_batch(session) or batch
    for start in range(0, count, size):
        rows = min(size, count - start)
        filled = size if fixed_batch(session) else rows
        index = np.minimum(np.arange(start, start + filled), count - 1)
        answers = run_once(session, {name: array[index] for name, array in feeds.items()}, where)
        yield start + rows, {name: _rows_of(name, array, filled, where)[:rows] for name, array in answers.items()}


def _rows_of(name: str, array: Array, filled: int, where: str) -> Array:
    if array.ndim and array.shape[0] == filled:
        return array
    if filled == 1:
        return array[None]
    raise StepError(
        f"the output {name} of shape {list(array.shape)} does not have a row for each of {filled} samples",
        where=where,
        remedy="Measure it with a batch of 1.",
    )


def first_line(error: BaseException) -> str:
    """What a library says, cut to one line."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:400]
