"""What is written into the front matter is what every reader takes out of it."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from releases import ROOT, release_of, template
from ruamel.yaml import YAML

from bot.card.card import render_card
from bot.card.front_matter import dump, front_matter
from bot.card.markdown import plain_text
from bot.errors import RecipeError
from bot.recipe import load_recipe, recipe_names
from bot.records import LicenseRecord, Release


def read(text: str) -> tuple[Any, Any]:
    """As a YAML 1.1 reader (PyYAML, which the Hub's client uses) and a YAML 1.2 reader see it."""
    assert text.startswith("---\n") and text.endswith("---\n")
    body = text[4:-4]
    return yaml.safe_load(body), YAML(typ="safe", pure=True).load(body)


@pytest.mark.parametrize(
    "value",
    [
        "no", "yes", "on", "Off", "y", "null", "~", "true", "1e10", "0x1f", "1_000", "12:30:45", "2026-11-30", ".inf",
        "1.22", "007", "", " padded", "key: value", "- item", "# comment", "{flow}", "[flow]", "&anchor", "*alias",
        "!tag", "|", ">", "%directive", "@at", "`tick", "'single'", '"double"', "back\\slash", "😀 emoji", "naïve",
        "Ελληνικά", "a" * 3000, "word " * 400, "--- ", "...", "4d2c4d2c", "1e1e1e",
    ],
)  # fmt: skip
def test_text_comes_back(value: str) -> None:
    expected = plain_text(value)
    for seen in read(dump({"key": value, "list": [value, value]})):
        assert seen == {"key": expected, "list": [expected, expected]}


@given(
    st.dictionaries(st.text(max_size=12), st.text(max_size=40) | st.integers() | st.booleans() | st.lists(st.text()))
)
def test_anything_comes_back(data: dict[str, Any]) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return plain_text(value) if isinstance(value, str) else value

    expected = {plain_text(key): plain(value) for key, value in data.items()}
    for seen in read(dump(data)):
        assert seen == expected


def test_numpy_and_dates_become_plain() -> None:
    data = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": datetime.date(2026, 11, 30)}
    text = dump(data)
    assert "python" not in text and "numpy" not in text
    for seen in read(text):
        assert seen == {"a": 0.5, "b": 3, "c": True, "d": "2026-11-30"}


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), object(), None, b"bytes"])
def test_what_cannot_be_said_is_refused(value: object) -> None:
    with pytest.raises(RecipeError):
        dump({"outer": {"inner": [value]}})


def test_no_line_is_folded() -> None:
    assert len(dump({"key": "word " * 500}).splitlines()) == 3


def test_the_fields_of_a_release(seed: Release) -> None:
    text, numbers = front_matter(seed)
    for seen in read(text):
        assert seen == {
            "license": "apache-2.0",
            "base_model": "TrungTran/faceage_ClientScan",
            "pipeline_tag": "image-classification",
            "library_name": "onnx",
            "tags": ["age-estimation", "face-analysis", "onnx", "fp16", "dinov3"],
            "release_id": seed.identity,
            "source_commit": seed.source.commit,
        }
    assert {number.field for number in numbers} >= {"identity", "source.commit", "licenses[0]"}


def test_a_licence_that_the_hub_does_not_know(seed: Release) -> None:
    own = LicenseRecord(name="DINOv3 License", file="DINOv3_LICENSE.md", sha256="00" * 32)
    text, _ = front_matter(seed.model_copy(update={"licenses": (own,), "declared": {}}))
    for seen in read(text):
        assert seen["license"] == "other"
        assert seen["license_name"] == "dinov3-license"
        assert seen["license_link"] == "DINOv3_LICENSE.md"


def test_a_relation_is_said_only_where_it_is_true(seed: Release) -> None:
    def relation(*names: str) -> Any:
        artifacts = tuple(
            seed.artifacts[0].model_copy(
                update={"name": f"a{index}", "steps": (seed.artifacts[0].steps[0].model_copy(update={"name": name}),)}
            )
            for index, name in enumerate(names)
        )
        return read(front_matter(seed.model_copy(update={"artifacts": artifacts}))[0])[0].get("base_model_relation")

    assert relation("float16") is None
    assert relation("quantize_static") == "quantized"
    assert relation("quantize_static", "float16") is None


def test_random_weights_are_tagged(seed: Release) -> None:
    text, _ = front_matter(seed.model_copy(update={"random_weights": True}))
    assert "random-weights" in read(text)[0]["tags"]


def test_the_hubs_own_reader_reads_it(seed: Release) -> None:
    from huggingface_hub import ModelCard

    from bot.card.card import render_card

    text = render_card(seed, template="{% extends 'shared/card.md.j2' %}", template_name="x.md.j2").text
    card = ModelCard(text)
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "TrungTran/faceage_ClientScan"
    assert card.data.to_dict()["release_id"] == seed.identity


@pytest.mark.parametrize("name", recipe_names(ROOT / "recipes"))
def test_the_hub_accepts_the_card_of_every_recipe(name: str) -> None:
    """Checked as the Hub checks a card before a commit: licences, relations, tasks, lists."""
    from bot.localhub.cards import validate

    release = release_of(load_recipe(ROOT / "recipes" / name))
    card = render_card(release, template=template(name), template_name="x/card.md.j2").text
    assert validate(card, "models") == ([], [])


def test_data_sets_that_a_recipe_declares_are_told(seed: Release) -> None:
    declared = {**seed.declared, "card": {**seed.declared["card"], "datasets": ["a/b", "c/d"]}}  # type: ignore[dict-item]
    text, _ = front_matter(seed.model_copy(update={"declared": declared}))
    assert "datasets:\n- a/b\n- c/d\n" in text
    assert "model-index" not in text  # Agreement with the source is not a result on labelled data.
