"""The workflows, run as they are written: a hostile upstream is watched, built, signed, published and verified."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from bot.records import Release
from tests.sigstore_world import Sigstore
from tests.workflows import payloads
from tests.workflows.conftest import Place
from tests.workflows.issuer import Issuer
from tests.workflows.known_actions import equivalents
from tests.workflows.runner import GitHub, Job, WorkflowError
from tests.world import ROOT, TARGET

PUBLISH = [f"Publish network / {key}" for key in ("plan", "build", "publish", "verify")]


def shown(jobs: dict[str, Job]) -> str:
    return "\n\n".join(f"--- {key}: {job.result}\n{job.log[-3000:]}" for key, job in jobs.items())


def test_what_is_due_is_published_and_verified(place: Place) -> None:
    assert {key: job.result for key, job in place.jobs.items()} == {
        **dict.fromkeys(["watch", *PUBLISH, "publish"], "success")
    }, shown(place.jobs)
    matrix = json.loads(place.jobs["watch"].outputs["matrix"])
    assert [row["recipe"] for row in matrix["include"]] == ["network"]
    outputs = place.jobs[PUBLISH[2]].outputs
    assert outputs == {"repository": TARGET, "revision": "refs/pr/1", "kind": "pull-request", "signed": "true"}
    details = place.world.api.get_discussion_details(TARGET, 1)
    assert details.author == "[OIDC]" and details.status == "open"


def test_only_the_job_that_publishes_could_show_who_it_is(place: Place) -> None:
    assert set(place.github.minted) == {PUBLISH[2]}
    assert place.jobs[PUBLISH[2]].environment == "hugging-face"
    assert {job.group for key, job in place.jobs.items() if key in PUBLISH} == {"publish-network"}
    for key, job in place.jobs.items():
        for step in job.steps:
            oidc = {name for name in step.environment if name.startswith("ACTIONS_") or "OIDC" in name}
            allowed = {"ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "HF_OIDC_RESOURCE"}
            assert oidc == (allowed if key == PUBLISH[2] and step.environment else set()), (key, step.name, oidc)
            assert not {name for name in step.environment if name in ("HF_TOKEN", "BOT_HUB_TOKEN", "GITHUB_TOKEN")}
    asked = place.github.issuer.given
    assert {said["aud"] for said in asked} == {place.world.hub.endpoint}
    assert {said["environment"] for said in asked} == {"hugging-face"}
    assert all(re.fullmatch(r"[^/]+/[^/]+/\.github/workflows/watch\.yml@.*", said["workflow_ref"]) for said in asked)


def test_the_first_job_hands_over_a_record_and_models_and_nothing_else(place: Place) -> None:
    folder = place.github.artifacts["handover-network"]
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert names == ["artifacts/fp16/model.onnx", "release.json"]


def test_the_release_carries_the_signature_of_the_workflow(place: Place, tmp_path: Path) -> None:
    log = place.jobs[PUBLISH[3]].log
    signer = "https://github.com/somebody/models/.github/workflows/publish.yml@refs/heads/main"
    assert f"provenance: signed by {signer}" in log
    assert "every file is as it was released" in log
    files = place.world.api.list_repo_files(TARGET, revision="refs/pr/1")
    assert "release/provenance.sigstore.json" in files
    # Somebody else's workflow did not sign it.
    where = f"{TARGET}@refs/pr/1"
    root = ["--trust-root", place.github.variables["BOT_TRUST_ROOT"]]
    for who, code in ((signer, 0), (signer.replace("publish.yml", "ci.yml"), 8)):
        done = place.world.bot("verify", where, "--no-measure", "--signer", who, *root)
        assert done.returncode == code, done.stderr


def test_the_summaries_tell_what_came_of_it(place: Place) -> None:
    assert "| ` network ` | ` local-user/network-onnx ` | ` ubuntu-latest ` | ` new ` |" in place.jobs["watch"].summary
    build, publish = place.jobs[PUBLISH[1]].summary, place.jobs[PUBLISH[2]].summary
    assert "All checks that withhold passed" in build and "network-fp16.onnx" in build
    assert f"[Pull request]({place.world.hub.endpoint}/{TARGET}/discussions/1)" in publish
    assert "score" in publish and "speed" in publish.lower()
    plots = re.findall(r"\[[\w-]+\.svg\]\(([^)]*)\)", publish)
    assert len(plots) >= 2
    for address in plots:
        with urllib.request.urlopen(address, timeout=10) as page:
            assert page.status == 200, address


# -- a hostile upstream ------------------------------------------------------------------------------------------------


def test_nothing_of_upstream_was_run(place: Place) -> None:
    root = place.github.folder
    assert list(root.rglob("pwned*")) == []
    for job in place.jobs.values():
        assert not [command for command in job.commands if command[0] != "notice"], job.commands
        assert not [step for step in job.steps if "PWNED" in step.environment]
    assert payloads.COMMANDS and "50337" not in "".join(job.log for job in place.jobs.values())


def test_no_token_stands_in_a_log(place: Place) -> None:
    logs = "".join(job.log + job.summary for job in place.jobs.values())
    assert "hf_jwt_" not in logs and place.world.hub.token not in logs
    for token in place.github.issuer.jobs:
        assert token not in logs


def test_the_card_and_the_conversation_hold_it_as_text(place: Place, tmp_path: Path) -> None:
    api: HfApi = place.world.api
    endpoint = place.world.hub.endpoint
    folder = Path(api.snapshot_download(TARGET, revision="refs/pr/1", local_dir=tmp_path / "there"))
    card = (folder / "README.md").read_text("utf-8")
    front = payloads.plain_front_matter(card)
    assert front["license"] == "mit" and front["pipeline_tag"] == "image-classification"
    own = {
        endpoint,
        "https://huggingface.co/",
        "http://127.0.0.1",
        "LICENSE",
        "release",
        "source",
        "plots",
        "#",
        "network-fp16",
    }
    payloads.assert_harmless_markdown(card.split("---\n", 2)[2], own)
    details = api.get_discussion_details(TARGET, 1)
    comments = [event for event in details.events if event.type == "comment"]
    assert len(comments) == 2
    for event in comments:
        payloads.assert_harmless_markdown(event.content, own)
    for job in place.jobs.values():
        payloads.assert_harmless_markdown(job.summary, own)
    assert "\n" not in details.title and len(details.title) <= 200


def test_the_names_arrive_as_they_were(place: Place, tmp_path: Path) -> None:
    """Harmless does not mean changed: the record and the copies are upstream's own."""
    api = place.world.api
    files = api.list_repo_files(TARGET, revision="refs/pr/1")
    for index, payload in enumerate(payloads.IN_FILE_NAMES):
        assert f"source/{index} {payload}.json" in files
    path = api.hf_hub_download(TARGET, "release.json", revision="refs/pr/1", local_dir=tmp_path)
    release = Release.from_json(Path(path).read_bytes())
    names = [tensor.name for tensor in release.artifacts[0].signature.outputs]
    assert set(payloads.IN_OUTPUT_NAMES) < set(names)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def again(place: Place, *keys: str) -> dict[str, Job]:
    """Publishes once more, by hand, with some jobs of the first run."""
    return place.github.run("publish.yml", inputs={"recipe": "network"}, reuse=place.again(*keys))


def test_a_second_run_does_nothing_twice(place: Place) -> None:
    jobs = again(place, "plan", "build", "verify")
    assert {key: job.result for key, job in jobs.items()} == dict.fromkeys(
        ("plan", "build", "publish", "verify"), "success"
    ), shown(jobs)
    outputs = jobs["publish"].outputs
    assert outputs["kind"] == "nothing" and outputs["revision"] == "refs/pr/1" and outputs["signed"] == "false"
    assert len(place.world.pull_requests()) == 1
    assert "Nothing to do" in jobs["publish"].summary


def test_the_poll_after_it_finds_nothing_due(place: Place) -> None:
    jobs = place.github.run("watch.yml", "schedule")
    assert {key: job.result for key, job in jobs.items()} == {"watch": "success", "publish": "skipped"}, shown(jobs)
    assert json.loads(jobs["watch"].outputs["matrix"]) == {"include": []}


def test_a_workflow_that_is_not_trusted_gets_no_token(place: Place) -> None:
    place.trust(place.publisher(repository="somebody/else"), place.publisher(environment="production"))
    try:
        jobs = again(place, "plan", "build")
    finally:
        place.trust(place.publisher(), place.publisher("watch.yml"))
    assert jobs["publish"].result == "failure" and jobs["verify"].result == "skipped"
    assert "the Hub gives this workflow no token for local-user/network-onnx" in jobs["publish"].log
    assert "Trusted Publishers" in jobs["publish"].log and "Traceback" not in jobs["publish"].log
    assert "exit code 7" in jobs["publish"].summary and "To do:" in jobs["publish"].summary
    assert [name for name, _ in jobs["publish"].commands] == ["error"]
    # The step that signs, and the one that publishes, were not reached.
    reached = {step.name: step.conclusion for step in jobs["publish"].steps if step.name in ("Sign", "Publish")}
    assert reached == {"Sign": "skipped", "Publish": "skipped"}


def test_a_token_for_another_repository_is_not_asked_for(place: Place) -> None:
    """The second job reads the target from its own copy of the recipe; the first job's word is not enough."""
    reuse = place.again("plan", "build")
    plan = Job(**{**vars(reuse["plan"]), "outputs": {**reuse["plan"].outputs, "target": "local-user/another"}})
    before = len(place.github.issuer.given)
    jobs = place.github.run("publish.yml", inputs={"recipe": "network"}, reuse={**reuse, "plan": plan})
    assert jobs["publish"].result == "failure"
    assert "HF_OIDC_RESOURCE" in jobs["publish"].log and "exit code 2" in jobs["publish"].summary
    assert len(place.github.issuer.given) == before


def test_a_spoilt_hand_over_publishes_nothing(place: Place) -> None:
    kept = place.github.artifacts["handover-network"]
    spoilt = kept.with_name("spoilt")
    shutil.copytree(kept, spoilt)
    (spoilt / "README.md").write_text("::set-output name=revision::refs/heads/evil\n")
    place.github.artifacts["handover-network"] = spoilt
    try:
        jobs = again(place, "plan", "build")
    finally:
        place.github.artifacts["handover-network"] = kept
    assert jobs["publish"].result == "failure" and jobs["verify"].result == "skipped"
    assert "does not belong into a hand-over" in jobs["publish"].log and "exit code 8" in jobs["publish"].summary
    assert len(place.world.pull_requests()) == 1


def test_what_is_withheld_is_said_by_the_step_that_publishes(place: Place, tmp_path: Path) -> None:
    """The step that checks goes on, or nobody would tell the Hub, and each poll would build the same again."""
    script = '#!/bin/sh\necho "bot $*" >> "{calls}"\nexit 5\n'.format(calls=tmp_path / "calls")
    (tmp_path / "instead").mkdir()
    (tmp_path / "instead" / "bot").write_text(script)
    (tmp_path / "instead" / "bot").chmod(0o755)
    place.github.instead = tmp_path / "instead"
    try:
        jobs = again(place, "plan", "build")
    finally:
        place.github.instead = None
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first.startswith("bot publish network --from") and first.endswith("--dry-run")
    assert second == first.removesuffix(" --dry-run")
    assert jobs["publish"].result == "failure" and jobs["verify"].result == "skipped"


def test_the_kill_switch_stops_everything(place: Place) -> None:
    place.github.variables["BOT_PAUSED"] = "true"
    try:
        for workflow, event, inputs in (
            ("watch.yml", "schedule", {}),
            ("publish.yml", "workflow_dispatch", {"recipe": "a"}),
        ):
            jobs = place.github.run(workflow, event, inputs)
            assert {job.result for job in jobs.values()} == {"skipped"}
    finally:
        del place.github.variables["BOT_PAUSED"]


def test_a_recipe_that_there_is_not_fails_with_the_names_of_those_that_there_are(place: Place) -> None:
    for name, says in (
        ("netwrk", "Did you mean network?"),
        ("--help; touch pwned", "named by letters"),
    ):
        jobs = place.github.run("publish.yml", inputs={"recipe": name})
        assert jobs["plan"].result == "failure" and says in jobs["plan"].log, jobs["plan"].log
        assert {jobs[key].result for key in ("build", "publish", "verify")} == {"skipped"}


# -- ci ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["push", "pull_request"])
def test_ci_prepares_the_runner_and_runs_the_documented_command(
    library: Path, python: Path, tmp_path: Path, event: str
) -> None:
    """Its last step runs these very tests, so `make` and `sudo` are played by programs that write down their call."""
    for name in ("make", "sudo"):
        (tmp_path / "instead").mkdir(exist_ok=True)
        (tmp_path / "instead" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n')
        (tmp_path / "instead" / name).chmod(0o755)
    github = GitHub(tmp_path / "runners", library, library, python, Issuer(), equivalents(Sigstore()))
    github.instead = tmp_path / "instead"
    jobs = github.run("ci.yml", event)
    assert jobs["test"].result == "success", shown(jobs)
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "make test PYTEST_ARGS=--no-skips"
    assert github.minted == [] and jobs["test"].permissions == {"contents": "read"}
    assert "make test" in (ROOT / "README.md").read_text("utf-8")


# -- somebody else's repository ----------------------------------------------------------------------------------------


def elsewhere(place: Place, library: Path, folder: Path, workflow: str) -> GitHub:
    """A repository of recipes that holds no line of the bot's, and one workflow."""
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "hub.yml").write_text(workflow)
    shutil.copytree(place.world.recipes, folder / "recipes")
    made = replace(
        place.github,
        folder=folder.with_name("runners"),
        source=folder,
        library=library,
        library_name=LIBRARY,
        minted=[],
    )
    made.repository = "you/models"
    return made


LIBRARY = "owner/hub-publishing-bot"
DOCUMENTED = next(
    text.replace("@COMMIT", f"@{'c0' * 20}")
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "github-actions.md").read_text("utf-8"), re.DOTALL)
    if text.startswith("# .github/workflows/hub.yml")
)


def test_the_documented_workflow_watches_for_somebody_else(place: Place, library: Path, tmp_path: Path) -> None:
    assert len(DOCUMENTED[DOCUMENTED.index("jobs:") :].splitlines()) == 4
    github = elsewhere(place, library, tmp_path / "models", DOCUMENTED)
    jobs = github.run("hub.yml", "schedule")
    # The release of this recipe is open already, and the account is the same.
    assert {key: job.result for key, job in jobs.items()} == {
        "hub / watch": "success",
        "hub / publish": "skipped",
        "hub": "success",
    }, shown(jobs)
    assert github.minted == []


def test_a_caller_who_grants_too_little_is_told_before_anything_runs(
    place: Place, library: Path, tmp_path: Path
) -> None:
    text = DOCUMENTED.replace("id-token: write, ", "").replace("watch.yml", "publish.yml")
    text += "    with: {recipe: network}\n"
    github = elsewhere(place, library, tmp_path / "models", text)
    reuse = {f"hub / {key}": job for key, job in place.again("plan", "build").items()}
    with pytest.raises(WorkflowError, match="was not granted"):
        github.run("hub.yml", reuse=reuse)
    assert github.minted == []
