"""`bot publish` from upstream to the Hub, and what a second run makes of it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import onnx
import onnxruntime
import pytest

from bot.records import Release
from tests.world import PICTURES, RECIPE, TARGET, UPSTREAM, World, network


def test_a_release_arrives_whole_and_its_card_tells_the_truth(world: World, tmp_path: Path) -> None:
    outcome = world.publish()
    assert outcome["publication"]["kind"] == "pull-request"
    (request,) = world.pull_requests("open")
    folder = Path(world.api.snapshot_download(TARGET, revision=f"refs/pr/{request.num}", local_dir=tmp_path / "there"))
    release = Release.from_json((folder / "release.json").read_bytes())
    card = (folder / "README.md").read_text()
    assert release.identity == outcome["identity"] and release.withheld == ()
    assert (folder / "LICENSE").read_text() == "Permission is granted to all.\n"
    assert (folder / "source" / "config.json").read_bytes() == b"{}\n"
    assert (folder / "release" / "card.md").read_text() == card
    for artifact in release.published:
        data = (folder / artifact.file).read_bytes()
        assert len(data) == artifact.bytes and hashlib.sha256(data).hexdigest() == artifact.sha256
        assert artifact.sha256 in card
        assert re.sub(r"[^0-9]", "", f"{artifact.bytes}") in re.sub(r"(?<=\d)[,\s ](?=\d)", "", card)
        onnx.checker.check_model(str(folder / artifact.file), full_check=True)
        onnxruntime.InferenceSession(folder / artifact.file, providers=["CPUExecutionProvider"])
    rules = {verdict.rule for verdict in release.verdicts}
    assert {"valid ONNX", "safe in true fp16", "opens in onnxruntime 1.22"} <= rules
    assert all(verdict.status == "passed" for verdict in release.verdicts if verdict.required)


def test_a_second_run_does_nothing(world: World) -> None:
    first = world.publish()
    commits = [each.commit_id for each in world.api.list_repo_commits(TARGET, revision="refs/pr/1")]
    second = world.publish()
    assert second["publication"]["kind"] == "nothing" and second["identity"] == first["identity"]
    assert [each.commit_id for each in world.api.list_repo_commits(TARGET, revision="refs/pr/1")] == commits
    assert len(world.pull_requests()) == 1


def test_a_fresh_machine_knows_from_the_hub_alone_that_there_is_nothing_to_do(world: World) -> None:
    world.publish()
    (world.folder / "work").rename(world.folder / "elsewhere")
    assert world.publish()["publication"]["kind"] == "nothing"
    assert len(world.pull_requests()) == 1


def test_a_merged_release_is_known_as_done(world: World) -> None:
    world.publish()
    world.api.merge_pull_request(TARGET, 1)
    assert world.publish()["publication"]["kind"] == "nothing"
    done = world.bot("verify", TARGET)
    assert done.returncode == 0, done.stderr


def test_a_changed_upstream_file_makes_a_new_release_and_a_changed_readme_does_not(world: World) -> None:
    first = world.publish()["identity"]
    world.upload(UPSTREAM, {"README.md": b"---\nlicense: mit\n---\n# Another text\n"})
    assert world.publish()["publication"]["kind"] == "nothing"
    world.upload(UPSTREAM, {"config.json": b"{ }\n"})
    second = world.publish()
    assert second["identity"] != first and second["publication"]["kind"] == "pull-request"
    assert [each.num for each in world.pull_requests("open")] == [second["publication"]["number"]]
    world.upload(UPSTREAM, {"model.onnx": network(1)})
    third = world.publish()
    assert len({first, second["identity"], third["identity"]}) == 3
    assert [each.num for each in world.pull_requests("open")] == [third["publication"]["number"]]


def test_changed_samples_make_a_new_release(world: World) -> None:
    from tests.world import picture

    first = world.publish()["identity"]
    world.upload(PICTURES, {"images/0.png": picture(100)}, repo_type="dataset")
    assert world.publish()["identity"] != first


def test_one_commit_in_place_of_a_pull_request(world: World) -> None:
    world.write_recipe(open_as="commit")
    # README.md of a repository that is there already would be somebody's own.
    outcome = world.publish()
    assert outcome["publication"]["kind"] == "commit" and world.pull_requests() == []
    assert {"network-fp16.onnx", "README.md", "release.json"} <= set(world.api.list_repo_files(TARGET))
    assert world.publish()["publication"]["kind"] == "nothing"
    done = world.bot("verify", TARGET, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["ok"] is True


def test_a_dry_run_writes_nothing(world: World) -> None:
    done = world.bot("publish", "network", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["publication"] is None and Path(answer["card"]).is_file()
    assert not world.api.repo_exists(TARGET)
    built = world.bot("build", "network", "--json")
    assert json.loads(built.stdout)["identity"] == answer["identity"]
    assert not world.api.repo_exists(TARGET)


GATE_OF_ZERO = RECIPE.replace(
    "  second: {score.mean_absolute: {max: 0.05}}", "  second: {score.mean_absolute: {max: 0}}"
)


def test_a_gate_that_cannot_hold_withholds_its_artifact_and_the_other_goes_on(world: World) -> None:
    world.write_recipe(GATE_OF_ZERO)
    done = world.bot("publish", "network")
    assert done.returncode == 5
    assert "second" in done.stderr and "score.mean_absolute" in done.stderr and "≤ 0 point" in done.stderr
    files = world.api.list_repo_files(TARGET, revision="refs/pr/1")
    assert "network-fp16.onnx" in files and "network-second.onnx" not in files
    card = Path(world.api.hf_hub_download(TARGET, "README.md", revision="refs/pr/1")).read_text()
    assert "second" in card
    # The same again is no new attempt.
    again = world.bot("publish", "network")
    assert again.returncode == 0 and len(world.pull_requests()) == 1


def test_all_or_nothing_withholds_the_others_too(world: World) -> None:
    world.write_recipe(GATE_OF_ZERO + "all_or_nothing: true\n")
    done = world.bot("publish", "network")
    assert done.returncode == 5 and "Nothing was published" in done.stderr
    assert world.pull_requests() == []


def test_a_withheld_release_is_one_discussion_which_a_later_release_closes(world: World) -> None:
    def discussions() -> list[str]:
        return [each.status for each in world.api.get_repo_discussions(TARGET) if not each.is_pull_request]

    world.api.create_repo(TARGET)
    world.write_recipe(GATE_OF_ZERO + "all_or_nothing: true\n")
    assert world.bot("publish", "network").returncode == 5
    assert discussions() == ["open"]
    again = world.bot("publish", "network")
    assert again.returncode == 5 and "was withheld before" in again.stderr and "build" not in again.stderr
    assert world.bot("publish", "network", "--retry").returncode == 5
    assert discussions() == ["open"] and world.pull_requests() == []
    world.write_recipe()
    world.publish()
    assert discussions() == ["closed"] and len(world.pull_requests("open")) == 1


def test_random_weights_go_to_an_embedded_hub_only(world: World) -> None:
    world.upload(UPSTREAM, {"model.onnx": network(random_weights=True)})
    outcome = world.publish()
    assert outcome["release"]["random_weights"] is True
    (request,) = world.pull_requests("open")
    assert "random weights" in request.title.lower()
    card = Path(world.api.hf_hub_download(TARGET, "README.md", revision="refs/pr/1")).read_text()
    assert "random" in card.lower()


@pytest.mark.parametrize("repository", ["an-organisation/model-onnx"])
def test_the_target_is_created_where_it_is_not(world: World, repository: str) -> None:
    world.write_recipe(RECIPE.replace(TARGET, repository))
    assert world.publish()["publication"]["kind"] == "pull-request"
    assert world.api.repo_exists(repository)
