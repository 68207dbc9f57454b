"""Running a model over samples, for steps and measurements that look at data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.tensor_types import DTYPES

_FATAL = 4
_MAX_HEADER = 10_000

Array = NDArray[Any]


def open_session(path: Path, where: str) -> Any:
    """Opens a model on the CPU as it is written: no node is fused or folded.

    Weights are read where they lie and not packed anew, so that a large model takes its own size and no more. Nodes
    run in the order of the file: the runtime's own order would put off those that nobody waits for, and keep what they
    read.

    Args:
        path: The .onnx file.
        where: What to call the model in a message.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        StepError: The runtime refuses the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.log_severity_level = _FATAL
    options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # The runtime raises classes of its own, which differ between its versions.
        raise StepError(f"cannot be run: {_first_line(error)}", where=where) from error


class Samples:
    """What a model is fed, one sample at a time.

    Where the first axes of all arrays are equally long, that axis is the samples. Otherwise the arrays are the inputs
    of one single run. A graph whose first axis has a fixed size is fed that many samples at once.

    Args:
        feeds: Per graph input, a .npy file.
        session: The model.
        where: What to call the model in a message.
        limit: How many samples to take at most, evenly spread; 0 for all.

    Raises:
        StepError: A file is no array, an input has none, or one is for no input.
    """

    def __init__(self, feeds: Mapping[str, Path], session: Any, where: str, limit: int = 0) -> None:
        needed = {port.name for port in session.get_inputs()}
        self._ports = {port.name: port for port in [*session.get_inputs(), *session.get_overridable_initializers()]}
        self._where = where
        if not needed <= set(feeds) <= set(self._ports):
            raise StepError(
                f"takes the inputs {sorted(needed)} and was given samples of {sorted(feeds)}.",
                where=where,
                remedy="Give one array per input, by its name, as numpy.savez writes them.",
            )
        self._arrays = {name: _open(path) for name, path in feeds.items()}
        lengths = {array.shape[0] if array.ndim else None for array in self._arrays.values()}
        length = lengths.pop() if len(lengths) == 1 else None
        self.available = length if length is not None else 1
        if not self.available:
            raise StepError("was given no sample.", where=where)
        self._whole = length is None
        self.count = min(self.available, limit) if limit else self.available

    def __iter__(self) -> Iterator[dict[str, Array]]:
        if self._whole:
            yield {name: self._fitting(name, array) for name, array in self._arrays.items()}
            return
        chosen = np.linspace(0, self.available - 1, self.count).round().astype(int)
        size = self._fixed_batch()
        for start in range(0, self.count, size):
            rows = chosen[np.minimum(np.arange(start, start + size), self.count - 1)]
            yield {name: self._fitting(name, array[rows]) for name, array in self._arrays.items()}

    @property
    def runs(self) -> int:
        """How often the model will be run."""
        return 1 if self._whole else -(-self.count // self._fixed_batch())

    def _fixed_batch(self) -> int:
        sizes = {self._ports[name].shape[0] if self._ports[name].shape else None for name in self._arrays}
        size = sizes.pop() if len(sizes) == 1 else None
        return size if isinstance(size, int) and size > 0 else 1

    def _fitting(self, name: str, array: Array) -> Array:
        wanted = DTYPES.get(self._ports[name].type)
        if wanted is None:
            raise StepError(f"has an input {name!r} of the type {self._ports[name].type}.", where=self._where)
        kinds = array.dtype.kind, np.dtype(wanted).kind
        if array.dtype != wanted and kinds != ("f", "f"):
            raise StepError(f"takes {wanted} as {name!r} and was given {array.dtype}.", where=self._where)
        return np.ascontiguousarray(array, dtype=wanted).reshape(array.shape)


def run(session: Any, outputs: list[str], feeds: Mapping[str, Array], where: str) -> list[Array]:
    """One run.

    Raises:
        StepError: It failed.
    """
    try:
        return list(session.run(outputs, dict(feeds)))
    except Exception as error:
        raise StepError(f"fails when it is run: {_first_line(error)}", where=where) from error


def _open(path: Path) -> Array:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_MAX_HEADER)
    except (OSError, ValueError) as error:
        raise StepError(f"is not an array of numbers: {error}", where=str(path)) from error
    if not isinstance(array, np.ndarray):
        raise StepError("holds several arrays where one was expected.", where=str(path))
    return array


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:400]
