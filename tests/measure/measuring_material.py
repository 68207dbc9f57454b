"""Drawn pictures, small graphs and archives for the tests of measuring."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw

FLOAT = TensorProto.FLOAT

AGE_SPEC = {
    "size": [64, 64],
    "scale": 1 / 256,
    "mean": [122.782 / 256, 117.001 / 256, 104.298 / 256],
    "crop_padding": 0.25,
}


def ignore_progress(done: int, total: int, text: str) -> None:
    """A listener that listens to nothing."""


def drawn_face(seed: int, size: tuple[int, int] = (96, 128)) -> Image.Image:
    """A drawing of a face, another one for each seed."""
    random = np.random.default_rng(seed)
    width, height = size
    color = lambda: tuple(int(value) for value in random.integers(0, 256, 3))  # noqa: E731
    picture = Image.new("RGB", size, color())
    pen = ImageDraw.Draw(picture)
    pen.ellipse((width * 0.15, height * 0.1, width * 0.85, height * 0.9), fill=color())
    for eye in (0.35, 0.65):
        radius = width * float(random.uniform(0.04, 0.1))
        x, y = width * eye, height * 0.4
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color())
    pen.arc((width * 0.3, height * 0.5, width * 0.7, height * 0.8), 10, 170, fill=color(), width=3)
    return picture


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The picture as a file's bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def write_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive with these members."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def save_graph(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    dtype: int = FLOAT,
) -> Path:
    """Writes a small graph of float tensors."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def save_rows(path: Path, array: np.ndarray) -> str:
    """Writes a .npy file and returns its path as text."""
    np.save(path, array)
    return str(path)
