"""How a worker ends: by crashes, by limits, with the bot, and with everything that it started."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kinds import ALL, HOSTILE, worker

import bot
from bot.isolation import room
from bot.worker import Limits, Worker, WorkerError

ROOT = Path(bot.__file__).parent.parent


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SIGSEGV", "not its own"),
        ("SIGABRT", "gave up"),
        ("SIGILL", "instruction"),
        ("SIGBUS", "shorter"),
        ("SIGFPE", "zero"),
        ("SIGKILL", "out of memory"),
        ("SIGXCPU", "processor time"),
        ("SIGTERM", "ended by"),
    ],
)
def test_death_by_a_signal_is_named_and_explained(name: str, words: str, any_worker: Worker) -> None:
    with pytest.raises(WorkerError) as caught:
        any_worker.call("die", {"signal": name}, extra_path=[HOSTILE])
    error = caught.value
    assert f"ended by {name}" in error.what and words in error.what
    assert error.where == "die"
    assert error.remedy or name == "SIGTERM"
    if name == "SIGSEGV":
        assert "in die" in error.details  # where it was, in Python


def test_a_crash_is_not_the_end_of_the_bot(any_worker: Worker) -> None:
    for _ in range(3):
        with pytest.raises(WorkerError):
            any_worker.call("die", {"signal": "SIGSEGV"}, extra_path=[HOSTILE])
        assert any_worker.call("echo", {"a": 1}, extra_path=[HOSTILE]) == {"a": 1}


def test_an_endless_task_is_ended_at_its_limit(any_worker: Worker) -> None:
    hasty = Worker(limits=Limits(seconds=0.7), tasks={"spin": "hostile:spin"}, isolation=any_worker.isolation)
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"longer than its limit of 0\.7 s"):
        hasty.call("spin", {}, extra_path=[HOSTILE])
    assert 0.7 <= time.monotonic() - start < 2.5


def test_a_task_that_talks_without_end_is_ended_at_its_limit(any_worker: Worker) -> None:
    hasty = Worker(limits=Limits(seconds=0.7), tasks={"count": "hostile:count"}, isolation=any_worker.isolation)
    with pytest.raises(WorkerError, match="longer than its limit"):
        hasty.call("count", {"total": 10**9, "text": "x" * 1000}, on_progress=lambda *_: None, extra_path=[HOSTILE])


@pytest.mark.parametrize("kind", ["own", "shared", "processes"])
def test_a_memory_hog_is_stopped(kind: str, any_worker: Worker) -> None:
    frugal = Worker(limits=Limits(memory_bytes=200 << 20), tasks={"hog": "hostile:hog"}, isolation=any_worker.isolation)
    start = time.monotonic()
    with pytest.raises(WorkerError, match="more memory than its limit"):
        count = 30 if kind == "processes" else 400
        frugal.call("hog", {"mebibytes": count, "kind": kind, "sleep": 30}, extra_path=[HOSTILE])
    assert time.monotonic() - start < 10
    assert frugal.call("hog", {"mebibytes": 20, "kind": "own"}, extra_path=[HOSTILE]) == 20


def test_processor_time_is_limited_even_if_the_bot_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})
    gone: list[bool] = []

    def stand_still(_done: int, _total: int, text: str) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and Path("/proc", text).exists():
            time.sleep(0.05)
        gone.append(time.monotonic() < end)

    hasty = Worker(limits=Limits(seconds=1), tasks={"spin": "hostile:spin"}, isolation=ALL["none"])
    with pytest.raises(WorkerError):
        hasty.call("spin", {"ready": True}, on_progress=stand_still, extra_path=[HOSTILE])
    assert gone == [True]


def test_too_large_a_file_is_refused(any_worker: Worker, tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path / "big"), "bytes": 1 << 37}
    with pytest.raises(WorkerError, match="File too large"):
        any_worker.call("grow", arguments, writes=[tmp_path], extra_path=[HOSTILE])


def test_a_full_scratch_folder_is_named(roomed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SCRATCH_BYTES", 8 << 20)
    for task in ("fill", "fill_quietly"):
        for folder in ("/tmp", "/dev/shm"):
            with pytest.raises(WorkerError, match="No space left on device") as caught:
                worker(roomed).call(task, {"folder": folder}, extra_path=[HOSTILE])
            assert caught.value.where == folder


_FILL = """
import sys
from pathlib import Path
from kinds import HOSTILE, worker
from bot.errors import StepError
folder = Path(sys.argv[2])
for task in ("fill", "fill_quietly"):
    try:
        worker(sys.argv[1]).call(task, {"folder": str(folder)}, writes=[folder], extra_path=[HOSTILE])
    except StepError as error:
        print(error)
    (folder / "big").unlink()
"""


def test_a_full_output_folder_is_named(any_worker: Worker, tmp_path: Path) -> None:
    """In a user namespace of its own, where anybody may mount a file system of 4 MiB."""
    mount = 'mount -t tmpfs -o size=4m none "$5" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    command += [sys.executable, "-c", _FILL, any_worker.isolation.kind, str(tmp_path)]
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HOSTILE}"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    line = f"{tmp_path}: No space left on device. Free some space, then run it again."
    assert done.stdout.splitlines() == [line, line], done.stderr


def _is_free(lock: Path) -> bool:
    """Return whether no process holds the lock any more."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _becomes_free(lock: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not _is_free(lock):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _becomes_empty(folder: Path, seconds: float) -> bool:
    """Return whether the temporary folders of workers lose what is in them."""
    end = time.monotonic() + seconds
    while list(folder.glob("bot-worker-*/*")):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_the_lock_shows_when_a_process_is_left(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    script = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not _is_free(lock)
        process.kill()
    assert _is_free(lock)


def test_what_a_worker_started_ends_with_its_answer(any_worker: Worker, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    arguments = {"lock": str(lock), "processes": 200, "answers": True}
    assert any_worker.call("stay", arguments, writes=[tmp_path], extra_path=[HOSTILE]) == 200
    assert _is_free(lock)


def test_what_a_worker_started_ends_at_its_limit(any_worker: Worker, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    hasty = Worker(limits=Limits(seconds=1.5), tasks={"stay": "hostile:stay"}, isolation=any_worker.isolation)
    with pytest.raises(WorkerError, match="longer than its limit"):
        hasty.call(
            "stay", {"lock": str(lock), "processes": 50, "answers": False}, writes=[tmp_path], extra_path=[HOSTILE]
        )
    assert _is_free(lock)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_bot_is_killed_or_interrupted(
    number: signal.Signals, any_worker: Worker, tmp_path: Path
) -> None:
    lock = tmp_path / "out" / "lock"
    command = [sys.executable, str(HOSTILE / "bot_that_stops.py"), any_worker.isolation.kind, str(lock)]
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HOSTILE}", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert not _is_free(lock)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as the terminal does
        else:
            process.send_signal(number)
        code = process.wait(10)
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert _becomes_free(lock, 3)
    assert _becomes_empty(tmp_path, 3)


def test_calls_from_many_threads_do_not_disturb_each_other(any_worker: Worker) -> None:
    answers: dict[int, object] = {}

    def call(number: int) -> None:
        answers[number] = any_worker.call("echo", {"number": number, "text": "x" * 300_000}, extra_path=[HOSTILE])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: answer["number"] for number, answer in answers.items()} == {n: n for n in range(8)}  # type: ignore[index]
