"""SIGKILL at random moments, then the same command again: the end is the same one pull request."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from bot.records import Release
from tests.world import TARGET, World

STAGES = ("fetch", "build", "measure", "card", "publish", "verify")
ROUNDS = int(os.environ.get("BOT_TEST_KILL_ROUNDS", "2"))


def test_a_publish_that_is_killed_in_every_stage_ends_as_one_pull_request(world: World) -> None:
    chance = random.Random(20261130)
    killed: list[str] = []
    for _ in range(ROUNDS):
        for stage in STAGES:
            _forget(world)
            if _kill_in(world, stage, chance.uniform(0, 0.6)):
                killed.append(stage)
            assert len(world.pull_requests("open")) <= 1
    # The last two stages are not reached any more once the pull request is there and whole.
    assert {"fetch", "build", "measure"} <= set(killed)
    last = world.publish()
    (request,) = world.pull_requests()
    assert request.status == "open" and last["publication"]["number"] == request.num
    folder = Path(world.api.snapshot_download(TARGET, revision=f"refs/pr/{request.num}", local_dir=world.folder / "d"))
    release = Release.from_json((folder / "release.json").read_bytes())
    assert all((folder / artifact.file).stat().st_size == artifact.bytes for artifact in release.published)
    verified = world.bot("verify", f"{TARGET}@refs/pr/{request.num}")
    assert verified.returncode == 0, verified.stderr
    assert [path for path in world.work.glob("*/.*.*") if path.is_dir()] == []


@pytest.mark.parametrize("wait", [0.0, 0.15, 0.3, 0.45])
def test_a_kill_while_publishing_leaves_nothing_or_the_whole(world: World, wait: float) -> None:
    assert _kill_in(world, "publish", wait) or world.pull_requests("open")
    for request in world.pull_requests():
        files = set(world.api.list_repo_files(TARGET, revision=f"refs/pr/{request.num}"))
        assert {"release.json", "README.md", "LICENSE", "network-fp16.onnx", "network-second.onnx"} <= files
    world.publish()
    assert [each.status for each in world.pull_requests()] == ["open"]


def _kill_in(world: World, stage: str, wait: float) -> bool:
    """Starts a publish and kills it some time into a stage; False if it came to its end before."""
    command = world.command("publish", "network")
    process = subprocess.Popen(
        command, env=world.environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr
    reached = any(re.search(rf"\] {stage}\b", line) for line in process.stderr)
    if reached:
        time.sleep(wait)
    alive = process.poll() is None
    process.kill()
    process.wait()
    process.stderr.close()
    return reached and alive


def _forget(world: World) -> None:
    """What was built is forgotten, so that kills hit the build as well as what comes after it."""
    for kind in ("steps", "runs", "timings", "samples", "emulations"):
        for entry in (world.work / kind).glob("*"):
            entry.rename(world.folder / f"forgotten-{kind}-{entry.name}-{time.monotonic_ns()}")


def test_no_worker_outlives_a_killed_command(world: World) -> None:
    process = subprocess.Popen(world.command("publish", "network"), env=world.environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (children := _workers(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _workers(parent: int) -> list[int]:
    """All processes below one, as /proc tells."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) in {parent, *found}:
            found.append(int(path.parent.name))
    return found
