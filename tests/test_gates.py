"""Gates: what passes, what is withheld, and what an absent figure means."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bot import gates
from bot.recipe import Recipe, load_recipe
from bot.records import Measurement
from tests.test_recipe import GOOD, write


def recipe(folder: Path, limits: str) -> Recipe:
    text = GOOD[: GOOD.index("gates:")] + f"gates:\n  fp16: {limits}\n"
    return load_recipe(write(folder, text))


def figure(value: float, provider: str = "cpu", **more: object) -> Measurement:
    fields = {"subject": "age", "metric": "mean_absolute", "unit": "year", "artifact": "fp16", "method": "test"}
    return Measurement.model_validate({**fields, "value": value, "provider": provider, **more})


def test_a_figure_within_its_limit_passes_and_one_beyond_it_names_value_and_limit(tmp_path: Path) -> None:
    plan = recipe(tmp_path, "{age.mean_absolute: {max: 0.02}}")
    (verdict,) = gates.judge(plan, "fp16", [figure(0.02)], [])
    assert verdict.status == "passed" and not verdict.withholds
    (verdict,) = gates.judge(plan, "fp16", [figure(0.0201)], [])
    assert verdict.status == "failed" and gates.withheld([verdict]) == ("fp16",)
    assert "0.0201 year" in verdict.reason and "≤ 0.02 year" in verdict.reason


def test_every_provider_is_held_against_the_limit(tmp_path: Path) -> None:
    plan = recipe(tmp_path, "{age.mean_absolute: {max: 0.02}}")
    found = gates.judge(plan, "fp16", [figure(0.01), figure(3.16, gates.EMULATION)], [])
    assert [verdict.status for verdict in found] == ["passed", "failed"]
    assert found[1].provider == gates.EMULATION


def test_a_figure_that_is_not_there_withholds_unless_its_provider_is_optional(tmp_path: Path) -> None:
    plan = recipe(
        tmp_path, "{age.mean_absolute: {max: 0.02}, speedup.cuda.batch_1: {min: 2}, speedup.cpu.batch_1: {min: 1}}"
    )
    accuracy, cuda, cpu = gates.judge(plan, "fp16", [], [])
    assert {verdict.status for verdict in (accuracy, cuda, cpu)} == {"not measured"}
    assert accuracy.withholds and cpu.withholds and not cuda.withholds
    assert "optional" in cuda.reason
    assert gates.judge(plan, "fp16", [], [], require={"cuda"})[1].withholds


def test_a_check_of_its_own_accord_withholds_when_it_fails_or_could_not_be_made(tmp_path: Path) -> None:
    plan = recipe(tmp_path, "{}")
    checks = [{"rule": rule, "status": rule, "reason": "because"} for rule in ("passed", "failed", "not measured")]
    found = gates.judge(plan, "fp16", [], checks)
    assert [verdict.withholds for verdict in found] == [False, True, True]
    assert gates.withheld(found) == ("fp16",)


@given(value=st.floats(-1e6, 1e6), limit=st.floats(-1e6, 1e6), kind=st.sampled_from(["max", "min"]))
def test_the_law_of_a_limit(tmp_path_factory: object, value: float, limit: float, kind: str) -> None:
    from bot.recipe_plan import GatePlan

    gate = GatePlan.model_validate({kind: limit})
    verdict = gates._of_figure("fp16", "age.mean_absolute", gate, figure(value))
    assert (verdict.status == "passed") == (value <= limit if kind == "max" else value >= limit)
    assert verdict.limit == limit and verdict.value == value
