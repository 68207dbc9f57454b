"""What can be said of the workflows without running them: shape, audit, pins, rights."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sigstore_world import Sigstore
from tests.workflows.known_actions import equivalents
from tests.workflows.runner import load

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*WORKFLOWS, ROOT / "action.yml"]
BIN = Path(sys.executable).parent


def ids(path: Path) -> str:
    return path.name


def steps_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (plan.get("runs") or {}).get("steps", [])
    for job in (plan.get("jobs") or {}).values():
        yield from job.get("steps", [])


def test_there_are_three_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "publish.yml", "watch.yml"]


def test_they_have_the_shape_that_github_takes() -> None:
    schemas = [("vendor.github-workflows", WORKFLOWS), ("vendor.github-actions", [ROOT / "action.yml"])]
    for schema, files in schemas:
        command = [BIN / "check-jsonschema", "--builtin-schema", schema, *files]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_audit_finds_nothing() -> None:
    command = [BIN / "zizmor", "--offline", "--quiet", "--persona", "pedantic", *FILES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_audit_would_find_something(tmp_path: Path) -> None:
    """The tool looks at what it is given: a run: with a stranger's text in it is found."""
    path = tmp_path / ".github" / "workflows" / "bad.yml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "on: pull_request_target\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n"
        "      - run: echo ${{ github.event.pull_request.title }}\n"
    )
    done = subprocess.run([BIN / "zizmor", "--offline", "--quiet", path], capture_output=True, text=True)
    assert done.returncode != 0 and "template-injection" in done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_every_action_of_others_is_pinned_to_the_commit_of_its_release(path: Path) -> None:
    known = equivalents(Sigstore())
    found = re.findall(r"uses: (\S+)(?: # (\S+))?$", path.read_text("utf-8"), re.MULTILINE)
    others = [(uses, comment) for uses, comment in found if not uses.startswith("$/")]
    for uses, comment in others:
        name, _, commit = uses.partition("@")
        assert (commit, comment) == (known[name].commit, known[name].version), uses
    assert len(found) == len([step for step in steps_of(load(path)) if "uses" in step]) + (path.name == "watch.yml")


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_no_expression_is_put_into_a_script(path: Path) -> None:
    for step in steps_of(load(path)):
        assert "${{" not in str(step.get("run", "")), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=ids)
def test_nothing_is_allowed_that_is_not_written_at_the_job(path: Path) -> None:
    plan = load(path)
    assert plan["permissions"] == {}
    for key, job in plan["jobs"].items():
        assert isinstance(job.get("permissions"), dict), key
        assert "timeout-minutes" in job or "uses" in job, key


def test_one_job_alone_may_show_who_it_is() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "publish.yml")["jobs"]
    assert {key: set(job["permissions"]) for key, job in jobs.items()} == {
        "plan": {"contents"},
        "build": {"contents"},
        "publish": {"contents", "id-token", "attestations"},
        "verify": {"contents"},
    }
    assert all(job["permissions"]["contents"] == "read" for job in jobs.values())
    assert [key for key, job in jobs.items() if "HF_OIDC_RESOURCE" in (job.get("env") or {})] == ["publish"]
    assert [key for key, job in jobs.items() if "environment" in job] == ["publish"]
    machines = {key: job["runs-on"] for key, job in jobs.items()}
    assert machines.pop("build") == "${{ needs.plan.outputs.runner }}" and set(machines.values()) == {"ubuntu-latest"}
    commands = {
        key: [step["with"]["command"] for step in job["steps"] if step["uses"] == "$/"] for key, job in jobs.items()
    }
    assert commands == {"plan": ["plan"], "build": ["build"], "publish": ["check", "publish"], "verify": ["verify"]}


def test_no_workflow_knows_a_secret() -> None:
    for path in FILES:
        assert "secrets." not in path.read_text("utf-8") and "pull_request_target" not in path.read_text("utf-8")


def test_one_recipe_runs_once() -> None:
    plans = {path.name: load(path) for path in WORKFLOWS}
    assert plans["publish.yml"]["concurrency"] == {"group": "publish-${{ inputs.recipe }}", "cancel-in-progress": False}
    assert plans["watch.yml"]["concurrency"] == {"group": "watch", "cancel-in-progress": False}


def test_every_variable_is_documented() -> None:
    text = (ROOT / "docs" / "github-actions.md").read_text("utf-8")
    used = {name for path in FILES for name in re.findall(r"\bvars\.(\w+)", path.read_text("utf-8"))}
    table = text[text.index("| variable |") :]
    written = set(
        re.findall(r"`([A-Z_]+)`", "".join(line.split("|")[1] for line in table.split("\n\n")[0].splitlines()))
    )
    assert written == used


def test_every_command_of_the_action_is_documented() -> None:
    script = next(step["run"] for step in steps_of(load(ROOT / "action.yml")) if "case" in str(step.get("run", "")))
    commands = set(re.findall(r"^  (\w+)\)$", script, re.MULTILINE))
    assert commands == {"plan", "watch", "build", "check", "publish", "verify"}
    assert all(f"`{command}`" in (ROOT / "docs" / "github-actions.md").read_text("utf-8") for command in commands)


def test_the_table_of_rights_is_that_of_the_workflows() -> None:
    """docs/github-actions.md says what each job may do."""
    text = (ROOT / "docs" / "github-actions.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)\.yml` \| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE)
    written = {(file, job): set(re.findall(r"`([a-z-]+: \w+)`", rights)) for file, job, rights in rows}
    real = {
        (path.stem, key): {f"{name}: {right}" for name, right in job["permissions"].items()}
        for path in WORKFLOWS
        for key, job in load(path)["jobs"].items()
    }
    assert written == real
