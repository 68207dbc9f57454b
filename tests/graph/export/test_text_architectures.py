"""Encoders of text that transformers builds, as graphs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import make_random_torch
import pytest

from bot.errors import UpstreamError
from bot.graph.export import modernbert
from bot.graph.export.interface import Files
from bot.graph.export.text_encoder import TextParameters
from bot.graph.steps import STEPS, StepContext


def export(folder: Path, name: str, **parameters: Any) -> dict[str, Any]:
    config, weights = make_random_torch.write(name, "tiny", 0, folder)
    step = STEPS["export_torch"]
    context = StepContext(folder, files={"weights": weights, "config": config})
    chosen = step.parameters(architecture=name, **parameters)
    return dict(step.load()(weights, folder / "graph.onnx", chosen, context))


@pytest.mark.parametrize(
    ("name", "parameters"), [("xlm_roberta", {"pooling": "mean", "normalize": True}), ("modernbert", {})]
)
def test_the_graph_answers_as_torch_does(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    report = export(tmp_path, name, **parameters)
    assert report["refused"] == {}
    assert max(row["max_absolute"] for row in report["truth"]) < 1e-5
    lengths = {row["sizes"]["tokens"] for row in report["truth"]}
    assert min(lengths) == 3 and max(lengths) > (3 * 16 if name == "modernbert" else 29)
    assert {row["case"] for row in report["truth"]} == {"", "texts without padding", "texts of one token"}


def test_windows_of_modernbert_are_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    """The library goes through a set of texts, whose order is another with each hash seed."""
    make_random_torch.write("modernbert", "tiny", 0, tmp_path)
    script = (
        "import sys; from pathlib import Path; from bot.graph.steps import STEPS, StepContext\n"
        "folder, out = Path(sys.argv[1]), Path(sys.argv[2]); step = STEPS['export_torch']\n"
        "files = {'weights': folder / 'model.safetensors', 'config': folder / 'config.json'}\n"
        "parameters = step.parameters(architecture='modernbert')\n"
        "step.load()(files['weights'], out, parameters, StepContext(folder, files=files))\n"
    )
    found = set()
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.onnx"
        environment = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        subprocess.run([sys.executable, "-c", script, str(tmp_path), str(out)], check=True, env=environment)
        found.add(hashlib.sha256(out.read_bytes()).hexdigest())
    assert len(found) == 1


def test_rotary_positions_are_read_in_both_ways_that_they_are_written(tmp_path: Path) -> None:
    config, weights = make_random_torch.write("modernbert", "tiny", 0, tmp_path)
    said = json.loads(config.read_text())
    del said["rope_parameters"], said["layer_types"]
    older = {**said, "local_rope_theta": 777, "global_rope_theta": 888.0, "global_attn_every_n_layers": 2}
    newer = {
        **said,
        "rope_parameters": {
            "sliding_attention": {"rope_theta": 777.0, "rope_type": "default"},
            "full_attention": {"rope_theta": 888.0, "rope_type": "default"},
        },
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    }
    for each in (older, newer):
        config.write_text(json.dumps(each))
        found = modernbert.load(Files({"weights": weights, "config": config}), TextParameters()).module
        built = found.backbone.backbone.config
        assert built.rope_parameters["sliding_attention"]["rope_theta"] == 777
        assert built.rope_parameters["full_attention"]["rope_theta"] == 888
        assert built.layer_types == ["full_attention", "sliding_attention", "full_attention"]
    config.write_text(json.dumps({**newer, "layer_types": ["full_attention"]}))
    with pytest.raises(UpstreamError, match="one entry for each layer"):
        modernbert.load(Files({"weights": weights, "config": config}), TextParameters())
