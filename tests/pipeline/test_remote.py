"""`bot publish --on hf-jobs`: a Job of the embedded Hub builds, and what it leaves is published from here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.hub import jobs
from bot.hub.client import Hub
from bot.pipeline.own_wheel import write_wheel
from tests.hub_server import start_hub
from tests.pipeline.test_handover import RECIPE
from tests.workflows.issuer import Issuer, claims_of
from tests.world import ROOT, TARGET, World

SCRATCH = "local-user/scratch"


@dataclass
class Place:
    """A Hub that runs Jobs, with a private scratch repository and a token for it alone."""

    world: World
    token: Path

    def publish(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """`bot publish network --on hf-jobs`."""
        options = ("--on", "hf-jobs:cpu-upgrade", "--scratch", SCRATCH, "--scratch-token", str(self.token))
        return self.world.bot("publish", "network", *options, *arguments, **more)

    def branches(self) -> list[str]:
        """Those of the scratch repository."""
        return [branch.name for branch in self.world.api.list_repo_refs(SCRATCH).branches]

    def jobs(self) -> list[Any]:
        """All Jobs."""
        return list(self.world.api.list_jobs(namespace="local-user"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("remote")
    # A Job finds this Python on the Hub's PATH; what the bot needs is installed beside it already.
    venv.create(root / "python", with_pip=False, symlinks=True)
    packages = next((root / "python" / "lib").glob("python3*/site-packages"))
    (packages / "installed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{root / 'python' / 'bin'}:{before}"
    try:
        world = World(root, start_hub(root / "hub", "--jobs", "--user", "other:write"))
    finally:
        os.environ["PATH"] = before
    world.seed()
    world.write_recipe(RECIPE)
    world.api.create_repo(TARGET)
    world.api.create_repo(SCRATCH, private=True)
    issuer = Issuer().start()
    (root / "scratch-token").write_text(token_for(world, issuer, SCRATCH))
    yield Place(world, root / "scratch-token")
    issuer.stop()
    world.hub.stop()


def token_for(world: World, issuer: Issuer, repo: str) -> str:
    """A token that is good for one repository, as a fine-grained one is on the Hub."""

    def call(method: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {world.hub.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            world.hub.endpoint + path, method=method, data=json.dumps(body).encode(), headers=headers
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    trusted = {"issuer": issuer.url, "claims": {"repository": "somebody/models"}}
    call("PUT", f"/api/models/{repo}/trusted-publishers", {"publishers": [trusted]})
    body = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "subject_token": issuer.sign(claims_of(), world.hub.endpoint),
        "resource": repo,
    }
    return str(call("POST", "/oauth/token", body)["access_token"])


def test_what_a_job_built_is_published_from_here(place: Place) -> None:
    done = place.publish("--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["publication"]["kind"] == "pull-request"
    (job,) = place.jobs()
    assert job.status.stage == "COMPLETED" and job.flavor == "cpu-upgrade"
    assert not {"BOT_HUB_TOKEN", "HF_TOKEN"} & set(job.environment or {})
    assert place.branches() == ["main"]
    assert place.world.api.get_discussion_details(TARGET, 1).author == "local-user"
    verified = place.world.bot("verify", f"{TARGET}@refs/pr/1", "--no-measure")
    assert verified.returncode == 0, verified.stderr
    # There is nothing to do, and no Job is paid for to find that out.
    again = place.publish("--json")
    assert json.loads(again.stdout)["publication"]["kind"] == "nothing" and len(place.jobs()) == 1


def test_a_job_that_fails_says_what_it_said(place: Place) -> None:
    place.world.write_recipe(RECIPE.replace("keep: [Softmax]", "keep: [Softmax, Conv]"))
    try:
        # The Job itself is refused what was sent to it.
        place.world.hub.fault("status", f"/{SCRATCH}/resolve/*", "HEAD", status=403, times=99)
        done = place.publish()
    finally:
        place.world.hub.clear_faults()
        place.world.write_recipe(RECIPE)
    assert done.returncode == 4, done.stderr
    assert "the Job ended as ERROR (Exit code 1)" in done.stderr and "LocalEntryNotFoundError" in done.stderr
    assert place.branches() == ["main"] and len(place.world.pull_requests()) == 1


def test_a_scratch_repository_and_its_token_are_looked_at_first(place: Place, tmp_path: Path) -> None:
    before = len(place.jobs())
    place.world.api.create_repo("local-user/open")
    main = tmp_path / "main"
    main.write_text(place.world.hub.token)
    nobody = tmp_path / "nobody"
    nobody.write_text("hf_nobody")
    for options, code, says in (
        (("--scratch", "local-user/open"), 2, "is public"),
        (("--scratch", "local-user/nothing"), 2, "no such scratch repository"),
        (("--scratch", TARGET), 2, "is the target itself"),
        (("--scratch-token", str(main)), 2, "as well, and a Job opens strangers' models"),
        (("--scratch-token", str(nobody)), 2, "may not write there"),
        (("--on", "gpu"), 2, "no machine"),
        (("--on", "hf-jobs:$(id)"), 2, "no machine"),
        (("--from", "x"), 2, "exclude each other"),
    ):
        done = place.publish(*options)
        assert done.returncode == code and says in done.stderr, done.stderr
    assert len(place.jobs()) == before


def test_a_job_whose_answer_is_lost_is_not_started_twice(place: Place) -> None:
    hub = Hub(place.world.hub.endpoint, place.world.hub.token)
    before = len(place.jobs())
    plan = jobs.JobPlan("python:3.12", ["python", "-c", "print(1)"], {}, {}, "cpu-basic", 60)
    place.world.hub.fault("lost", "/api/jobs/local-user", "POST", times=1)
    found = jobs.start(hub, "local-user", plan)
    assert len(place.jobs()) == before + 1 and found == place.jobs()[0].id
    while not (state := jobs.state(hub, "local-user", found)).has_ended:
        pass
    assert state == jobs.JobState("COMPLETED") and jobs.last_lines(hub, "local-user", found, 5) == ["1"]


def test_the_wheel_is_what_is_installed_here(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    (tmp_path / "again").mkdir()
    assert write_wheel(tmp_path / "again").read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {"bot/__main__.py", "bot/pipeline/job_script.py", "bot/templates/card.md.j2"} <= set(names)
        own = {path for folder in ("bot", "templates") for path in (ROOT / folder).rglob("*") if path.is_file()}
        shipped = {path.relative_to(ROOT).as_posix() for path in own if "__pycache__" not in path.parts}
        assert {name if name.startswith("bot/") else f"bot/{name}" for name in shipped} <= set(names)
        metadata = next(name for name in names if name.endswith("METADATA"))
        assert "Provides-Extra: cpu" in archive.read(metadata).decode()
    target = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "t"),
        str(wheel),
    ]
    subprocess.run(target, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "bot", "--version"],
        env={"PYTHONPATH": str(tmp_path / "t"), "PATH": os.defpath},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
