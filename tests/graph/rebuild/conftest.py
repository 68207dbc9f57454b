from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bert_networks
import dinov2_networks
import dinov3_networks
import numpy as np
import onnx
import pytest

from bot.graph import tasks

Rebuilt = tuple[Path, dict[str, Any]]


@pytest.fixture
def rebuilt(tmp_path: Path) -> Callable[..., Rebuilt]:
    """Rebuilds a file as the worker would, checks the result with ONNX's full checker, and gives path and report."""

    def run(source: Path | onnx.ModelProto, name: str = "rebuilt", **parameters: Any) -> Rebuilt:
        if not isinstance(source, Path):
            path = tmp_path / "source.onnx"
            onnx.checker.check_model(source)
            path.write_bytes(source.SerializeToString())
        else:
            path = source
        output = tmp_path / f"{name}.onnx"
        arguments: dict[str, Any] = {
            "step": "rebuild",
            "source": str(path),
            "output": str(output),
            "parameters": {"architecture": "dinov3", **parameters},
            "scratch": str(tmp_path),
            "feeds": None,
            "code": None,
        }
        answer = tasks.step(arguments, lambda done, total, what: None)
        assert isinstance(answer, dict)
        assert tasks.check({"model": str(output)}, lambda done, total, what: None) == {"ok": True, "reason": ""}
        return output, dict(answer["report"])  # type: ignore[arg-type]

    return run


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A network as a file; the same one is exported once."""
    folder, made = tmp_path_factory.mktemp("networks"), dict[str, Path]()

    def make(shape: dinov3_networks.Shape = dinov3_networks.USUAL, **how: Any) -> Path:
        key = repr((shape, sorted(how.items())))
        if key not in made:
            made[key] = dinov3_networks.export(shape, folder / f"{len(made)}.onnx", **how)
        return made[key]

    return make


@pytest.fixture(scope="session")
def exported_bert(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A BERT as a file; the same one is exported once."""
    folder, made = tmp_path_factory.mktemp("berts"), dict[str, Path]()

    def make(shape: bert_networks.Shape = bert_networks.USUAL, **how: Any) -> Path:
        key = repr((shape, sorted(how.items())))
        if key not in made:
            made[key] = bert_networks.export(shape, folder / f"{len(made)}.onnx", **how)
        return made[key]

    return make


@pytest.fixture(scope="session")
def exported_dinov2(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A DINOv2 as a file; the same one is exported once."""
    folder, made = tmp_path_factory.mktemp("dinov2"), dict[str, Path]()

    def make(shape: dinov2_networks.Shape = dinov2_networks.USUAL, **how: Any) -> Path:
        key = repr((shape, sorted(how.items())))
        if key not in made:
            made[key] = dinov2_networks.export(shape, folder / f"{len(made)}.onnx", **how)
        return made[key]

    return make


@pytest.fixture
def pictures() -> np.ndarray:
    """Three random pictures of 64 x 64 pixels."""
    return np.random.default_rng(1).standard_normal((3, 3, 64, 64)).astype(np.float32)
