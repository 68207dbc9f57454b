"""Emulates every node test of ONNX's own backend test data that has a half-precision form.

    python benchmarks/fp16_emulation/backend.py

Each test's model is retyped to half precision and emulated; the yardstick is the float32 model on the same inputs and
constants, rounded to half. Where that one does not run on the CPU provider either, there is nothing to compare with.
The outputs are widened at the end of the graph, so that a value that is no half would show.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bot.measure.fp16_emulation import emulate  # noqa: E402  the repository is put on the path first

FLOAT, HALF = 1, 10
TYPED = ("to", "dtype", "output_datatype", "output_dtype")
TOLERANCE = 4e-3
"""Relative to the larger of a value and 1: a few units in the last place of a half, for chains of nodes."""


def main() -> None:
    """Run the tests and write how many agree, by kind of outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fp16_emulation_backend.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    named: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        for test in load_model_tests(kind="node"):
            outcome, detail = _try(test, Path(folder))
            counts[outcome] += 1
            if outcome in ("differs", "refused", "emulation does not run"):
                named.setdefault(outcome, []).append(f"{test.name}: {detail}")
    result = {
        "what": "ONNX backend node tests, retyped to half precision and emulated",
        "command": "python benchmarks/fp16_emulation/backend.py",
        "versions": {name: version(name) for name in ("onnx", "onnxruntime", "numpy")},
        "tolerance": TOLERANCE,
        "tests": dict(sorted(counts.items())),
        "named": named,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps(result, indent=2))


def _try(test: Any, folder: Path) -> tuple[str, str]:
    if test.model is None:
        return "no model", ""
    half, rounded = onnx.ModelProto(), onnx.ModelProto()
    half.CopyFrom(test.model)
    rounded.CopyFrom(test.model)
    _retype(half.graph, lambda array: array.astype(np.float16), HALF)
    _retype(rounded.graph, lambda array: array.astype(np.float16).astype(np.float32), FLOAT)
    if half.SerializeToString() == test.model.SerializeToString():
        return "no float32 in it", ""
    try:
        onnx.checker.check_model(half, full_check=True)
    except Exception:
        return "no half-precision form", ""
    _widen_outputs(half.graph)
    onnx.save(half, folder / "half.onnx")
    inputs = [_plain(each) for each in test.data_sets[0][0]]
    try:
        expected = _run(rounded, [_rounded(each, np.float32) for each in inputs])
    except Exception as error:
        return "float32 does not run on the CPU provider", str(error)
    report = emulate(folder / "half.onnx", folder / "emulated.onnx")
    if report.status != "emulated":
        return "refused", report.reason
    try:
        got = _run(onnx.load(folder / "emulated.onnx"), [_rounded(each, np.float16) for each in inputs])
    except Exception as error:
        return "emulation does not run", " ".join(str(error).split())[:200]
    for ours, theirs in zip(got, expected, strict=True):
        if detail := _differs(ours, theirs):
            return "differs", detail
    return "agrees", ""


def _retype(graph: Any, round_array: Callable[[Any], Any], element: int) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _retype_type(value.type, element)
    for tensor in graph.initializer:
        _retype_tensor(tensor, round_array)
    for node in graph.node:
        if node.op_type in ("RandomNormal", "RandomUniform") and not any(a.name == "dtype" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("dtype", FLOAT))
        for attribute in node.attribute:
            if attribute.name in TYPED and attribute.i == FLOAT:
                attribute.i = element
            elif attribute.HasField("t"):
                _retype_tensor(attribute.t, round_array)
            elif attribute.HasField("g"):
                _retype(attribute.g, round_array, element)
            elif attribute.HasField("tp"):
                _retype_type(attribute.tp, element)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                tensor = numpy_helper.from_array(round_array(np.array(numbers, np.float32)))
                attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _retype_type(kind: Any, element: int) -> None:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type == FLOAT:
            tensor.elem_type = element
    elif which in ("sequence_type", "optional_type"):
        _retype_type(getattr(kind, which).elem_type, element)


def _retype_tensor(tensor: Any, round_array: Callable[[Any], Any]) -> None:
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(round_array(numpy_helper.to_array(tensor)), tensor.name))


def _widen_outputs(graph: Any) -> None:
    for value in graph.output:
        if value.type.tensor_type.elem_type == HALF:
            graph.value_info.add().CopyFrom(value)
            graph.node.append(onnx.helper.make_node("Cast", [value.name], [f"{value.name}/wide"], to=FLOAT))
            value.name = f"{value.name}/wide"
            value.type.tensor_type.elem_type = FLOAT


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def _rounded(value: Any, dtype: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each, dtype) for each in value]
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return value.astype(np.float16).astype(dtype)
    return value


def _run(proto: Any, inputs: list[Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=False))))


def _differs(ours: Any, theirs: Any) -> str:
    if isinstance(ours, list) or ours is None:
        return ""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} instead of {theirs.shape}"
    if ours.dtype.kind != "f":
        return "" if np.array_equal(ours, theirs) else "other values"
    if ours.dtype == np.float32 and not np.array_equal(ours, ours.astype(np.float16), equal_nan=True):
        return "holds what is no half"
    wide = theirs.astype(np.float16).astype(np.float64)
    close = np.abs(ours - wide) <= TOLERANCE * np.maximum(1, np.abs(wide))
    close |= (ours == wide) | (np.isnan(ours) & np.isnan(wide))
    return "" if close.all() else f"off by {np.nanmax(np.abs(ours - wide)):.3g}"


if __name__ == "__main__":
    main()
