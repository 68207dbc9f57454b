"""The documentation says what is so: every key of a recipe, every command, and an example that loads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bot.card.lint import lint_template
from bot.errors import BotError
from bot.recipe import load_recipe
from bot.recipe_plan import Plan, RecipePlan

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
RECIPES = (ROOT / "docs" / "recipes.md").read_text("utf-8")


def plans(model: type[Plan] = RecipePlan) -> dict[str, type[Plan]]:
    """Every part of a recipe, by the name of its class."""

    def inside(annotation: Any) -> list[type[Plan]]:
        if isinstance(annotation, type) and issubclass(annotation, Plan):
            return [annotation]
        return [found for each in getattr(annotation, "__args__", ()) for found in inside(each)]

    found = {model.__name__: model}
    for info in model.model_fields.values():
        for part in inside(info.annotation):
            found |= {} if part.__name__ in found else plans(part)
    return found


KEYS = sorted(
    {
        info.alias or name
        for title, plan in plans().items()
        if title not in {"StepPlan"}
        for name, info in plan.model_fields.items()
    }
)


def test_there_are_keys() -> None:
    assert {"upstream", "frozen", "crop_padding", "minimum_px", "notice", "from", "rebuild_on"} <= set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_documented(key: str) -> None:
    assert re.search(rf"^#+ {key}$|`{key}`", RECIPES, re.MULTILINE), key


def test_no_key_is_documented_that_there_is_not() -> None:
    """The first cell of each table of keys; the other tables are told apart by their head."""
    documented = set()
    for table in re.findall(r"\| key \|.*?\n\n", RECIPES, re.DOTALL):
        documented |= set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert documented <= set(KEYS)


def test_every_step_is_documented() -> None:
    from bot.graph.steps import STEPS

    table = RECIPES[RECIPES.index("| step |") :]
    assert set(re.findall(r"^\| `(\w+)`", table[: table.index("\n\n")], re.MULTILINE)) == set(STEPS)


def test_the_defaults_are_those_of_the_code() -> None:
    parts = plans()
    for title, key, shown in (
        ("Target", "open", "pull-request"),
        ("Target", "runtime", "onnxruntime>=1.22"),
        ("Upstream", "follow", "main"),
        ("License", "file", "LICENSE"),
        ("Card", "library_name", "onnx"),
        ("ImagePlan", "resample", "bilinear"),
        ("SamplesPlan", "split", "validation"),
        ("SamplesPlan", "minimum_px", "1"),
        ("TimingsPlan", "baseline", "source"),
    ):
        assert str(parts[title].model_fields[key].default) == shown
        assert re.search(rf"^\| `{key}` \| `{re.escape(shown)}` \|", RECIPES, re.MULTILINE), key


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The README's recipe, laid out as it says."""
    folder = tmp_path / "smile"
    (folder / "licenses").mkdir(parents=True)
    (folder / "recipe.yaml").write_text(next(text for text in blocks("yaml") if "upstream:" in text))
    (folder / "card.md.j2").write_text(blocks("jinja")[0])
    (folder / "licenses" / "LICENSE").write_text("MIT License\n")
    return folder


def test_the_readmes_recipe_loads(example: Path) -> None:
    recipe = load_recipe(example)
    assert recipe.plan.target.repo == "you/smile-detector-fp16"
    assert lint_template((example / "card.md.j2").read_text()) == []


def test_the_readmes_card_renders(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "card"))
    from releases import seed_release

    from bot.card.card import render_card

    text = render_card(seed_release(), template=(example / "card.md.j2").read_text(), template_name="card.md.j2").text
    assert "Tells whether the face in a picture smiles." in text


def test_the_readmes_commands_are_those_that_there_are() -> None:
    import typer

    from bot.cli.app import app

    commands: Any = typer.main.get_command(app)
    names = {f"bot {name}" for name in commands.commands if name != "hub"}
    names |= {f"bot hub {name}" for name in commands.commands["hub"].commands}
    shown = set(re.findall(r"^\| `(bot (?:hub )?[a-z]+)", README, re.MULTILINE))
    assert shown == names


def test_the_readmes_exit_codes_are_those_of_the_errors() -> None:
    codes = {error.exit_code for error in BotError.__subclasses__()}
    table = README[README.index("| exit code |") :]
    shown = {int(code) for code in re.findall(r"^\| (\d) \|", table[: table.index("\n\n")], re.MULTILINE)}
    assert shown == codes | {0}


def test_links_lead_somewhere() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "recipes.md"):
        for target in re.findall(r"\]\(([^)#]+)", path.read_text("utf-8")):
            if not target.startswith("https://"):
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_documented_step_runs(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    from bot.graph.steps import StepContext, load_recipe_step, validate

    (tmp_path / "recipe.py").write_text(next(re.finditer(r"```python\n(.*?)```", RECIPES, re.DOTALL))[1])
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    tensors = [helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, producer_name="before"), source)
    step = load_recipe_step(tmp_path / "recipe.py", "rename_producer")
    parameters = step.parameters(**validate(step.name, step.parameters, {"name": "after"}))
    assert step.function(source, output, parameters, StepContext(tmp_path)) == {"was": "before"}
    assert onnx.load(output).producer_name == "after"
