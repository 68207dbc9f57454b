"""Other parameters in the text of a recipe: what they are to say is said, and every other byte stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.errors import RecipeError
from bot.recipe_edit import with_parameters

ROOT = Path(__file__).parent.parent

FLOW = """\
# A recipe
artifacts:
  a: {file: a.onnx, steps: [{float16: {keep: [Softmax]}}, drop_cast_round_trips]}   # one line
  b:
    file: 'b.onnx'      # odd   spacing
    steps: [{rebuild: {architecture: dinov3}}]  # why


    frozen:   false
other: "x"
"""

BLOCK = """\
artifacts:
  a:
    steps:
      # first
      - float16:
          keep:   # what stays
            - Softmax   # because
            - Add
        # after the first
      - drop_cast_round_trips   # last
    file: a.onnx
"""


def steps_of(text: str, artifact: str) -> Any:
    return YAML(typ="safe").load(text)["artifacts"][artifact]["steps"]


def edited(text: str, artifact: str, parameters: dict[int, dict[str, Any]], note: list[str] | None = None) -> str:
    return with_parameters(text, artifact, parameters, note or ["today: faster"], where="recipe.yaml")


def test_a_flow_step_on_a_line_of_its_own() -> None:
    new = edited(FLOW, "b", {0: {"architecture": "dinov3", "residual": "fp16", "compensate": True, "scale": 0.125}})
    assert steps_of(new, "b")[0]["rebuild"] == {
        "architecture": "dinov3",
        "residual": "fp16",
        "compensate": True,
        "scale": 0.125,
    }
    before, after = FLOW.splitlines(), new.splitlines()
    assert after[:5] == before[:5]
    assert after[5] == "    # tuned today: faster"
    assert after[6].endswith("  # why")
    assert after[7:] == before[6:]


def test_an_artifact_on_one_line_is_noted_above_it() -> None:
    new = edited(FLOW, "a", {0: {"keep": ["Add", "/head/*"]}})
    assert steps_of(new, "a") == [{"float16": {"keep": ["Add", "/head/*"]}}, "drop_cast_round_trips"]
    assert new.splitlines()[2:4] == [
        "  # tuned today: faster",
        "  a: {file: a.onnx, steps: [{float16: {keep: [Add, /head/*]}}, drop_cast_round_trips]}   # one line",
    ]
    assert new.replace("  # tuned today: faster\n", "").replace("[Add, /head/*]", "[Softmax]") == FLOW


@pytest.mark.parametrize(("text", "artifact"), [(FLOW, "a"), (BLOCK, "a")])
def test_a_step_that_had_no_parameters(text: str, artifact: str) -> None:
    new = edited(text, artifact, {1: {"x": 1}})
    assert steps_of(new, artifact)[1] == {"drop_cast_round_trips": {"x": 1}}
    assert steps_of(new, artifact)[0] == steps_of(text, artifact)[0]


def test_a_block_keeps_what_was_said_in_it_as_a_comment() -> None:
    new = edited(BLOCK, "a", {0: {"keep": ["Mul"]}})
    assert steps_of(new, "a") == [{"float16": {"keep": ["Mul"]}}, "drop_cast_round_trips"]
    assert "      # first\n" in new
    assert "        # after the first\n" in new
    assert "   # last\n" in new
    assert new.index("#   what stays") < new.index("#   because") < new.index("    steps:")


def test_both_steps_at_once_and_values_of_every_kind() -> None:
    values = {"text": "a: b # c", "flag": False, "none": None, "list": [1, [2]], "map": {"k": "v"}, "odd": "1/8"}
    new = edited(BLOCK, "a", {0: {"keep": []}, 1: values})
    assert steps_of(new, "a") == [{"float16": {"keep": []}}, {"drop_cast_round_trips": values}]


def test_a_new_note_takes_the_place_of_the_last_one() -> None:
    once = edited(FLOW, "b", {0: {"architecture": "dinov3"}}, ["one", "two", "three"])
    assert once.count("#") == FLOW.count("#") + 3
    twice = edited(once, "b", {}, ["four"])
    assert twice == edited(FLOW, "b", {}, ["four"])
    assert edited(twice, "b", {}, ["four"]) == twice


def test_a_persons_own_comment_above_the_steps_stays() -> None:
    text = FLOW.replace("    steps: [{rebuild", "    # mine\n    steps: [{rebuild")
    twice = edited(edited(text, "b", {}, ["one"]), "b", {}, ["two"])
    assert "    # mine\n    # tuned two\n    steps" in twice
    assert "one" not in twice.replace("one line", "")


def test_carriage_returns_and_the_recipes_of_this_project() -> None:
    for path in (ROOT / "recipes").glob("*/recipe.yaml"):
        text = path.read_text("utf-8")
        for artifact, plan in YAML(typ="safe").load(text)["artifacts"].items():
            if not plan.get("steps"):
                continue
            new = edited(text, artifact, {0: {"x": 1}})
            kept = [line for line in text.splitlines() if line in new.splitlines()]
            assert len(kept) >= len(text.splitlines()) - 1
            loaded, expected = YAML(typ="safe").load(new), YAML(typ="safe").load(text)
            first = expected["artifacts"][artifact]["steps"][0]
            name = first if isinstance(first, str) else next(iter(first))
            expected["artifacts"][artifact]["steps"][0] = {name: {"x": 1}}
            assert loaded == expected


def test_steps_behind_an_alias_are_refused() -> None:
    text = "artifacts:\n  a: {steps: &s [float16]}\n  b: {steps: *s}\n"
    for artifact in ("a", "b"):
        with pytest.raises(RecipeError, match="behind an anchor or an alias"):
            edited(text, artifact, {0: {"keep": []}})
