from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bot.errors import RecipeError, StepError
from bot.graph import steps
from bot.graph.steps import STEPS, load_step, parse_parameters, recipe_step_names


def test_the_registry_imports_no_onnx() -> None:
    script = "import sys, bot.graph.steps; print({'onnx', 'numpy', 'onnxruntime', 'torch'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_step_can_be_loaded_and_describes_itself(name: str) -> None:
    spec = STEPS[name]
    assert callable(spec.load())
    assert spec.description.endswith(".")
    assert "\n" not in spec.description
    for parameter in spec.parameters.model_fields.values():
        assert parameter.description


def test_parameters_come_back_with_their_defaults() -> None:
    assert parse_parameters("float16", None) == {"keep": []}
    assert parse_parameters("float16", {"keep": ["Softmax", "/head/*"]}) == {"keep": ["Softmax", "/head/*"]}
    assert parse_parameters("drop_cast_round_trips", {}) == {}


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("flot16", {}, r"there is no step 'flot16': the built-in ones are .*float16.*; did you mean 'float16'\?"),
        ("xyz", {}, r"there is no step 'xyz': the built-in ones are [a-z0-9_, ]+$"),
        ("float16", {"kep": []}, r"step 'float16' has no parameter 'kep': it takes keep; did you mean 'keep'\?"),
        ("drop_cast_round_trips", {"a": 1}, r"has no parameter 'a': it takes none"),
        ("float16", {"keep": "Softmax"}, r"step 'float16': keep: "),
        ("float16", {"keep": [1]}, r"step 'float16': keep\.0: "),
        ("float16", ["Softmax"], r"takes parameters by name"),
    ],
)
def test_a_recipes_mistakes_are_explained(name: str, raw: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_parameters(name, raw)  # type: ignore[arg-type]


RECIPE_CODE = """
from pydantic import BaseModel

class Scale(BaseModel):
    factor: float = 2.0

def copy(source, output, parameters: Scale, context):
    output.write_bytes(source.read_bytes())
    return {"factor": parameters.factor}

def _helper():
    raise AssertionError

number = 3
"""


def test_a_recipes_own_steps_are_listed_without_running_its_code(tmp_path: Path) -> None:
    code = tmp_path / "recipe.py"
    code.write_text(RECIPE_CODE + "\nraise SystemExit('it was run')\n")
    assert recipe_step_names(code) == {"copy"}
    code.write_text("def f(:\n")
    with pytest.raises(RecipeError, match="not valid Python") as caught:
        recipe_step_names(code)
    assert caught.value.where == f"{code}:1"


def test_a_recipes_own_step_is_found_before_a_built_in_one(tmp_path: Path) -> None:
    code = tmp_path / "recipe.py"
    code.write_text(RECIPE_CODE)
    loaded = load_step("copy", code)
    assert set(loaded.parameters.model_fields) == {"factor"}
    assert load_step("float16", code).function is STEPS["float16"].load()
    code.write_text(RECIPE_CODE.replace("def copy", "def float16"))
    assert load_step("float16", code).function is not STEPS["float16"].load()


def test_steps_that_do_not_exist_or_cannot_be_loaded_are_reported(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="there is no step 'copy'"):
        load_step("copy", None)
    code = tmp_path / "recipe.py"
    code.write_text("def copy(): pass\nraise RuntimeError('broken')\n")
    with pytest.raises(StepError, match="RuntimeError: broken"):
        load_step("copy", code)
    with pytest.raises(StepError, match="defines no function 'other'"):
        code.write_text("x = 1\n")
        steps.load_recipe_step(code, "other")
