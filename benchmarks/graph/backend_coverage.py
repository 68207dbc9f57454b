"""How the step float16 does on ONNX's own backend tests: what converts, what is refused, what comes out wrong.

Every node and model test with a float32 tensor is converted. The result must pass ONNX's full checker wherever the
source does, open in ONNX Runtime wherever the source does, and give the source's answer on the test's own inputs, to
one part in a hundred of the largest magnitude. With `--true` it is also run through ONNX's reference evaluator, which
computes in true float16 and so sees an overflow that ONNX Runtime's CPU provider hides.

    python benchmarks/graph/backend_coverage.py [--only WORD] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from bot.errors import BotError
from bot.graph.float16 import convert
from bot.graph.model_file import all_tensors, read_model, write_model
from bot.graph.parameters import Float16Parameters
from bot.graph.steps import StepContext

TOLERANCE = 1e-2


@dataclass
class Case:
    """One test: a model and one set of inputs."""

    name: str
    proto: onnx.ModelProto
    inputs: list[Any]


@dataclass
class Tally:
    """Outcomes, and the cases of each."""

    cases: dict[str, list[str]] = field(default_factory=dict)

    def add(self, outcome: str, case: str) -> None:
        self.cases.setdefault(outcome, []).append(case)


def generated_cases() -> Iterator[Case]:
    """The node and model tests that onnx makes in memory."""
    from onnx.backend.test.case.model import collect_testcases as model_cases
    from onnx.backend.test.case.node import collect_testcases as node_cases

    for case in [*node_cases(None), *model_cases()]:
        if case.model is not None and case.data_sets:
            yield Case(case.name, case.model, list(case.data_sets[0][0]))


def stored_cases() -> Iterator[Case]:
    """The tests converted from PyTorch, which lie beside onnx as files."""
    import onnx.backend.test

    data = Path(onnx.backend.test.__file__).parent / "data"
    for folder in sorted([*data.glob("pytorch-*/*"), *data.glob("simple/*")]):
        if not (folder / "model.onnx").exists():
            continue
        proto = onnx.load(folder / "model.onnx")
        first = folder / "test_data_set_0"
        paths = sorted(first.glob("input_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
        kinds = [value.type.WhichOneof("value") for value in proto.graph.input]
        if all(kind == "tensor_type" for kind in kinds):
            yield Case(folder.name, proto, [numpy_helper.to_array(onnx.load_tensor(path)) for path in paths])


def has_floats(proto: onnx.ModelProto) -> bool:
    """Whether any tensor that the file declares or holds is float32."""
    declared = [value.type.tensor_type.elem_type for value in [*proto.graph.input, *proto.graph.output]]
    return 1 in declared or any(tensor.data_type == 1 for tensor in all_tensors(proto))


def checks(path: Path) -> str:
    """What the full checker has against a file; nothing if it passes."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        return " ".join(str(error).split())[:300]
    return ""


def answers(path: Path, case: Case) -> list[Any]:
    """ONNX Runtime's answers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return list(session.run(None, dict(zip(names, case.inputs, strict=False))))


def distance(expected: Any, found: Any) -> float:
    """The largest difference, relative to the largest magnitude; infinite where the kinds or integers differ."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(expected) != len(found):
            return float("inf")
        return max([0.0, *(distance(*pair) for pair in zip(expected, found, strict=True))])
    if expected is None or found is None:
        return 0.0 if expected is found else float("inf")
    ours, theirs = np.asarray(expected), np.asarray(found)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return float("inf")
    if ours.dtype.kind != "f" or not ours.size:
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    finite = np.isfinite(ours)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    ours, theirs = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
    scale = max(float(np.abs(ours).max(initial=0)), 1e-6)
    worst = float(np.abs(ours - theirs).max(initial=0)) / scale
    return worst if np.isfinite(worst) else float("inf")


def judge(case: Case, folder: Path, tally: Tally, true_half: bool) -> None:
    """Converts one case and says how it went."""
    source, result = folder / "source.onnx", folder / "result.onnx"
    source.write_bytes(case.proto.SerializeToString())
    sound = checks(source)
    try:
        expected = answers(source, case)
    except Exception:
        expected = None
    try:
        model = read_model(source)
        report = convert(model, Float16Parameters(), StepContext(folder))
        write_model(model, result)
    except BotError as error:
        tally.add(f"refused: {error.what}" if "no node" not in error.what else "nothing to convert", case.name)
        return
    said = checks(result)
    if said and not sound:
        tally.add(f"wrong: the checker says: {said}", case.name)
    elif expected is None:
        tally.add("converted, not run: ONNX Runtime does not run the source on these inputs", case.name)
    else:
        outcome = compare(case, result, expected)
        if outcome == "converted" and true_half:
            outcome = compare_true(case, result, expected)
        tally.add(outcome + (" in part" if report["nodes_kept"] and outcome == "converted" else ""), case.name)


def compare(case: Case, result: Path, expected: list[Any]) -> str:
    """Whether ONNX Runtime opens the result and gives the source's answer."""
    try:
        found = answers(result, case)
    except Exception as error:
        return f"wrong: does not run: {' '.join(str(error).split())[:300]}"
    away = distance(expected, found)
    return "converted" if away <= TOLERANCE else f"wrong: differs by {away:.2g}"


def compare_true(case: Case, result: Path, expected: list[Any]) -> str:
    """Whether true float16 gives the source's answer, where the reference evaluator can tell."""
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in case.proto.graph.input]
    feeds = dict(zip(names, case.inputs, strict=False))
    try:
        ours = distance(expected, ReferenceEvaluator(str(result.with_name("source.onnx"))).run(None, feeds))
        found = distance(expected, ReferenceEvaluator(str(result)).run(None, feeds))
    except Exception:
        return "converted"
    return "converted" if ours > TOLERANCE or found <= TOLERANCE else f"differs in true float16 by {found:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--true", action="store_true", help="also judge by the reference evaluator")
    parser.add_argument("--json", type=Path, help="write all outcomes here")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for case in [*generated_cases(), *stored_cases()]:
            if given.only in case.name and has_floats(case.proto):
                judge(case, Path(folder), tally, given.true)
    counts = report(tally)
    if given.json:
        options = "".join(f" --{name}" for name in ("true",) if getattr(given, name))
        result = {
            "what": "the step float16 on ONNX's own backend tests that have float32 tensors",
            "command": f"python benchmarks/graph/backend_coverage.py{options}",
            "versions": {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__},
            "tolerance": TOLERANCE,
            "counts": dict(counts.most_common()),
            "cases": {outcome: cases for outcome, cases in tally.cases.items() if outcome != "converted"},
        }
        given.json.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    return 0


def report(tally: Tally) -> Counter[str]:
    """Prints the counts, and the names of what is refused or wrong; returns the counts."""
    counts: Counter[str] = Counter()
    for outcome, cases in tally.cases.items():
        counts[outcome.split(":")[0]] += len(cases)
    print(
        f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}: {counts.total()} tests with float32 tensors"
    )
    for outcome, count in counts.most_common():
        print(f"{count:6d}  {outcome}")
    for outcome, cases in sorted(tally.cases.items()):
        if not outcome.startswith(("converted", "nothing")):
            print(f"{outcome}\n        {', '.join(cases)}")
    return counts


if __name__ == "__main__":
    sys.exit(main())
