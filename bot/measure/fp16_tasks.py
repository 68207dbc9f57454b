"""The worker's task: runs a half-precision model over samples as hardware would, and names what overflowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from bot.errors import StepError
from bot.measure.arguments import read_arguments
from bot.measure.arrays import Array, RowWriter, open_array
from bot.measure.fp16_emulation import DEFAULT_RUNTIME, load, prepare, save
from bot.measure.fp16_kernels import NotEmulatedError
from bot.measure.fp16_rewrite import Rewritten
from bot.measure.fp16_trace import Overflow, Probe, asked, count, guilty, suspects, watch
from bot.measure.providers import runtime_name
from bot.measure.sessions import first_line, fixed_batch
from bot.records import Json, Record
from bot.tensor_types import DTYPES

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
        reference: Output to a .npy file of what the source answered, if infinities and NaN of the source's own are
            to be let pass.
    """

    model: str
    feeds: dict[str, str]
    batch: int
    threads: int
    out: str
    scratch: str
    runtime: str = DEFAULT_RUNTIME
    reference: dict[str, str] = Field(default_factory=dict)


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
    check_rounding()
    try:
        run = _Run(_session(scratch / "watched.onnx", request.threads), request)
        finding = run.all(names, probe, progress)
    except _RuntimeRefusedError as refusal:
        return _answer(request, {}, False, f"the emulated model does not run: {refusal}", [], done.half_kernels)
    del run
    try:
        found = _name_the_guilty(request, done, finding, len(names), progress)
        reason = _reason(finding, found)
    except _RuntimeRefusedError as refusal:
        found, reason = [], f"{_reason(finding, [])}; what overflowed could not be traced: {refusal}"
    return _answer(request, finding.files, not finding.bad, reason, found, done.half_kernels)


def _answer(
    request: EmulatedRun,
    files: dict[str, Json],
    ok: bool,
    reason: str,
    found: Sequence[Overflow],
    half_kernels: Mapping[str, str],
) -> Json:
    return {
        "outputs": files,
        "provider": PROVIDER,
        "device": request.runtime,
        "runtime": runtime_name(),
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
        raise _RuntimeRefusedError(first_line(error)) from error


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
        flagged: Values that may not be finite, in the batch that is to be looked at more closely.
        closer: The sample that this batch begins with; None if nothing may not be finite.
        samples: In all.
    """

    files: dict[str, Json]
    bad: dict[str, int]
    flagged: set[str]
    closer: int | None
    samples: int


class _Run:
    """Feeds samples to a session, a batch at a time."""

    def __init__(self, session: Any, request: EmulatedRun) -> None:
        self.session = session
        self.request = request
        self.feeds = {name: open_array(path) for name, path in request.feeds.items()}
        self.reference = {name: open_array(path) for name, path in request.reference.items()}
        self.inputs = {each.name: each for each in session.get_inputs()}
        if self.inputs.keys() != self.feeds.keys():
            raise StepError(f"takes the inputs {sorted(self.inputs)}, fed {sorted(self.feeds)}", where=request.model)
        counts = {len(array) for array in self.feeds.values()} or {1}
        if len(counts) != 1 or not counts - {0}:
            raise StepError(f"the inputs hold {sorted(counts)} samples", where=request.model)
        self.samples = counts.pop()
        self.size = fixed_batch(session) or max(1, request.batch)

    def rows(self, names: Sequence[str], start: int) -> list[Any]:
        """What some outputs say to the batch that begins at a sample, filled up where the batch is fixed."""
        import numpy as np

        end = start + self.size if fixed_batch(self.session) else min(start + self.size, self.samples)
        index = np.minimum(np.arange(start, end), self.samples - 1)
        fed = {}
        for name, each in self.inputs.items():
            array = self.feeds[name][index]
            dtype = DTYPES.get(each.type, array.dtype) if array.dtype.kind == "f" else array.dtype
            fed[name] = np.ascontiguousarray(array, dtype=dtype)
        try:
            return list(self.session.run(list(names), fed))
        except Exception as error:  # the runtime has no common class for its errors
            raise _RuntimeRefusedError(first_line(error)) from error

    def all(self, names: Sequence[str], probe: Probe, progress: Progress) -> _Finding:
        """Write the outputs to all samples, and note which watched values may not be finite."""
        writers: dict[str, RowWriter] = {}
        finding = _Finding({}, {}, set(), None, self.samples)
        watched = list(probe.outputs)
        for start in range(0, self.samples, self.size):
            progress(start, self.samples, PROVIDER)
            answers = self.rows([*names, *probe.outputs.values()], start)
            sums = answers[len(names) :]
            seen = {value for value, total in zip(watched, sums, strict=True) if not math.isfinite(total)}
            broken = {}
            for name, answer in zip(names, answers, strict=False):
                block = self._block(name, answer, start)
                if count := self._wrong(name, block, start):
                    broken[name] = count
                self._append(writers, name, block)
            # The first batch with a broken output is looked at again, else the first in which anything overflowed.
            if (seen and finding.closer is None) or (broken and not finding.bad):
                finding.closer, finding.flagged = start, seen
            for name, count in broken.items():
                finding.bad[name] = finding.bad.get(name, 0) + count
        for name, writer in writers.items():
            writer.close()
            shape: list[Json] = list(writer.shape)
            finding.files[name] = {"file": str(writer.path), "dtype": writer.dtype.name, "shape": shape}
        progress(self.samples, self.samples, PROVIDER)
        return finding

    def _block(self, name: str, answer: Any, start: int) -> Array:
        """The rows of an output that belong to samples."""
        import numpy as np

        if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "fiub":
            raise _RuntimeRefusedError(f"its output {name} is no tensor of numbers")
        rows = min(self.size, self.samples - start)
        filled = self.size if fixed_batch(self.session) else rows
        if answer.ndim and answer.shape[0] == filled:
            return answer[:rows]
        if filled == 1:
            return answer[None]
        raise _RuntimeRefusedError(f"its output {name} of shape {list(answer.shape)} has no row for each sample")

    def _wrong(self, name: str, block: Array, start: int) -> int:
        """How many values of an output are infinite or NaN and not so in the source."""
        import numpy as np

        if block.dtype.kind != "f":
            return 0
        wrong = ~np.isfinite(block)
        if name in self.reference:
            expected = self.reference[name][start : start + len(block)]
            wrong &= ~((expected == block) | (np.isnan(expected) & np.isnan(block)))
        return int(np.count_nonzero(wrong))

    def _append(self, writers: dict[str, RowWriter], name: str, block: Array) -> None:
        if name not in writers:
            # Numbered, since an output's name comes from the model and need not be a name that a file can have.
            path = Path(self.request.out) / f"output_{len(writers)}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[name] = RowWriter(path, block.shape[1:], block.dtype)
        writers[name].append(block)


def _name_the_guilty(
    request: EmulatedRun, done: Rewritten, finding: _Finding, names: int, progress: Progress
) -> list[Overflow]:
    """Look at one batch again and count, where something may not be finite; `names` outputs are the model's own."""
    if finding.closer is None:
        return []
    steps = suspects(done, finding.flagged)
    scratch = Path(request.scratch)
    proto = load(scratch / "watched.onnx")
    del proto.graph.output[names:]
    counts, peaks = count(proto.graph, *asked(steps, done))
    save(proto, scratch / "watched.onnx", scratch / "counted.onnx")
    del proto
    run = _Run(_session(scratch / "counted.onnx", request.threads), request)
    progress(finding.closer, finding.samples, f"{PROVIDER}: what overflowed")
    answers = run.rows([*counts.outputs.values(), *peaks.outputs.values()], finding.closer)
    numbers = dict(zip(counts.outputs, (int(each) for each in answers), strict=False))
    largest = dict(zip(peaks.outputs, (float(each) for each in answers[len(numbers) :]), strict=True))
    return guilty(steps, done, numbers, largest, constants=bool(finding.bad))


def _reason(finding: _Finding, found: Sequence[Overflow]) -> str:
    if finding.bad:
        outputs = ", ".join(sorted(finding.bad))
        start = f"NaN or infinity in {outputs}"
    else:
        start = f"every output is finite over {finding.samples} samples"
    if not found:
        return start
    first = found[0]
    peak = f", which reaches {first.peak:.3g}" if first.peak is not None else ""
    where = f"{first.op} node {first.node!r}" if first.node else first.op
    inside = " inside the kernel" if first.inside else ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{start}; overflowed: {first.tensor!r} of {where}{inside} ({first.values} values{peak}){more}"
