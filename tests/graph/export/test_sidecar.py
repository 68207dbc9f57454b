"""The sidecar: its form is published as a JSON Schema, and says the same of every family of graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.graph.export.sidecar import Facts, Sidecar, json_schema

SCHEMA = Path(__file__).parents[3] / "recipes" / "sidecar.schema.json"


def test_the_schema_that_consumers_use_is_the_writer_s_own() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == json_schema(), "run tools/write_recipe_schema.py"


def test_every_list_is_plural() -> None:
    """A consumer never has to ask whether there is one of something or several."""
    properties = json_schema()["properties"]
    lists = {name for name, schema in properties.items() if schema.get("type") == "array"}
    single = {"schema_version", "sha256", "architecture", "opset", "preprocessings", "refusals"}
    assert lists | single == set(properties)
    assert all(name.endswith("s") or name == "axes" for name in lists)
    assert {"feature_names", "input_dims", "trait_names", "sample_rates", "tokenizers", "masks"} <= lists


def test_unknown_facts_are_refused() -> None:
    with pytest.raises(ValidationError):
        Facts.model_validate({"feature_names": ["a"], "feature_name": "a"})
    with pytest.raises(ValidationError):
        Facts(feature_names=())


def test_a_sidecar_is_of_one_graph() -> None:
    with pytest.raises(ValidationError):
        Sidecar.model_validate({"architecture": "bert", "opset": 17})
