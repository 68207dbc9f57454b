"""Runs files on one device with inputs and outputs bound there, and measures what the device can do at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}

GRAPH_ID = "gpu_graph_id"
"""Run option by which ONNX Runtime keeps a captured CUDA graph per shape; -1 captures none."""


class NoDeviceError(Exception):
    """The device is not here; the message says what would be needed."""


def require_cuda() -> None:
    """Makes sure that ONNX Runtime really runs on CUDA here.

    Raises:
        NoDeviceError: It does not.
    """
    from bot.measure import availability

    if PROVIDERS["cuda"] not in onnxruntime.get_available_providers():
        raise NoDeviceError(
            f"onnxruntime {onnxruntime.__version__} was built without CUDA: this benchmark needs an NVIDIA GPU, and "
            "onnxruntime-gpu in place of onnxruntime"
        )
    if "cuda" not in availability.available():
        raise NoDeviceError("onnxruntime has the CUDA provider and it does not start: driver or libraries are missing")


@dataclass
class Bound:
    """A file in a session, with its inputs and outputs at fixed places on the device for one batch size.

    Attributes:
        session: The session.
        binding: What is bound.
        outputs: Per output, the value on the device.
        options: Of a run.
    """

    session: Any
    binding: Any
    outputs: dict[str, Any]
    options: Any

    def run(self) -> None:
        """One run; returns when the answer is there."""
        self.session.run_with_iobinding(self.binding, self.options)
        self.binding.synchronize_outputs()

    def answers(self) -> dict[str, np.ndarray]:
        """What the last run answered."""
        return {name: value.numpy() for name, value in self.outputs.items()}


@dataclass(frozen=True)
class Device:
    """How sessions are opened.

    Attributes:
        provider: `cuda`, or `cpu` to try the same path without a GPU.
        graphs: Capture the work of a run as one CUDA graph.
        strict: The option `enable_skip_layer_norm_strict_mode`.
        threads: Of the CPU provider; 0 leaves it to the runtime.
    """

    provider: str = "cuda"
    graphs: bool = False
    strict: bool = False
    threads: int = 0
    options: dict[str, str] = field(default_factory=dict)

    def provider_options(self) -> dict[str, str]:
        """What the provider is told."""
        if self.provider != "cuda":
            return {}
        told = dict(self.options)
        told["enable_cuda_graph"] = "1" if self.graphs else "0"
        if self.strict:
            told["enable_skip_layer_norm_strict_mode"] = "1"
        return told

    def open(self, path: Path) -> Any:
        """A session that runs on this provider and on no other.

        Raises:
            NoDeviceError: It would run on another one.
        """
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = self.threads
        # A node that fell back to the CPU would be timed as if it were the GPU's; a CUDA graph cannot hold it either.
        if self.provider != "cpu":
            settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        name = PROVIDERS[self.provider]
        session = onnxruntime.InferenceSession(str(path), settings, providers=[(name, self.provider_options())])
        if session.get_providers()[0] != name:
            raise NoDeviceError(f"the session of {path.name} would run on {session.get_providers()[0]}")
        return session

    def bind(self, session: Any, feeds: dict[str, np.ndarray], number: int) -> Bound:
        """Puts inputs on the device and makes room there for the outputs, whose shapes one plain run tells.

        Args:
            session: From `open`.
            feeds: The inputs of one run.
            number: Of the batch size among those of the session, from 1 on: the captured graph's.
        """
        options = onnxruntime.RunOptions()
        plain = session.io_binding()
        inputs = {value.name: self._value(feeds[value.name]) for value in session.get_inputs()}
        binding = session.io_binding()
        for name, value in inputs.items():
            plain.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_input(name, value)
        for each in session.get_outputs():
            plain.bind_output(each.name, self.provider, 0)
        first = onnxruntime.RunOptions()
        if self.graphs and self.provider == "cuda":
            first.add_run_config_entry(GRAPH_ID, "-1")
            options.add_run_config_entry(GRAPH_ID, str(number))
        session.run_with_iobinding(plain, first)
        outputs = {}
        for each, found in zip(session.get_outputs(), plain.get_outputs(), strict=True):
            outputs[each.name] = self._value(np.zeros(found.shape(), _dtype(found)))
            binding.bind_ortvalue_output(each.name, outputs[each.name])
        return Bound(session, binding, outputs, options)

    def _value(self, array: np.ndarray) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self.provider, 0)


def _dtype(value: Any) -> Any:
    kind = value.data_type().removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))


def in_turns(runs: Sequence[Callable[[], None]], seconds: float, warmup: int = 5, least: int = 20) -> list[float]:
    """The median time of each of several runs in milliseconds, taken in turns for about so many seconds in all."""
    for run in runs:
        for _ in range(warmup):
            run()
    times: list[list[float]] = [[] for _ in runs]
    started = time.perf_counter()
    while len(times[0]) < least or time.perf_counter() - started < seconds:
        for place, run in enumerate(runs):
            before = time.perf_counter_ns()
            run()
            times[place].append((time.perf_counter_ns() - before) / 1e6)
    return [statistics.median(each) for each in times]


# --- what the device can do at most ----------------------------------------------------------------------------------


def product_model(size: int, count: int) -> bytes:
    """So many products of square float16 matrices, one after the other."""
    names = ["x", *(f"y{number}" for number in range(count))]
    nodes = [helper.make_node("MatMul", [first, "w"], [second]) for first, second in pairwise(names)]
    return _model(nodes, [("x", [size, size]), ("w", [size, size])], (names[-1], [size, size]))


def copy_model(numbers: int) -> bytes:
    """A copy of so many float16 numbers with their sign changed, which no optimiser takes away."""
    return _model([helper.make_node("Neg", ["x"], ["y"])], [("x", [numbers])], ("y", [numbers]))


def _model(nodes: list[Any], inputs: list[tuple[str, list[int]]], output: tuple[str, list[int]]) -> bytes:
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, shape) for name, shape in (*inputs, output)]
    graph = helper.make_graph(nodes, "peak", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


def peaks(
    device: Device, folder: Path, size: int = 8192, numbers: int = 1 << 28, seconds: float = 3.0
) -> dict[str, float]:
    """What the device does at most: operations and bytes a second, in float16, as ONNX Runtime's own kernels do them.

    Args:
        device: The device.
        folder: For the models.
        size: Of the square matrices.
        numbers: In the vector that is copied; it should not fit into a cache.
        seconds: For each of the two.

    Returns:
        `flops_per_s` and `bytes_per_s`.
    """
    rng = np.random.default_rng(0)
    count = 4
    matrix = (rng.standard_normal((size, size), np.float32) / size**0.5).astype(np.float16)
    product = _bound(device, folder / "product.onnx", product_model(size, count), {"x": matrix, "w": matrix})
    copied = _bound(device, folder / "copy.onnx", copy_model(numbers), {"x": np.ones(numbers, np.float16)})
    (product_ms,) = in_turns([product.run], seconds)
    (copy_ms,) = in_turns([copied.run], seconds)
    return {
        "flops_per_s": count * 2 * size**3 / product_ms * 1e3,
        "bytes_per_s": 2 * 2 * numbers / copy_ms * 1e3,
    }


def _bound(device: Device, path: Path, model: bytes, feeds: dict[str, np.ndarray]) -> Bound:
    path.write_bytes(model)
    return device.bind(device.open(path), feeds, 1)
