"""Jobs: commands that the Hub runs for a user. Off unless the Hub was started with ``--jobs``, for they are just that.

A Job runs as a process of this machine, in a folder of its own, with the environment that its request names and nothing
of the Hub's but PATH. Its image, flavour and volumes are recorded and not obeyed: there are no containers here. What it
printed is kept in ``jobs/ID/log.jsonl``.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.localhub import durable
from bot.localhub.clock import iso
from bot.localhub.errors import HubError
from bot.localhub.store import User

_ECHOED = ("dockerImage", "spaceId", "command", "arguments", "environment")
ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
_DEFAULT_TIMEOUT = 30 * 60
_LINE_LIMIT = 64 * 1024
_KEEP_ALIVE = 10.0


def _now() -> str:
    return iso(datetime.now(UTC))


@dataclass
class Job:
    """A Job: the specification as it was asked for, and how it fares.

    Attributes:
        identity: Its id.
        namespace: Whose it is.
        user: Who asked for it.
        spec: The request's body, without the secrets' values.
        stage: ``SCHEDULING``, ``RUNNING``, ``COMPLETED``, ``CANCELED`` or ``ERROR``.
        message: Why it failed.
        times: ``createdAt``, ``startedAt``, ``finishedAt``.
    """

    identity: str
    namespace: str
    user: str
    spec: dict[str, Any]
    stage: str = "SCHEDULING"
    message: str | None = None
    times: dict[str, str] = field(default_factory=dict)

    def shown(self, is_user: bool) -> dict[str, Any]:
        """Return the Job as the API shows it."""
        spec = self.spec
        return {
            "id": self.identity,
            **self.times,
            **{
                key: spec[key]
                for key in ("dockerImage", "spaceId", "command", "arguments", "environment")
                if key in spec
            },
            "secrets": dict.fromkeys(spec.get("secrets", []), ""),
            "flavor": spec.get("flavor", "cpu-basic"),
            "labels": spec.get("labels") or {},
            "status": {"stage": self.stage, "message": self.message},
            "owner": {"id": self.namespace, "name": self.namespace, "type": "user" if is_user else "org"},
            "initiator": {"type": "user", "id": self.user, "name": self.user},
        }


class Jobs:
    """The Jobs of a Hub.

    Args:
        folder: Where they are kept; what ran when the Hub was last ended counts as failed.
        enabled: Whether new ones are taken.
    """

    def __init__(self, folder: Path, enabled: bool = False) -> None:
        self.enabled = enabled
        self._folder = folder
        self._changed = threading.Condition()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._jobs: dict[str, Job] = {}
        for path in sorted(folder.glob("*/job.json")):
            job = Job(**durable.read_json(path))
            if job.stage not in ENDED:
                job.stage, job.message = "ERROR", "The Hub was ended while the Job ran"
                durable.write_json(path, vars(job))
            self._jobs[job.identity] = job

    def list(self, namespace: str) -> list[Job]:
        """Return the Jobs of a namespace, newest first."""
        found = [job for job in self._jobs.values() if job.namespace == namespace]
        return sorted(found, key=lambda job: (job.times["createdAt"], job.identity), reverse=True)

    def get(self, namespace: str, identity: str) -> Job:
        """Return a Job.

        Raises:
            HubError: 404 if there is none.
        """
        job = self._jobs.get(identity)
        if job is None or job.namespace != namespace:
            raise HubError(404, f"No Job {identity} in {namespace}")
        return job

    def start(self, namespace: str, user: User, spec: dict[str, Any], hidden: dict[str, str]) -> Job:
        """Start a Job.

        Args:
            namespace: Whose it is.
            user: Who asks for it.
            spec: Its checked specification.
            hidden: Environment variables whose values are shown to nobody and kept nowhere.
        """
        created = {"createdAt": _now()}
        job = Job(secrets.token_hex(12), namespace, user.name, {**spec, "secrets": sorted(hidden)}, times=created)
        (self._folder / job.identity).mkdir(parents=True)
        self._change(job, stage="SCHEDULING")
        self._jobs[job.identity] = job
        threading.Thread(target=self._run, args=(job, hidden), name=f"job {job.identity}", daemon=True).start()
        return job

    def cancel(self, job: Job) -> None:
        """End a Job; one that has ended stays as it is."""
        if job.stage not in ENDED:
            self._change(job, stage="CANCELED", finishedAt=_now())
            self._kill(job)

    def relabel(self, job: Job, labels: dict[str, str]) -> None:
        """Replace a Job's labels."""
        job.spec["labels"] = labels
        self._change(job, stage=job.stage)

    def close(self) -> None:
        """End all Jobs."""
        for job in list(self._jobs.values()):
            if job.stage not in ENDED:
                self._change(job, stage="ERROR", message="The Hub was ended while the Job ran", finishedAt=_now())
                self._kill(job)

    def _change(self, job: Job, stage: str, message: str | None = None, **times: str) -> None:
        with self._changed:
            job.stage, job.message = stage, message
            job.times.update(times)
            durable.write_json(self._folder / job.identity / "job.json", vars(job))
            self._changed.notify_all()

    def _kill(self, job: Job) -> None:
        process = self._processes.get(job.identity)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _run(self, job: Job, hidden: dict[str, str]) -> None:
        work = self._folder / job.identity / "work"
        deadline = time.monotonic() + (job.spec.get("timeoutSeconds") or _DEFAULT_TIMEOUT)
        self._change(job, stage="RUNNING", startedAt=_now())
        code, message = 1, None
        for _ in range(job.spec.get("attempts") or 1):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            code, message = self._attempt(job, hidden, work, deadline)
            if code == 0 or job.stage != "RUNNING":
                break
        shutil.rmtree(work, ignore_errors=True)
        if job.stage == "RUNNING":
            done = code == 0 and message is None
            self._change(job, stage="COMPLETED" if done else "ERROR", message=message, finishedAt=_now())

    def _attempt(self, job: Job, hidden: dict[str, str], work: Path, deadline: float) -> tuple[int, str | None]:
        """Run the command once; return its exit code and, if it failed, why."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(work), "JOB_ID": job.identity}
        environment |= {**job.spec.get("environment", {}), **hidden}
        try:
            process = subprocess.Popen(
                [*job.spec["command"], *job.spec.get("arguments", [])],
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return 127, f"The command cannot be started: {error}"
        self._processes[job.identity] = process
        alarm = threading.Timer(max(deadline - time.monotonic(), 0), self._kill, [job])
        alarm.start()
        if job.stage != "RUNNING":
            self._kill(job)
        with process:
            self._copy_log(job, process)
        alarm.cancel()
        del self._processes[job.identity]
        if time.monotonic() >= deadline:
            return process.returncode, "The Job took longer than its timeout"
        return process.returncode, f"Exit code {process.returncode}" if process.returncode else None

    def _copy_log(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise RuntimeError("The process has no standard output")
        with (self._folder / job.identity / "log.jsonl").open("ab") as log:
            while line := process.stdout.readline(_LINE_LIMIT):
                text = line.decode("utf-8", "replace").rstrip("\n")
                log.write(json.dumps({"timestamp": _now(), "data": text}).encode() + b"\n")
                log.flush()
                with self._changed:
                    self._changed.notify_all()

    def log(self, job: Job, tail: int | None) -> Iterator[str]:
        """Yield a Job's output as server-sent events, until the Job has ended.

        Args:
            job: The Job.
            tail: How many of the lines that are there already to begin with; None for all.
        """
        path = self._folder / job.identity / "log.jsonl"
        path.touch()
        with path.open("rb") as log:
            lines = log.read().splitlines(keepends=True)
            for line in lines if tail is None else lines[max(len(lines) - tail, 0) :]:
                yield f"data: {line.decode().strip()}\n\n"
            while True:
                ended = job.stage in ENDED and job.identity not in self._processes
                if line := log.readline():
                    yield f"data: {line.decode().strip()}\n\n"
                elif ended:
                    return
                else:
                    with self._changed:
                        told = self._changed.wait(_KEEP_ALIVE)
                    if not told:
                        yield ": keep-alive\n\n"
