"""Real transformers in eight bits: which forms keep what a recipe asks for, and which do not."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import dinov2_small
import photographs
from packages import default_cache
from real_models import paraphrase_minilm

from bot.graph import tasks
from bot.measure.embeddings import ranking_agreement
from bot.recipe import find_recipe

ROOT = Path(__file__).parents[2]
CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

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
    found: Path = paraphrase_minilm(CACHE)
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


# -- pictures

CLASS_TOKEN = "/backbone/layernorm/Add_1_output_0"
"""What the saliency network calls the token states after the backbone's last normalisation."""


def pictures(count: int) -> np.ndarray:
    """Photographs as the network wants them: (count, 3, 224, 224)."""
    found = photographs.fetch_originals(CACHE, npm=False)[:count]
    arrays = [
        np.asarray(Image.open(io.BytesIO(each.data)).convert("RGB").resize((224, 224)), np.float32) for each in found
    ]
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return np.stack([((array / 255 - mean) / deviation).transpose(2, 0, 1) for array in arrays]).astype(np.float32)


def test_a_vision_transformer_keeps_its_class_token(tmp_path: Path) -> None:
    """DINOv2 ViT-S/14, whose static form has a cosine of 0.93 at the least on photographs."""
    from onnx.utils import extract_model

    source, output = tmp_path / "dinov2.onnx", tmp_path / "out.onnx"
    extract_model(str(dinov2_small.fetch(CACHE)), str(source), ["input_image"], [CLASS_TOKEN])
    arguments = {"step": "quantize_weights", "source": str(source), "output": str(output), "scratch": str(tmp_path)}
    report: Any = tasks.step(arguments | {"parameters": {"block": 16}}, lambda *_: None)
    assert report["report"]["operators"]["MatMul"] == 72
    answers = []
    for path in (source, output):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        rows = [session.run(None, {"input_image": picture[None]})[0][0, 0] for picture in pictures(4)]
        answers.append(np.stack([row / np.linalg.norm(row) for row in rows]))
    exact, found = answers
    assert (exact @ exact.T)[~np.eye(len(exact), dtype=bool)].max() < 0.96  # as far apart are the pictures themselves
    assert (exact * found).sum(axis=1).min() > 0.9995
    assert output.stat().st_size < 0.35 * source.stat().st_size
