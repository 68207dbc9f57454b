"""`bot watch` as a person, and as a workflow, calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watch.conftest import FleetWorld, start_fleet
from tests.watch.fleet_world import Member, members, write_recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    """Four recipes: one current, one whose upstream changed, one whose upstream is gone, one that is broken."""
    made = start_fleet(tmp_path_factory.mktemp("command"), members(4, 1), "--fast-clock")
    made.change(made.members[1], "other weights")
    made.hub.api().delete_repo(made.members[2].upstream)
    recipe = made.recipes / made.members[3].name / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("license: {id: mit}", "licence: {id: mit}"))
    yield made
    made.hub.stop()


def _command(world: FleetWorld, *arguments: str, hub: str = "") -> list[str]:
    token = world.folder / "token"
    token.write_text(world.hub.token)
    where = ["--recipes", str(world.recipes), "--work", str(world.folder / "work"), "--token-file", str(token)]
    return [sys.executable, "-m", "bot", "watch", *arguments, "--hub", hub or world.hub.endpoint, *where]


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "BOT_"))}


def _watch(world: FleetWorld, *arguments: str, hub: str = "") -> subprocess.CompletedProcess[str]:
    command = _command(world, *arguments, hub=hub)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=_environment(), check=False)


def test_the_table_shows_everything_and_the_exit_code_the_worst(world: FleetWorld) -> None:
    done = _watch(world)
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("model-")}
    assert " current " in lines["model-00000"] and "nothing to do" in lines["model-00000"]
    assert "due (upstream files)" in lines["model-00001"] and "bot publish model-00001" in lines["model-00001"]
    assert "unavailable" in lines["model-00002"] and "no such repository" in lines["model-00002"]
    assert "broken" in lines["model-00003"] and "recipe.yaml:3" in lines["model-00003"]
    assert "1 current, 1 due, 1 unavailable, 1 broken" in done.stdout
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_the_matrix_comes_whole_and_the_exit_code_after_it(world: FleetWorld) -> None:
    done = _watch(world, "--json")
    assert json.loads(done.stdout) == {
        "include": [
            {
                "recipe": "model-00001",
                "target": world.members[1].target,
                "runner": "ubuntu-latest",
                "reason": "upstream files",
            }
        ]
    }
    assert done.returncode == 2
    assert "model-00002: unavailable" in done.stderr and "model-00003: broken" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["model-00000"], 0, "1 current"),
        (["model-00002"], 3, "unavailable"),
        (["model-0000"], 2, "Did you mean model-0000"),
        (["--every", "often"], 2, "15m"),
        (["--budget", "all"], 2, "1% to 100%"),
        (["--once", "--every", "1m"], 2, "exclude each other"),
    ],
)
def test_exit_codes(world: FleetWorld, arguments: list[str], code: int, words: str) -> None:
    done = _watch(world, *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_hub_that_does_not_answer_is_exit_code_7(world: FleetWorld) -> None:
    world.hub.fault("status", times=0, status=403, body='{"error": "no"}')
    try:
        done = _watch(world, "model-00000", "--account", "local-user")
    finally:
        world.hub.clear_faults()
    assert done.returncode in (3, 7) and "unavailable" in done.stdout
    world.hub.fault("status", path="/api/whoami-v2", times=0, status=401)
    try:
        done = _watch(world, "model-00000")
    finally:
        world.hub.clear_faults()
    assert done.returncode == 7 and "does not accept the token" in done.stderr and "to do:" in done.stderr


def test_two_recipes_for_one_target_are_both_broken(world: FleetWorld) -> None:
    twin = Member("twin", world.members[0].upstream, world.members[0].target.upper())
    write_recipe(world.recipes / "twin", twin, world.samples_commit)
    try:
        done = _watch(world)
    finally:
        for path in sorted((world.recipes / "twin").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (world.recipes / "twin").rmdir()
    assert "1 due, 1 unavailable, 3 broken" in done.stdout and "a target of its own" in done.stdout


def test_the_loop_prints_each_poll_and_ends_with_the_terminal(world: FleetWorld) -> None:
    command = _command(world, "model-00000", "--json", "--every", "1s")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # Whoever started these tests in the background may have had this signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        began = time.monotonic()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert lines == [{"include": []}] * 2 and time.monotonic() - began >= 1
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode != 0
