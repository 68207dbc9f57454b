"""Upstream's configuration is data: known keys, typed and bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.errors import UpstreamError
from bot.graph.export.bert import BertConfig
from bot.graph.export.config import read_config
from bot.graph.export.wavlm import WavLMConfig

GOOD: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 96,
}


def write(folder: Path, data: Any) -> Path:
    path = folder / "config.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return path


def test_known_keys_are_read_and_others_passed_over(tmp_path: Path) -> None:
    code = {"auto_map": {"AutoModel": "modeling_evil.Model"}, "architectures": ["Evil"], "hidden_act": None}
    found = read_config(write(tmp_path, {**GOOD, **code}), BertConfig, "bert")
    assert found.hidden_size == 32 and found.hidden_act == "gelu" and not hasattr(found, "auto_map")


def test_an_old_file_without_a_type_is_read(tmp_path: Path) -> None:
    assert read_config(write(tmp_path, {k: v for k, v in GOOD.items() if k != "model_type"}), BertConfig, "bert")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "gpt2"}, "a model of type 'gpt2' Expected: bert"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: Input should be less than or equal to 256"),
        ({"hidden_size": -1}, "hidden_size: Input should be greater"),
        ({"hidden_size": "32"}, "hidden_size: Input should be a valid integer"),
        ({"hidden_size": True}, "hidden_size: Input should be a valid integer"),
        ({"hidden_size": 1e400}, "not JSON|hidden_size"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"hidden_act": "__import__('os').system('true')"}, "hidden_act"),
        ({"layer_norm_eps": 5.0}, "layer_norm_eps"),
    ],
)
def test_a_value_beyond_its_bounds_is_refused_by_name(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UpstreamError, match=says):
        read_config(write(tmp_path, {**GOOD, **change}), BertConfig, "bert")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "nul", '{"hidden_size": NaN}', "[" * 100_000, '{"a": "' + "x" * (2 << 20) + '"}']
)
def test_what_is_no_configuration_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UpstreamError) as error:
        read_config(write(tmp_path, text), BertConfig, "bert")
    assert error.value.where == "config.json"


def test_wavlm_knows_how_many_samples_a_frame_takes() -> None:
    config = WavLMConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    assert (config.hop, config.shortest) == (320, 400)


def test_convolutions_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    data = {**GOOD, "model_type": "wavlm", "conv_dim": [16, 16], "conv_stride": [5], "conv_kernel": [10]}
    with pytest.raises(UpstreamError, match="of one length"):
        read_config(write(tmp_path, data), WavLMConfig, "wavlm")
