"""The worker's task: runs a half-precision model over samples as hardware would, and names what overflowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bot.errors import StepError
from bot.measure.arguments import read_arguments
from bot.measure.arrays import Array, RowWriter, npy_name, open_array
from bot.measure.fp16_emulation import DEFAULT_RUNTIME, load, prepare, save
from bot.measure.fp16_kernels import NotEmulatedError
from bot.measure.fp16_rewrite import Rewritten
from bot.measure.fp16_trace import Overflow, Probe, asked, count, guilty, suspects, watch
from bot.records import Json, Record

PROVIDER = "fp16-emulation"

Progress = Callable[[int, int, str], None]


class EmulatedRun(Record):
    """What `emulated_run` takes.

    Attributes:
        model: The ONNX file.
        feeds: Graph input to a .npy file, whose first axis is the samples.
        batch: Samples per run; a model whose first axis is fixed is run at that.
        threads: Of the runtime.
        out: The folder for the outputs.
        scratch: A folder for the emulated models.
        runtime: See `fp16_emulation.emulate`.
    """

    model: str
    feeds: dict[str, str]
    batch: int
    threads: int
    out: str
    scratch: str
    runtime: str = DEFAULT_RUNTIME


def emulated_run(arguments: dict[str, Json], progress: Progress) -> Json:
    """Run a model in emulated half precision.

    Args:
        arguments: See `EmulatedRun`.
        progress: Is told the samples done, all samples, and what goes on.

    Returns:
        `outputs` (output to `file`, `dtype`, `shape`), empty if the model cannot be emulated; `provider`, `runtime`;
        `ok`, whether every output is finite; `reason`, in words; `overflowed`, the nodes that made infinities or NaN
        out of finite numbers, worst first, as `fp16_trace.Overflow`; `half_kernels`, the operators whose kernel is
        known to hold intermediate results in half.

    Raises:
        StepError: The model or a feed cannot be read.
    """
    request = read_arguments(EmulatedRun, arguments)
    model, scratch = Path(request.model), Path(request.scratch)
    proto = load(model)
    try:
        done = prepare(proto, request.runtime)
    except NotEmulatedError as refusal:
        return _answer(request, {}, False, f"cannot be emulated: {refusal}", [], {})
    names = [value.name for value in proto.graph.output]
    probe = watch(proto.graph, done)
    save(proto, model, scratch / "watched.onnx")
    del proto
    try:
        check_rounding()
        run = _Run(_session(scratch / "watched.onnx", request.threads), request)
        finding = run.all(names, probe, progress)
        del run
        found = _name_the_guilty(request, done, finding, progress)
    except _RuntimeRefusedError as refusal:
        return _answer(request, {}, False, f"the emulated model does not run: {refusal}", [], done.half_kernels)
    ok = not finding.bad
    return _answer(request, finding.files, ok, _reason(finding, found, done), found, done.half_kernels)


def _answer(
    request: EmulatedRun,
    files: dict[str, Json],
    ok: bool,
    reason: str,
    found: Sequence[Overflow],
    half_kernels: Mapping[str, str],
) -> Json:
    import onnxruntime

    return {
        "outputs": files,
        "provider": PROVIDER,
        "device": request.runtime,
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "ok": ok,
        "reason": reason,
        "overflowed": [asdict(each) for each in found],
        "half_kernels": dict(half_kernels),
    }


class _RuntimeRefusedError(Exception):
    """The runtime has no kernel for the emulated model, or failed in it."""


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Off, so that no fusion takes a rounding between two nodes away and no weight is widened when the file loads.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # In the order of the file, where what watches a value stands beside it: the value need not wait for the end.
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has no common class for its errors
        raise _RuntimeRefusedError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def check_rounding() -> None:
    """Make sure that this runtime rounds in a pair of casts and keeps the pair.

    Raises:
        StepError: It does not.
    """
    import numpy as np
    import onnx
    import onnxruntime

    helper = onnx.helper
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=10),
        helper.make_node("Cast", ["half"], ["y"], to=1),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "rounding", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = np.array([0.1, 2049, 2051, 65519.996, 65520, 1e-7, 2.0**-25, -3e-8, 1e-9, -0.0], np.float32)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    (got,) = session.run(None, {"x": values})
    if expected.tobytes() != got.tobytes():
        raise StepError("this ONNX Runtime does not round float32 to float16 exactly", where=onnxruntime.__version__)


@dataclass
class _Finding:
    """What a run over all samples showed.

    Attributes:
        files: Output to its file, dtype and shape.
        bad: Outputs that hold NaN or infinities, with how many.
        flagged: Values that may not be finite.
        rows: The first batch that is to be looked at more closely, as (start, end).
        samples: In all.
    """

    files: dict[str, Json]
    bad: dict[str, int]
    flagged: set[str]
    rows: tuple[int, int] | None
    samples: int


class _Run:
    """Feeds samples to a session, a batch at a time."""

    def __init__(self, session: Any, request: EmulatedRun) -> None:
        self.session = session
        self.request = request
        self.feeds = {name: open_array(path) for name, path in request.feeds.items()}
        self.inputs = {each.name: each for each in session.get_inputs()}
        missing = sorted(self.inputs.keys() - self.feeds.keys())
        if missing:
            raise StepError(f"nothing is fed to the graph input {missing[0]!r}", where=request.model)

    def batches(self) -> Iterator[tuple[int, int]]:
        """The rows of each batch, as (start, end)."""
        samples = self.samples
        fixed = [each.shape[0] for each in self.inputs.values() if each.shape and isinstance(each.shape[0], int)]
        size = fixed[0] if fixed else max(1, self.request.batch)
        if samples % size and fixed:
            raise _RuntimeRefusedError(f"it takes {size} samples at a time and {samples} are no multiple of that")
        for start in range(0, samples, size):
            yield start, min(start + size, samples)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return min((len(array) for array in self.feeds.values() if array.ndim), default=1)

    def rows(self, names: Sequence[str], start: int, end: int) -> list[Array]:
        """What some outputs say to a batch."""
        import numpy as np

        fed = {}
        for name, each in self.inputs.items():
            array = self.feeds[name][start:end] if self.feeds[name].ndim else self.feeds[name]
            fed[name] = np.ascontiguousarray(array, dtype=_DTYPES.get(each.type, array.dtype))
        try:
            return list(self.session.run(list(names), fed))
        except Exception as error:  # the runtime has no common class for its errors
            raise _RuntimeRefusedError(_one_line(error)) from error

    def all(self, names: Sequence[str], probe: Probe, progress: Progress) -> _Finding:
        """Write the outputs to all samples, and note which watched values may not be finite."""
        writers: dict[str, RowWriter] = {}
        bad: dict[str, int] = {}
        flagged: set[str] = set()
        closer: tuple[int, int] | None = None
        watched = list(probe.outputs)
        for start, end in self.batches():
            progress(start, self.samples, "fp16 emulation")
            answers = self.rows([*names, *probe.outputs.values()], start, end)
            seen = {v for v, sum_ in zip(watched, answers[len(names) :], strict=True) if not math.isfinite(sum_)}
            broken = {}
            for name, block in zip(names, answers, strict=False):
                broken[name] = _not_finite(block)
                _append(writers, name, Path(self.request.out), block)
            # The first batch with a broken output is looked at again, else the first in which anything overflowed.
            if (seen and closer is None) or (any(broken.values()) and not any(bad.values())):
                closer, flagged = (start, end), seen
            for name, number in broken.items():
                bad[name] = bad.get(name, 0) + number
        for writer in writers.values():
            writer.close()
        progress(self.samples, self.samples, "fp16 emulation")
        files: dict[str, Json] = {
            name: {"file": str(each.path), "dtype": each.dtype.name, "shape": list(each.shape)}
            for name, each in writers.items()
        }
        return _Finding(files, {n: number for n, number in bad.items() if number}, flagged, closer, self.samples)


_DTYPES = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64"}


def _not_finite(block: Array) -> int:
    import numpy as np

    if not np.issubdtype(block.dtype, np.floating):
        return 0
    return int(block.size - np.count_nonzero(np.isfinite(block)))


def _append(writers: dict[str, RowWriter], name: str, folder: Path, block: Array) -> None:
    rows = block if block.ndim else block.reshape(1)
    if name not in writers:
        folder.mkdir(parents=True, exist_ok=True)
        writers[name] = RowWriter(folder / npy_name(name), rows.shape[1:], rows.dtype)
    writers[name].append(rows)


def _name_the_guilty(request: EmulatedRun, done: Rewritten, finding: _Finding, progress: Progress) -> list[Overflow]:
    """Look at one batch again and count, where something may not be finite."""
    if finding.rows is None:
        return []
    steps = suspects(done, finding.flagged)
    scratch = Path(request.scratch)
    proto = load(scratch / "watched.onnx")
    for index in reversed(range(len(proto.graph.output))):
        if proto.graph.output[index].name.startswith("watch/"):
            del proto.graph.output[index]
    counts, peaks = count(proto.graph, *asked(steps, done))
    save(proto, scratch / "watched.onnx", scratch / "counted.onnx")
    del proto
    run = _Run(_session(scratch / "counted.onnx", request.threads), request)
    start, end = finding.rows
    progress(start, finding.samples, "fp16 emulation: what overflowed")
    answers = run.rows([*counts.outputs.values(), *peaks.outputs.values()], start, end)
    numbers = dict(zip(counts.outputs, (int(each) for each in answers), strict=False))
    largest = dict(zip(peaks.outputs, (float(each) for each in answers[len(numbers) :]), strict=True))
    return guilty(steps, done, numbers, largest, constants=bool(finding.bad))


def _reason(finding: _Finding, found: Sequence[Overflow], done: Rewritten) -> str:
    if finding.bad:
        outputs = ", ".join(sorted(finding.bad))
        start = f"NaN or infinity in {outputs}"
    else:
        start = f"every output is finite over {finding.samples} samples"
    if not found:
        return start if not finding.bad else f"{start}; no node made it out of finite numbers"
    first = found[0]
    peak = f", which reaches {first.peak:.3g}" if first.peak is not None else ""
    where = f"{first.op} node {first.node!r}" if first.node else first.op
    inside = " inside the kernel" if first.inside else ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{start}; overflowed: {first.tensor!r} of {where}{inside} ({first.values} values{peak}){more}"
