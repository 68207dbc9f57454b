"""The work folder: nothing finished is done twice, nothing half done is taken for finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bot.errors import StepError
from bot.work import WorkFolder, code_digest, disk_errors


def test_a_finished_entry_is_not_made_again(tmp_path: Path) -> None:
    work, calls = WorkFolder(tmp_path), []

    def make(folder: Path) -> dict[str, int]:
        calls.append(folder)
        (folder / "file").write_text("x")
        return {"n": len(calls)}

    first = work.entry("steps", {"a": 1}, make)
    assert work.entry("steps", {"a": 1}, make) == first
    assert work.entry("steps", {"a": 2}, make)[1] == {"n": 2}
    assert len(calls) == 2 and (first[0] / "file").read_text() == "x"


def test_a_failed_entry_leaves_nothing(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path)
    with pytest.raises(RuntimeError, match="no"):
        work.entry("steps", 1, lambda folder: (_ for _ in ()).throw(RuntimeError("no")))
    assert list((tmp_path / "steps").iterdir()) == []


def test_two_that_finish_the_same_work_agree_on_one(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path)

    def slow(folder: Path) -> str:
        work.entry("steps", 1, lambda _: "the other's")
        return "mine"

    assert work.entry("steps", 1, slow)[1] == "the other's"


def test_a_killed_run_is_cleaned_up_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from bot.work import WorkFolder
        def make(folder):
            (folder / "half").write_text("half")
            print("ready", flush=True)
            time.sleep(60)
        WorkFolder(Path(sys.argv[1])).entry("steps", 1, make)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    work = WorkFolder(tmp_path)
    work.clean()
    assert len(list((tmp_path / "steps").iterdir())) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    work.clean()
    assert list((tmp_path / "steps").iterdir()) == []
    assert work.entry("steps", 1, lambda _: "whole")[1] == "whole"


def test_a_full_disk_names_the_folder_and_what_to_do(tmp_path: Path) -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this system has no /dev/full")
    expected = pytest.raises(StepError, match=r"no space left.*--work")
    with expected as caught, disk_errors(tmp_path), device.open("wb", buffering=0) as stream:
        stream.write(b"x")
    assert caught.value.where == str(tmp_path) and caught.value.exit_code == 4


def test_the_code_digest_follows_the_code_it_names() -> None:
    assert code_digest("bot.graph") != code_digest("bot.measure")
    assert code_digest("bot.canonical", "bot.work") == code_digest("bot.work", "bot.canonical")


def test_temporary_folders_of_this_process_survive_cleaning(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path)
    folder = work.temporary(tmp_path / "verify")
    work.clean()
    assert folder.is_dir() and str(os.getpid()) in folder.name
    assert time.time() - folder.stat().st_mtime < 60
