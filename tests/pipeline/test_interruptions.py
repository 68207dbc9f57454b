"""SIGKILL at random moments, then the same command again: the end is the same one pull request."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from bot.records import Release
from tests.world import TARGET, World

KILLS = int(os.environ.get("BOT_TEST_KILLS", "8"))


def test_a_publish_that_is_killed_again_and_again_ends_as_one_pull_request(world: World) -> None:
    chance = random.Random(20261130)
    started = time.monotonic()
    assert world.bot("build", "network").returncode == 0
    whole = time.monotonic() - started
    _forget(world)
    outcomes, kills = [], 0
    while kills < KILLS:
        process = subprocess.Popen(
            world.command("publish", "network"),
            env=world.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(chance.uniform(0, whole / 3))
            outcomes.append(process.returncode)
            # It came to its end before it was killed: begin again from nothing, with the Hub as it is.
            _forget(world)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        assert len(world.pull_requests("open")) <= 1
    last = world.publish()
    assert set(outcomes) <= {0}
    (request,) = world.pull_requests()
    assert request.status == "open" and last["publication"]["number"] == request.num
    folder = Path(world.api.snapshot_download(TARGET, revision=f"refs/pr/{request.num}", local_dir=world.folder / "d"))
    release = Release.from_json((folder / "release.json").read_bytes())
    assert all((folder / artifact.file).stat().st_size == artifact.bytes for artifact in release.published)
    verified = world.bot("verify", f"{TARGET}@refs/pr/{request.num}")
    assert verified.returncode == 0, verified.stderr
    assert [path for path in world.work.glob("*/.*.*") if path.is_dir()] == []


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
