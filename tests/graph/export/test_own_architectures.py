"""The networks of our own as graphs: held against torch at other sizes, the same bytes from any process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import make_random_checkpoint
import onnx
import pytest

from bot.graph.steps import STEPS, StepContext

OWN: list[tuple[str, dict[str, Any]]] = [
    ("farl", {}),
    ("emotieffnet", {"size": 64}),
    ("emotion2vec", {}),
    ("emotion2vec", {"distances": "signed", "normalize": False}),
]


def export(folder: Path, name: str, **parameters: Any) -> tuple[Path, dict[str, Any]]:
    weights = make_random_checkpoint.write(name, "tiny", 0, folder)
    step, output = STEPS["export_torch"], folder / "graph.onnx"
    context = StepContext(folder, files={"weights": weights})
    return output, dict(step.load()(weights, output, step.parameters(architecture=name, **parameters), context))


@pytest.mark.parametrize(("name", "parameters"), OWN)
def test_the_graph_answers_as_torch_does(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    graph, report = export(tmp_path, name, **parameters)
    assert report["truth"] and not report["refused"]
    assert max(row["max_absolute"] / max(row["largest"], 1.0) for row in report["truth"]) < 1e-5
    assert min(row["cosine"] for row in report["truth"]) > 0.99999
    onnx.checker.check_model(onnx.load(graph), full_check=True)
    if name == "emotion2vec":
        lengths = {row["sizes"]["samples"] for row in report["truth"]}
        assert len(lengths) >= 4 and min(lengths) == 400


def test_bytes_are_the_same_in_any_process(tmp_path: Path) -> None:
    script = (
        "import hashlib, sys; from pathlib import Path; from bot.graph.steps import STEPS, StepContext\n"
        "weights, out = Path(sys.argv[1]), Path(sys.argv[2]); step = STEPS['export_torch']\n"
        "parameters = step.parameters(architecture='emotion2vec')\n"
        "step.load()(weights, out, parameters, StepContext(out.parent, files={'weights': weights}))\n"
    )
    graph, _ = export(tmp_path, "emotion2vec")
    here = hashlib.sha256(graph.read_bytes()).hexdigest()
    other = tmp_path / "other" / "graph.onnx"
    other.parent.mkdir()
    command = [sys.executable, "-c", script, str(tmp_path / "model.pt"), str(other)]
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin"}, cwd=Path.cwd())
    assert hashlib.sha256(other.read_bytes()).hexdigest() == here
