from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_graphs import model, node, save, tensor, value

from bot.errors import StepError
from bot.graph import tasks
from bot.records import Inspection


def _progress(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total
    assert what


def _source(folder: Path) -> Path:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", ["n", 4])],
        [value("y", ["n", 3])],
        [tensor("w", np.ones((4, 3)))],
    )
    return save(made, folder / "m.onnx")


def _arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {
        "step": "float16",
        "source": str(_source(folder)),
        "output": str(folder / "out.onnx"),
        "parameters": {},
        "scratch": str(folder),
        "feeds": None,
        "code": None,
    }
    return given | changes


def test_a_step_gives_its_report_and_the_versions_of_what_took_part(tmp_path: Path) -> None:
    answer = tasks.step(_arguments(tmp_path), _progress)
    assert isinstance(answer, dict)
    assert answer["built_with"] == {name: version(name) for name in ("onnx", "numpy", "protobuf")}
    assert answer["report"]["nodes_converted"] == 1  # type: ignore[index,call-overload]
    assert (tmp_path / "out.onnx").is_file()


def test_a_recipes_own_step_runs_with_its_own_parameters(tmp_path: Path) -> None:
    code = tmp_path / "recipe.py"
    code.write_text(
        "from pydantic import BaseModel\n"
        "class Scale(BaseModel, extra='forbid'):\n    factor: float = 2.0\n"
        "def copy(source, output, parameters: Scale, context):\n"
        "    output.write_bytes(source.read_bytes())\n"
        "    return {'factor': parameters.factor, 'feeds': sorted(context.feeds or {})}\n"
        "def lazy(source, output, parameters, context):\n    return {}\n"
        "def broken(source, output, parameters, context):\n    raise KeyError('k')\n"
    )
    given = _arguments(tmp_path, step="copy", code=str(code), parameters={"factor": 3}, feeds={"x": "x.npy"})
    assert tasks.step(given, _progress)["report"] == {"factor": 3.0, "feeds": ["x"]}  # type: ignore[index,call-overload]
    with pytest.raises(StepError, match="has no parameter 'fator'"):
        tasks.step(given | {"parameters": {"fator": 3}}, _progress)
    (tmp_path / "out.onnx").unlink()
    with pytest.raises(StepError, match="without writing its output"):
        tasks.step(given | {"step": "lazy", "parameters": {}}, _progress)
    with pytest.raises(StepError, match=r"broken on m\.onnx: failed: KeyError: 'k'"):
        tasks.step(given | {"step": "broken", "parameters": {}}, _progress)


def test_inspect_answers_an_inspection(tmp_path: Path) -> None:
    plain = tasks.inspect({"model": str(_source(tmp_path))}, _progress)
    inspection = Inspection.model_validate(plain)
    assert inspection.census.by_op == {"MatMul": 1}
    assert inspection.to_plain() == plain


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    good = _source(tmp_path)
    assert tasks.check({"model": str(good)}, _progress) == {"ok": True, "reason": ""}
    bad = model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 4])], [value("y", [2, 3])], [tensor("w", np.ones((5, 3)))]
    )
    answer = tasks.check({"model": str(save(bad, tmp_path / "bad.onnx"))}, _progress)
    assert isinstance(answer, dict)
    assert answer["ok"] is False
    assert "MatMul" in str(answer["reason"])
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    assert "not an ONNX model" in str(tasks.check({"model": str(tmp_path / "no.onnx")}, _progress))
