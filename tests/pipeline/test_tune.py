"""`bot tune` on a small network of the real architecture: what fails a gate is out, the rest is timed and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.cli.tuning_report import print_tuning
from bot.errors import RecipeError
from bot.pipeline import Context, tuning
from bot.pipeline.tuning import Candidate, Tried, candidates_of, note_of
from bot.recipe import find_recipe, load_recipe
from bot.work import WorkFolder
from bot.worker import Worker
from tests.world import ROOT, World

MINI = ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"

RECIPE = """\
upstream: {repo: somebody/network, files: {network: model.onnx}}
target: {repo: local-user/network-onnx, open: pull-request, runtime: "onnxruntime>=RUNTIME"}
license: {id: mit}
artifacts:
  # the file that people use
  fused:
    file: fused.onnx
    steps: [{rebuild: {architecture: dinov3}}]     # as it is published
    tune:
      - rebuild: {architecture: dinov3, residual_scale: 1/8}    # the same, said otherwise
      - rebuild: {architecture: dinov3, patches: matmul, attention: split}
      - rebuild: {architecture: dinov3, attention: packed}
      - rebuild: {architecture: dinov3, residual: fp16, compensate: true}
inputs: {face: {image: {size: [224, 224], scale: 1/255, mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}}
measure:
  samples: {image_folder: {repo: somebody/pictures, count: 3}}
  accuracy: {age: {decode: coral, from: age_logits, unit: year, metrics: [mean_absolute]}}
  timings: {providers: {cpu: required, cuda: optional}, batches: [1, 2]}
gates:
  fused: {age.mean_absolute: {max: 0.1}}
"""


@pytest.fixture
def tuned(world: World) -> Any:
    """The context and the recipe of the small network."""
    from bot.hub.client import Hub

    world.seed(MINI.read_bytes())
    world.write_recipe(RECIPE.replace("RUNTIME", "1.22"))
    folder = WorkFolder(world.work)
    folder.open()
    hub = Hub(world.hub.endpoint, world.hub.token)
    context = Context(hub, folder, Worker(), timing_seconds=0.5)
    return context, find_recipe("network", world.recipes)


def test_the_fastest_that_passes_is_written_into_the_recipe(tuned: Any, capsys: pytest.CaptureFixture[str]) -> None:
    context, recipe = tuned
    before = recipe.path.read_text("utf-8")
    (dry,) = tuning.tune(context, recipe, write=False)
    assert recipe.path.read_text("utf-8") == before
    own, split, packed, half = dry.tried
    # The second candidate says what the recipe says already, and is not tried twice.
    assert own.candidate.current
    assert not own.dropped
    assert not split.dropped
    assert split.casts == own.casts + 2
    assert "opens" in packed.dropped
    assert "no kernel on cpu" in packed.dropped
    assert "safe in true fp16" in half.dropped
    assert "kernels of the promised runtime: on cuda" in half.dropped
    assert "from ONNX Runtime 1.27 on; the target promises onnxruntime>=1.22" in half.dropped
    assert set(split.speedups) == set(own.speedups) == {1, 2}
    assert not packed.speedups
    assert dry.winner in (own, split)
    assert dry.changed is (dry.winner is split)

    (found,) = tuning.tune(context, recipe)
    after = recipe.path.read_text("utf-8")
    assert after == found.text
    assert found.winner is not None
    tuned_lines = [line for line in after.splitlines() if line.startswith(("    # tuned ", "    #   "))]
    assert len(tuned_lines) == 2
    assert "on cpu (" in tuned_lines[0]
    assert "the fastest of 2 that pass the gates, of 4 tried" in tuned_lines[0]
    assert "at batch 1, " in tuned_lines[1]
    kept = [line for line in before.splitlines() if "    steps:" not in line]
    assert [line for line in after.splitlines() if "    steps:" not in line and line not in tuned_lines] == kept
    said = load_recipe(recipe.folder).plan.artifacts["fused"].steps[0].parameters
    wanted = {"attention": "split", "patches": "matmul"} if found.changed else {}
    assert said == {"architecture": "dinov3", **wanted}
    # Comments and candidates are no part of what makes a release.
    if not found.changed:
        assert load_recipe(recipe.folder).identity_parts() == recipe.identity_parts()

    print_tuning(recipe, [found], dry_run=False, as_json=False)
    printed = capsys.readouterr().out
    assert "3 is out: opens: there is no kernel on cpu" in printed
    assert printed.count("(now") == 1
    print_tuning(recipe, [found], dry_run=True, as_json=True)
    plain = json.loads(capsys.readouterr().out)
    assert plain["written"] is False
    assert [bool(each["dropped"]) for each in plain["artifacts"][0]["candidates"]] == [False, False, True, True]


def test_a_file_for_cuda_alone_is_measured_as_its_twin_and_withheld_where_there_is_none(world: World) -> None:
    """Everything but that it opens is known here: its answers, its checks, and that half precision is safe in it."""
    world.seed(MINI.read_bytes())
    form = "{architecture: dinov3, attention: packed, residual: fp16, compensate: true, patches: matmul}"
    text = RECIPE.replace("RUNTIME", "1.27").replace("{architecture: dinov3}}]     #", f"{form}}}]     #")
    world.write_recipe(text)
    done = world.bot("build", "network", "--json")
    assert done.returncode == 5, done.stderr
    release = json.loads(done.stdout)["release"]
    (artifact,) = release["artifacts"]
    assert artifact["signature"]["not_on"] == ["cpu"]
    assert artifact["signature"]["minimum_runtime_on"] == {"cuda": "1.27"}
    held = {each["rule"]: each for each in release["verdicts"] if each["status"] != "passed"}
    assert set(held) == {"opens", "opens in onnxruntime 1.27"}
    assert all(each["status"] == "not measured" for each in held.values())
    assert "there is no kernel on cpu" in held["opens"]["reason"]
    figures = {(each["subject"], each["provider"]): each for each in release["measurements"]}
    assert "measured on its twin" in figures["age", "cpu"]["method"]
    assert "twin" not in figures["age", "fp16-emulation"]["method"]
    assert not any(each["subject"] == "speedup" for each in release["measurements"])


# --- without running anything ----------------------------------------------------------------------------------------


def recipe_with(folder: Path, text: str) -> Any:
    world = World(folder, None)  # type: ignore[arg-type]
    world.write_recipe(text.replace("RUNTIME", "1.22"))
    return find_recipe("network", world.recipes)


def test_candidates_are_whole_parameters_and_none_comes_twice(tmp_path: Path) -> None:
    found = candidates_of(recipe_with(tmp_path, RECIPE), "fused")
    assert [each.current for each in found] == [True, False, False, False]
    assert found[1].label == "architecture: dinov3, patches: matmul, attention: split"
    assert found[3].label == "architecture: dinov3, residual: fp16, compensate: true"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- rebuild: {architecture: dinov3, attention: packed}", "- float16: {}", "is not among the artifact's steps"),
        ("attention: packed", "attention: fused", "step 'rebuild': attention"),
    ],
)
def test_what_a_step_does_not_take_is_said_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        candidates_of(recipe_with(tmp_path, RECIPE.replace(old, new)), "fused")
    assert refused.value.where.endswith("recipe.yaml:12")


def test_a_recipe_without_candidates_has_nothing_to_tune(tuned: Any) -> None:
    context, recipe = tuned
    plain = recipe.plan.artifacts["fused"].model_copy(update={"tune": ()})
    plan = recipe.plan.model_copy(update={"artifacts": {"fused": plain}})
    with pytest.raises(RecipeError, match="says nothing to tune"):
        tuning.tune(context, replace(recipe, plan=plan))
    with pytest.raises(RecipeError, match="there is no artifact 'fusd'"):
        tuning.tune(context, recipe, artifact="fusd")


def decided(folder: Path, *tried: Tried) -> tuning.Tuning:
    recipe = recipe_with(folder, RECIPE)

    class Trial:
        artifact, provider = "fused", "cpu"
        prepared = type("Prepared", (), {"recipe": recipe})

    return tuning._decide(Trial(), ("the recipe's own parameters", list(tried)), recipe.text)  # type: ignore[arg-type]


OWN = Tried(Candidate({0: {"architecture": "dinov3"}}, current=True), speedups={1: 1.0, 4: 1.0}, bytes=10)


def other(speed: float, dropped: str = "", **parameters: str) -> Tried:
    ratios = {} if dropped else {1: speed * 2, 4: speed / 2}
    return Tried(Candidate({0: {"architecture": "dinov3", **parameters}}), dropped, speedups=ratios, bytes=10)


def test_the_geometric_mean_over_the_batch_sizes_decides(tmp_path: Path) -> None:
    faster, fast = other(1.3, patches="matmul"), other(1.2, attention="split")
    found = decided(tmp_path, OWN, fast, faster, other(9, "a gate", residual="fp16"))
    assert found.winner is faster
    assert faster.speed == pytest.approx(1.3)
    assert YAML(typ="safe").load(found.text)["artifacts"]["fused"]["steps"] == [
        {"rebuild": {"architecture": "dinov3", "patches": "matmul"}}
    ]
    note = note_of(found, faster)
    assert "the fastest of 3 that pass the gates, of 4 tried" in note[0]
    assert note[1] == "times as fast as before (architecture: dinov3): 2.60 at batch 1, 0.65 at batch 4"


def test_noise_changes_no_recipe(tmp_path: Path) -> None:
    found = decided(tmp_path, OWN, other(1.009, patches="matmul"))
    assert found.winner is OWN
    assert not found.changed
    assert "the next (architecture: dinov3, patches: matmul) is times as fast: 2.02 at batch 1" in found.text


def test_where_nothing_passes_the_recipe_stays(tmp_path: Path) -> None:
    found = decided(tmp_path, replace(OWN, dropped="a gate", speedups={}), other(2, "a step"))
    assert found.winner is None
    assert found.text == recipe_with(tmp_path, RECIPE).text


def test_where_the_recipes_own_form_fails_another_takes_its_place(tmp_path: Path) -> None:
    found = decided(tmp_path, replace(OWN, dropped="a gate", speedups={}), other(1.0, patches="matmul"))
    assert found.changed
    assert "patches: matmul" in found.text.partition("tune:")[0]
