"""LinT and LinMulT: the graph answers as the library does, whatever the masks hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import make_random_checkpoint
import numpy as np
import onnxruntime
import pytest
import torch

from bot.errors import StepError, UpstreamError
from bot.graph.export import linmult as architecture
from bot.graph.export.interface import Files
from bot.graph.steps import STEPS, StepContext

pytestmark = pytest.mark.usefixtures("linmult")

WIDTHS = {"wavlm": 12, "dinov2": 7, "text": 5}


def hyperparameters(features: list[str], **network: Any) -> dict[str, Any]:
    return {
        "model_config": {
            "name": "any",
            "family": "lint" if len(features) == 1 else "linmult",
            "d_model": 16,
            "num_heads": 4,
            "cmt_num_layers": 1,
            "branch_sat_num_layers": 1,
            "attention_type": "linear",
            "add_module_tcn": True,
            "time_dim_reducer": "gap",
            "add_module_ffn_fusion": True,
            "head_type": "simple",
            "dropout_pe": 0.1,
            **network,
        },
        "train_config": {"task": "bigfive", "targets": ["openness", "neuroticism"], "loss": "l1"},
        "feature_names": features,
        "input_feature_dim": [WIDTHS[name] for name in features],
    }


def checkpoint(path: Path, said: dict[str, Any]) -> Path:
    """A Lightning checkpoint of random weights."""
    torch.manual_seed(0)
    network = architecture.library_network(architecture.checkpoint_from(said, "test"), "app")
    state = {f"model.{name}": value for name, value in make_random_checkpoint.filled(network).items()}
    torch.save({"state_dict": state, "hyper_parameters": said, "epoch": 3, "random_weights": "true"}, path)
    return path


def export(weights: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    step, output = STEPS["export_torch"], folder / "graph.onnx"
    context = StepContext(folder, files={"weights": weights})
    return output, dict(step.load()(weights, output, step.parameters(architecture="linmult"), context))


@pytest.mark.parametrize(
    ("features", "network"),
    [
        (["wavlm"], {"time_dim_reducer": "attentionpool"}),
        (["wavlm"], {"attention_type": "softmax", "time_dim_reducer": "last", "head_type": "vector"}),
        (["wavlm", "text"], {"attention_type": "flash"}),
        (["wavlm", "dinov2", "text"], {"time_dim_reducer": "gmp"}),
        (["wavlm", "text"], {"attention_type": "softmax", "add_module_tcn": False}),
    ],
)
def test_masks_hide_a_part_or_all_as_in_the_library(
    tmp_path: Path, features: list[str], network: dict[str, Any]
) -> None:
    graph, report = export(checkpoint(tmp_path / "best.ckpt", hyperparameters(features, **network)), tmp_path)
    assert report["refused"] == {}
    cases = {row["case"] for row in report["truth"]}
    masks = ["mask"] if len(features) == 1 else [f"mask_{place}" for place in range(len(features))]
    assert cases == {
        "",
        "every mask hides nothing",
        *(f"{mask} hides all of its input" for mask in masks),
        *(f"{mask} hides a part of its input" for mask in masks),
    }
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    assert {port.name: port.type for port in session.get_inputs() if "mask" in port.name} == dict.fromkeys(
        masks, "tensor(bool)"
    )
    assert report["facts"]["trait_names"] == ["openness", "neuroticism"]
    assert report["facts"]["feature_names"] == features


def test_a_hidden_series_counts_for_nothing(tmp_path: Path) -> None:
    """What stands under a mask has no part in the answer: not a number of it."""
    graph, _ = export(checkpoint(tmp_path / "best.ckpt", hyperparameters(["wavlm", "text"])), tmp_path)
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(0)
    lengths = {"wavlm": 20, "text": 6}
    feeds: dict[str, Any] = {}
    for place, (name, length) in enumerate(lengths.items()):
        feeds[f"x_{place}"] = numbers.standard_normal((2, length, WIDTHS[name])).astype(np.float32)
        feeds[f"mask_{place}"] = np.ones((2, length), bool)
    feeds["mask_1"][:] = False
    first = session.run(None, feeds)[0]
    feeds["x_1"] = numbers.standard_normal(feeds["x_1"].shape).astype(np.float32) * 100
    second = session.run(None, feeds)[0]
    assert np.isfinite(first).all()
    assert np.allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("attention", ["bigbird", "performer", "mha"])
def test_attention_that_no_graph_can_answer_for_is_refused(tmp_path: Path, attention: str) -> None:
    with pytest.raises(UpstreamError, match=r"model_config\.attention_type.*linear"):
        architecture.checkpoint_from(hyperparameters(["wavlm"], attention_type=attention), "best.ckpt")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input_feature_dim": [10**9]}, r"input_feature_dim\.0"),
        ({"feature_names": ["a", "a"], "input_feature_dim": [3, 3]}, "each name once"),
        ({"feature_names": ["a\nb"]}, r"feature_names\.0"),
        ({"train_config": {"targets": []}}, r"train_config\.targets"),
        ({"model_config": {"family": "other"}}, r"model_config\.family"),
    ],
)
def test_hyperparameters_are_bounded(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UpstreamError, match=words):
        architecture.checkpoint_from({**hyperparameters(["wavlm"]), **change}, "best.ckpt")


def test_a_checkpoint_without_hyperparameters_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "best.ckpt"
    torch.save({"state_dict": {"model.a": torch.zeros(1)}}, path)
    with pytest.raises(UpstreamError, match="holds no hyper_parameters") as caught:
        architecture.load(Files({"weights": path}), architecture.LinMulTParameters())
    assert "Name a `config`" in caught.value.remedy


def test_without_the_library_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    weights = checkpoint(tmp_path / "best.ckpt", hyperparameters(["wavlm"]))
    monkeypatch.setitem(sys.modules, "linmult", None)
    with pytest.raises(StepError, match="linmult is not here") as caught:
        architecture.load(Files({"weights": weights}), architecture.LinMulTParameters())
    assert "requires" in caught.value.remedy
