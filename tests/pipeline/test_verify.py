"""A release verified from the Hub alone: what comes out again, what cannot be checked, what was tampered with."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.errors import RecipeError, VerificationError
from bot.hub.bundle import ids_of_bytes
from bot.pipeline.again import known_recipe
from bot.pipeline.findings import Finding
from bot.pipeline.verifying import Verified, Wanted, verify_release
from bot.records import Artifact, Release
from tests.verified import Case, change_figure, make_case, with_other_weights
from tests.world import PICTURES, RECIPE, TARGET, UPSTREAM, World

PROVIDERS = ("cpu", "fp16-emulation")

CODE = """
from pathlib import Path

from pydantic import BaseModel


class Parameters(BaseModel):
    name: str = "somebody"


def rename_producer(source: Path, output: Path, parameters: Parameters, context: object) -> dict[str, object]:
    import onnx

    model = onnx.load(source)
    model.producer_name = parameters.name
    onnx.save(model, output)
    return {}
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A release that was published and merged, verified by somebody without a copy of its recipe."""
    made = make_case(tmp_path_factory.mktemp("verify"))
    yield made
    made.world.hub.stop()


def of(verified: Verified, kind: str, status: str = "") -> list[Finding]:
    return [each for each in verified.findings if each.kind == kind and status in ("", each.status)]


def test_everything_comes_out_again_on_a_fresh_machine_and_nothing_is_fetched_twice(case: Case) -> None:
    verified = case.verify(rebuild=True)
    verified.require()
    assert {each.status for each in of(verified, "figure")} == {"ok"}
    names = {each.name for each in of(verified, "figure")}
    assert {"fp16: score.mean_absolute on cpu", "second: score.mean_absolute on fp16-emulation"} <= names
    rebuilt = [(each.name, each.status) for each in of(verified, "rebuilt file")]
    assert rebuilt == [("network-fp16.onnx", "ok"), ("network-second.onnx", "ok")]
    assert [each.status for each in verified.findings if each.kind in ("source", "samples", "licence")] == ["ok"] * 4
    (timings,) = of(verified, "timing")
    assert timings.status == "not checked" and "machine" in timings.reason
    work = case.world.folder / "verifier"
    assert not list((work / "rebuild").iterdir()) and not list((work / "verify").iterdir())
    fetched = {path: path.stat().st_mtime_ns for path in (work / "upstream").rglob("*.*") if path.is_file()}
    again = case.verify(measure=False, rebuild=True)
    again.require()
    assert fetched and {path: path.stat().st_mtime_ns for path in fetched} == fetched


def test_the_record_says_how_far_each_figure_may_be_off(case: Case) -> None:
    record = json.loads(case.content("release.json"))
    for figure in record["measurements"]:
        timing = figure["subject"] in ("latency", "speedup")
        assert (figure["spread"] is None) == timing
        if not timing and figure["value"]:
            share = 1e-2 if figure["provider"] == "fp16-emulation" else 1e-4
            assert figure["spread"] >= share * abs(figure["value"]) * 0.999
            assert figure["spread"] < 0.2 * abs(figure["value"])


def test_figures_that_were_made_better_are_found_though_everything_else_agrees(case: Case) -> None:
    old: dict[str, float] = {}

    def better(record: dict[str, Any]) -> None:
        for name, provider in (("fp16", "cpu"), ("second", "fp16-emulation")):
            value = change_figure(record, name, "score", provider)["value"]
            change_figure(record, name, "score", provider, value=value / 2)
            old[f"{name}: score.mean_absolute on {provider}"] = value
        change_figure(record, "second", "score", "cpu", samples=600)
        histogram = change_figure(record, "fp16", "score", "fp16-emulation")["histogram"]
        counts = [sum(histogram["counts"]), *[0] * (len(histogram["counts"]) - 1)]
        change_figure(record, "fp16", "score", "fp16-emulation", histogram={**histogram, "counts": counts})

    verified = case.verify(case.tampered(better))
    assert verified.verification.ok and not verified.ok
    wrong = {each.name: each for each in of(verified, "figure", "differs")}
    assert set(wrong) == {f"{name}: score.mean_absolute on {on}" for name in ("fp16", "second") for on in PROVIDERS}
    assert "over 600 samples" in wrong["second: score.mean_absolute on cpu"].recorded
    assert "histogram" in wrong["fp16: score.mean_absolute on fp16-emulation"].recorded
    with pytest.raises(VerificationError) as caught:
        verified.require()
    assert caught.value.exit_code == 8
    for name, value in old.items():
        assert f"{name}: {value / 2:.6g} point ±" in str(caught.value) and f"{value:.6g} point" in str(caught.value)


def test_another_file_with_a_record_that_fits_is_found_by_measuring_and_by_building(case: Case) -> None:
    other = with_other_weights(case.content("network-fp16.onnx"))

    def swap(record: dict[str, Any]) -> None:
        artifact = next(each for each in record["artifacts"] if each["name"] == "fp16")
        artifact |= {"sha256": ids_of_bytes(other).sha256, "bytes": len(other)}
        artifact["built_with"] |= {"numpy": "0.1"}
        Artifact.model_validate(artifact)

    verified = case.verify(case.tampered(swap, **{"network-fp16.onnx": other}), rebuild=True)
    assert verified.verification.ok
    assert "fp16: score.mean_absolute on cpu" in {each.name for each in of(verified, "figure", "differs")}
    (built,) = of(verified, "rebuilt file", "differs")
    assert (built.name, built.recorded) == ("network-fp16.onnx", ids_of_bytes(other).sha256)
    assert "numpy 0.1 then" in built.reason
    with pytest.raises(VerificationError) as caught:
        verified.require()
    assert built.recorded in str(caught.value) and built.found in str(caught.value)


def test_another_source_sample_or_licence_in_the_record_is_found(case: Case) -> None:
    def change(record: dict[str, Any]) -> None:
        record["source"]["files"]["network"]["sha256"] = "0" * 64
        record["samples"][0]["files"]["metadata"]["sha256"] = "1" * 64
        record["source"]["license"] = "cc0-1.0"
        for figure in record["measurements"]:
            figure.pop("spread")  # as an older bot wrote it

    verified = case.verify(case.tampered(change))
    wrong = {
        (each.kind, each.name): (each.recorded, each.found) for each in verified.findings if each.status == "differs"
    }
    assert wrong["source", f"{UPSTREAM}: network"][0] == "0" * 64
    assert ("samples", f"{PICTURES}: metadata") in wrong
    assert wrong["licence", UPSTREAM] == ("license cc0-1.0", "license mit")
    reasons = {(each.status, each.reason) for each in of(verified, "figure")}
    assert reasons == {("not checked", "the record does not say how far it may be off")}


def test_a_source_that_cannot_be_had_is_not_checked_and_no_failure(case: Case) -> None:
    def away(record: dict[str, Any]) -> None:
        record["source"]["commit"] = "f" * 40

    verified = case.verify(case.tampered(away), rebuild=True)
    verified.require()
    for kind in ("figure", "rebuilt file", "source", "licence"):
        assert {each.status for each in of(verified, kind)} == {"not checked"}
    assert all("the source cannot be had" in each.reason for each in of(verified, "figure"))
    with pytest.raises(VerificationError, match=r"was not checked in full.*the source cannot be had"):
        verified.require(strict=True)


def test_samples_that_cannot_be_had_leave_the_build_to_be_checked(case: Case) -> None:
    def away(record: dict[str, Any]) -> None:
        record["samples"][0]["commit"] = "f" * 40

    verified = case.verify(case.tampered(away), rebuild=True)
    verified.require()
    assert {each.status for each in of(verified, "figure")} == {"not checked"}
    assert all("the samples cannot be had" in each.reason for each in of(verified, "figure"))
    assert {each.status for each in of(verified, "rebuilt file")} == {"ok"}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\n" + "".join(f"a{i}: &a{i} [{'*a, ' * 9}*a]\n" for i in range(30)),
        "[" * 100_000,
        "not: a recipe",
        "{",
        "x: " + "y" * 2_000_000,
    ],
    ids=["aliases", "depth", "other", "broken", "long"],
)
def test_a_hostile_recipe_in_the_record_is_refused_before_it_is_unfolded(case: Case, text: str, tmp_path: Path) -> None:
    release = Release.from_json(case.content("release.json")).model_copy(update={"recipe_text": text})
    started = time.monotonic()
    with pytest.raises(RecipeError) as caught:
        known_recipe(case.context, release, None, tmp_path, "the record")
    assert "the record" in caught.value.where and time.monotonic() - started < 60


def test_a_recipe_that_cannot_be_read_leaves_figures_unchecked(case: Case) -> None:
    revision = case.tampered(lambda record: record.update(recipe_text="not: a recipe"))
    (finding,) = of(case.verify(revision), "recipe")
    assert finding.status == "not checked"


def test_the_verifiers_own_copy_is_used_only_if_it_is_the_same(case: Case, tmp_path: Path) -> None:
    own = World(tmp_path, case.world.hub)
    path = own.write_recipe(open_as="commit")
    path.write_text(f"# A comment decides nothing.\n{path.read_text()}")
    verified = case.verify(measure=False, rebuild=True, recipes=own.recipes)
    verified.require()
    assert [each.name for each in of(verified, "licence")] == [UPSTREAM, f"{UPSTREAM}, as reviewed"]

    path.write_text(path.read_text().replace("keep: [Softmax]", "keep: [Gemm]"))
    (path.parent / "recipe.py").write_text(CODE)
    (path.parent / "licenses" / "LICENSE").write_text("Other terms.")
    with pytest.raises(RecipeError, match=r"recipe\.yaml, recipe\.py, the licence texts differ") as caught:
        case.verify(measure=False, rebuild=True, recipes=own.recipes)
    assert caught.value.exit_code == 2 and "--recipes" in caught.value.remedy


def test_code_that_was_downloaded_is_never_run(case: Case, tmp_path: Path) -> None:
    """A step of the recipe's own runs out of the verifier's folder, and only if it is the very code of the release."""
    own = World(tmp_path, case.world.hub)
    text = re.sub("  second: .*\n", "", RECIPE).replace(TARGET, "local-user/with-code")
    text = text.replace("steps: [float16]}", "steps: [float16, rename_producer]}")
    path = own.write_recipe(text, open_as="commit")
    (path.parent / "recipe.py").write_text(CODE)
    own.publish("--work", str(case.world.work))
    target = "local-user/with-code"
    context = case.context
    without = verify_release(context, target, "main", Wanted(measure=False, rebuild=True))
    without.require()
    (finding,) = of(without, "rebuilt file")
    assert finding.status == "not checked" and "code that was downloaded is never run" in finding.reason
    with_copy = verify_release(context, target, "main", Wanted(measure=False, rebuild=True, recipes=own.recipes))
    assert [each.status for each in of(with_copy, "rebuilt file")] == ["ok"]
    (path.parent / "recipe.py").write_text(CODE + "# another\n")
    with pytest.raises(RecipeError, match=r"recipe\.py differs"):
        verify_release(context, target, "main", Wanted(measure=False, rebuild=True, recipes=own.recipes))


def test_the_command(case: Case) -> None:
    done = case.world.bot("verify", TARGET, "--json", "--rebuild", "--no-measure")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and {each["status"] for each in found["checks"]} == {"ok"}
    done = case.world.bot("verify", f"{TARGET}@{case.tampered(_worse)}", "--recipes", str(case.world.folder))
    assert done.returncode == 8 and done.stderr.count("error: ") == 1
    assert "figure fp16: score.mean_absolute on cpu: 1 point" in done.stderr and "differs" in done.stdout


def _worse(record: dict[str, Any]) -> None:
    change_figure(record, "fp16", "score", "cpu", value=1.0)
