"""Jobs, through the unmodified client; off unless asked for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hub_server import HubServer, start_hub
from huggingface_hub.errors import HfHubHTTPError, JobNotFoundError

ME = "local-user"


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A Hub that runs Jobs."""
    server = start_hub(tmp_path_factory.mktemp("jobs") / "hub", "--jobs", "--user", "alice")
    yield server
    server.stop()


def python(api: Any, code: str, **more: Any) -> Any:
    return api.run_job(image="python:3.12", command=[sys.executable, "-c", code], namespace=ME, **more)


def wait(api: Any, job: Any) -> Any:
    return api.wait_for_job(job.id, timeout=20, poll_interval=0.1, namespace=ME)


def test_jobs_are_off_unless_asked_for(hub: HubServer) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        python(hub.api(), "print(1)")
    assert error.value.response.status_code == 403 and "--jobs" in str(error.value)


def test_an_answer_carries_the_present_as_its_date(hub: HubServer) -> None:
    """The client drops the lines of a Job's log that are more than a second younger than the answer's date."""
    for _ in range(12):
        before = int(time.time())
        date = httpx2.get(f"{hub.endpoint}/api/embedded-hub").headers["Date"]
        assert before <= parsedate_to_datetime(date).timestamp() <= time.time()
        time.sleep(0.13)


def test_a_job_runs_with_its_own_environment_and_is_read_back(working: HubServer) -> None:
    api = working.api()
    os.environ["OF_THE_HUB"] = "x"
    code = "import os; print(os.environ['A'], os.environ['S'], 'OF_THE_HUB' in os.environ); print('é')"
    job = python(api, code, env={"A": 1}, secrets={"S": "hush-7"}, labels={"k": "v"})
    done = wait(api, job)
    assert (done.status.stage, done.status.message) == ("COMPLETED", None)
    assert list(api.fetch_job_logs(job_id=job.id, namespace=ME)) == ["1 hush-7 False", "é"]
    assert list(api.fetch_job_logs(job_id=job.id, namespace=ME, tail=1)) == ["é"]
    assert done.labels["k"] == "v" and done.environment == {"A": "1"} and done.secrets == {"S": ""}
    assert done.started_at and done.finished_at and done.docker_image == "python:3.12"
    assert not any(
        b"secret" in path.read_bytes() for path in working.folder.rglob("job.json") if b'"S"' not in path.read_bytes()
    )
    assert [each.id for each in api.list_jobs(namespace=ME, labels={"k": "v"})] == [job.id]
    assert list(api.list_jobs(namespace=ME, labels={"k": "w"})) == []


def test_failures_say_why(working: HubServer) -> None:
    api = working.api()
    failed = wait(api, python(api, "raise SystemExit(3)"))
    assert (failed.status.stage, failed.status.message) == ("ERROR", "Exit code 3")
    late = wait(api, python(api, "import time; time.sleep(60)", timeout=1))
    assert late.status.stage == "ERROR" and "timeout" in late.status.message
    absent = wait(api, api.run_job(image="x", command=["no-such-program"], namespace=ME))
    assert absent.status.stage == "ERROR" and "cannot be started" in absent.status.message


def test_cancelling_ends_the_process_and_its_children(working: HubServer, tmp_path: Path) -> None:
    api = working.api()
    mark = tmp_path / "pid"
    code = (
        "import subprocess, time, pathlib; p = subprocess.Popen(['sleep', '60']);"
        f"pathlib.Path({str(mark)!r}).write_text(str(p.pid)); time.sleep(60)"
    )
    job = python(api, code)
    deadline = time.monotonic() + 10
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    api.cancel_job(job_id=job.id, namespace=ME)
    assert wait(api, job).status.stage == "CANCELED"
    state = Path(f"/proc/{mark.read_text()}/stat")
    while state.exists() and state.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_logs_are_followed_to_the_end(working: HubServer) -> None:
    api = working.api()
    job = python(api, "import time\nfor n in range(3): print(n, flush=True); time.sleep(0.2)")
    assert list(api.fetch_job_logs(job_id=job.id, namespace=ME, follow=True)) == ["0", "1", "2"]


def test_attempts_are_made_until_one_succeeds(working: HubServer, tmp_path: Path) -> None:
    api = working.api()
    code = (
        f"import pathlib, sys; p = pathlib.Path({str(tmp_path / 'n')!r}); n = int(p.read_text()) if p.exists() else 0; "
    )
    code += "p.write_text(str(n + 1)); sys.exit(n < 2)"
    assert wait(api, python(api, code, attempts=3)).status.stage == "COMPLETED"
    assert (tmp_path / "n").read_text() == "3"


def test_jobs_belong_to_their_namespace(working: HubServer) -> None:
    api, alice = working.api(), working.api("alice")
    job = python(api, "print(1)")
    with pytest.raises(HfHubHTTPError):
        alice.inspect_job(job_id=job.id, namespace=ME)
    with pytest.raises(JobNotFoundError):
        alice.inspect_job(job_id=job.id, namespace="alice")
    wait(api, job)


def test_what_ran_when_the_hub_was_killed_has_failed(tmp_path: Path) -> None:
    first = start_hub(tmp_path / "hub", "--jobs")
    job = python(first.api(), "import time; time.sleep(3)")
    first.kill()
    second = start_hub(tmp_path / "hub", "--jobs")
    try:
        assert second.api().inspect_job(job_id=job.id, namespace=ME).status.stage == "ERROR"
    finally:
        second.stop()


def test_ending_the_hub_ends_its_jobs(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "hub", "--jobs")
    mark = tmp_path / "pid"
    python(
        hub.api(), f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    deadline = time.monotonic() + 10
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    hub.stop()
    assert hub.process.returncode == 0
    state = Path(f"/proc/{mark.read_text()}")
    while state.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists()
