from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_graphs import save

from bot.graph import tasks

Ran = tuple[onnx.ModelProto, dict[str, Any]]


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., Ran]:
    """Runs a step as the worker would, checks its output with ONNX's full checker, and gives model and report."""

    def run_step(
        name: str, source: Path | onnx.ModelProto, **parameters: Any
    ) -> tuple[onnx.ModelProto, dict[str, Any]]:
        path = source if isinstance(source, Path) else save(source, tmp_path / "source.onnx")
        output, scratch = tmp_path / f"{name}.onnx", tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        arguments = {
            "step": name,
            "source": str(path),
            "output": str(output),
            "parameters": parameters,
            "scratch": str(scratch),
            "feeds": None,
            "code": None,
        }
        answer = tasks.step(arguments, lambda done, total, what: None)
        assert isinstance(answer, dict)
        assert tasks.check({"model": str(output)}, lambda done, total, what: None) == {"ok": True, "reason": ""}
        return onnx.load(output), dict(answer["report"])  # type: ignore[arg-type]

    return run_step
