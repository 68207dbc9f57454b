"""A module is built from weights that are exactly its own, and a configuration alone costs nothing."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import make_random_torch
import pytest
import torch

from bot.errors import StepError, UpstreamError
from bot.graph.export.building import build, without_prefix
from bot.graph.export.interface import Exportable, Files
from bot.graph.export_torch import load_exportable


def linear(width: int = 3) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 2), torch.nn.BatchNorm1d(2))


def test_weights_of_half_precision_become_float32() -> None:
    given = {
        name: value.half() if value.is_floating_point() else value for name, value in linear().state_dict().items()
    }
    module = build(linear, given, where="w")
    assert module[0].weight.dtype == torch.float32 and torch.equal(module[0].weight, given["0.weight"].float())
    assert not module.training and not module[0].weight.requires_grad


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"0.weight": None}, "lacks 0.weight of the 7 weights"),
        ({"0.weight": torch.zeros(2, 4)}, r"0.weight has shape \[2, 4\], and the configuration makes it \[2, 3\]"),
        ({"head.weight": torch.zeros(1)}, "holds head.weight, which this architecture does not have"),
        ({"0.bias": torch.tensor([1.0, float("nan")])}, "0.bias holds numbers that are not finite"),
    ],
)
def test_weights_that_are_not_its_own_are_refused_by_name(change: dict[str, Any], says: str) -> None:
    given = {**linear().state_dict(), **change}
    with pytest.raises(UpstreamError, match=says):
        build(linear, {name: value for name, value in given.items() if value is not None}, where="w")


def test_what_may_be_left_over_is() -> None:
    build(linear, {**linear().state_dict(), "head.weight": torch.zeros(1)}, where="w", unused=("head.",))


def test_a_prefix_is_taken_off_where_there_is_one() -> None:
    assert without_prefix({"bert.a": 1, "cls.b": 2}, "bert.") == {"a": 1, "cls.b": 2}  # type: ignore[dict-item]
    assert without_prefix({"a": 1}, "bert.") == {"a": 1}  # type: ignore[dict-item]


@pytest.mark.parametrize("architecture", ["bert", "dinov2", "wavlm"])
def test_a_configuration_that_asks_for_the_impossible_costs_nothing(tmp_path: Path, architecture: str) -> None:
    """The largest network that the bounds allow has terabytes; the weights beside it are a tiny one's."""
    config, weights = make_random_torch.write(architecture, "tiny", 0, tmp_path)
    greedy = {"num_hidden_layers": 64, "hidden_size": 65_536, "intermediate_size": 65_536, "num_attention_heads": 16}
    config.write_text(json.dumps({**json.loads(config.read_text()), **greedy}))
    own: dict[str, Any] = {"hidden_state": 64} if architecture == "wavlm" else {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UpstreamError, match=weights.name):
        load_exportable(architecture, own, Files({"config": config, "weights": weights}), None)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # in KiB


def test_a_file_that_the_recipe_does_not_name_is_asked_for_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="an upstream file 'config'") as error:
        load_exportable("bert", {}, Files({"network": tmp_path}), None)
    assert "`config: PATH`" in error.value.remedy


def test_a_recipe_can_define_an_architecture(tmp_path: Path) -> None:
    code = tmp_path / "recipe.py"
    code.write_text(
        "from bot.graph.export import Architecture, Axis, Exportable, Port\n"
        "from bot.graph.export.sidecar import Facts\n"
        "def load(files, parameters):\n"
        "    import numpy as np, torch\n"
        "    x, y = (Port(name, 'float32', ('batch', 2)) for name in 'xy')\n"
        "    return Exportable(torch.nn.ReLU(), (x,), (y,),\n"
        "        (Axis('batch', 2, (1, 3)),), lambda s, g: {'x': g.normal(size=(s['batch'], 2)).astype('float32')},\n"
        "        Facts(feature_names=('x',)))\n"
        "ARCHITECTURE = Architecture('mine', load)\n"
    )
    assert isinstance(load_exportable("mine", {}, Files({}), code), Exportable)
    with pytest.raises(StepError, match="there is no architecture 'others'"):
        load_exportable("others", {}, Files({}), code)
