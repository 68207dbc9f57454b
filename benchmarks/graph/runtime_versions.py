"""Reads from released ONNX Runtimes what they read: the table in bot/graph/runtimes.py.

Give it folders with one release each, as `pip install --no-deps --target FOLDER onnxruntime==VERSION` makes them; each
is asked in a process of its own. It prints the highest IR version, opset and ai.onnx.ml version that the release opens,
and the operators of com.microsoft that are new since the release before. Releases before 1.19 need a numpy before 2 on
the path: name a folder with one in `--with`.

    python benchmarks/graph/runtime_versions.py ort-1.22.1 ort-1.23.2 ...
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = r"""
import json
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state


def opens(ir, opset, ml=0):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
    domains = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("ai.onnx.ml", ml)] if ml else [])
    scaler = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0])
    node = scaler if ml else helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value("x")], [value("y")])
    model = helper.make_model(graph, opset_imports=domains, ir_version=ir)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


ir = max(version for version in range(3, 40) if opens(version, 9))
try:
    contrib = sorted({each.name for each in state.get_all_operator_schema() if each.domain == "com.microsoft"})
except AttributeError:
    contrib = []
print(json.dumps({
    "version": onnxruntime.__version__,
    "ir": ir,
    "opset": max(version for version in range(7, 60) if opens(ir, version)),
    "ml": max(version for version in range(1, 20) if opens(ir, 9, version)),
    "contrib": contrib,
}))
"""


def ask(folder: Path, others: list[Path]) -> dict[str, Any] | None:
    """What one release reads; None if it does not even import here."""
    path = os.pathsep.join(str(each.absolute()) for each in [folder, *others])
    answer = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    if answer.returncode:
        print(f"{folder.name}: {answer.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="one release each, oldest first")
    parser.add_argument("--with", dest="others", action="append", type=Path, default=[], help="more on the path")
    given = parser.parse_args()
    known: set[str] = set()
    for folder in given.folders:
        found = ask(folder, given.others)
        if found is None:
            continue
        new = sorted(set(found["contrib"]) - known)
        known.update(new)
        listed = ", ".join(new) if len(new) < 60 else f"{len(new)} operators"
        print(f"{found['version']:8} IR {found['ir']}, opset {found['opset']}, ai.onnx.ml {found['ml']}; new: {listed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
