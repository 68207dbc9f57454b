"""Jobs on a Hub: commands that it runs on a machine of its choice, started once, followed to their end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.errors import HubError
from bot.hub.client import Doubtful, Hub

ENDED = frozenset({"COMPLETED", "CANCELED", "ERROR", "DELETED"})
_LABEL = "hub-publishing-bot"


@dataclass(frozen=True)
class JobState:
    """How a Job fares: `SCHEDULING`, `RUNNING`, `COMPLETED`, `CANCELED`, `ERROR` or `DELETED`, and why it failed."""

    stage: str
    message: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.stage in ENDED


@dataclass(frozen=True)
class JobPlan:
    """What a Job is to do.

    Attributes:
        image: The container that it runs in.
        command: The command.
        variables: Of its environment.
        hidden: Variables whose values the Hub shows to nobody.
        flavor: The machine, as the Hub names it.
        seconds: How long it may take.
    """

    image: str
    command: Sequence[str]
    variables: Mapping[str, str]
    hidden: Mapping[str, str]
    flavor: str
    seconds: int


def start(hub: Hub, namespace: str, plan: JobPlan) -> str:
    """Starts a Job once, whatever becomes of the answer, and returns its id.

    A Job costs money, so an answer that is lost is not followed by a second start: the Job is looked for by a label
    that no other one has.

    Raises:
        HubError: It was not started.
    """
    mark = secrets.token_hex(8)
    try:
        with hub._writing(f"start a Job in {namespace}", namespace):
            job = hub._api.run_job(
                image=plan.image,
                command=list(plan.command),
                env=dict(plan.variables),
                secrets=dict(plan.hidden),
                flavor=plan.flavor,
                timeout=plan.seconds,
                labels={_LABEL: mark},
                namespace=namespace,
            )
        return str(job.id)
    except Doubtful as doubt:
        found = _marked(hub, namespace, mark)
        if found is None:
            raise HubError(doubt.what, where=doubt.where, remedy="Run the same command again: no Job runs.") from doubt
        return found


def _marked(hub: Hub, namespace: str, mark: str) -> str | None:
    with hub._reading(f"the Jobs of {namespace}"):
        return next((str(job.id) for job in hub._api.list_jobs(namespace=namespace, labels={_LABEL: mark})), None)


def state(hub: Hub, namespace: str, job: str) -> JobState:
    """How a Job fares now."""
    with hub._reading(f"Job {job}"):
        status = hub._api.inspect_job(job_id=job, namespace=namespace).status
        return JobState(str(getattr(status.stage, "value", status.stage)), str(status.message or ""))


def last_lines(hub: Hub, namespace: str, job: str, count: int) -> list[str]:
    """The end of what a Job has printed, without what a terminal would obey; nothing if the Hub does not give it."""
    try:
        with hub._reading(f"the log of Job {job}"):
            lines = hub._api.fetch_job_logs(job_id=job, namespace=namespace, tail=count)
            return ["".join(char if char.isprintable() else "\ufffd" for char in str(line)) for line in lines]
    except HubError:
        return []


def cancel(hub: Hub, namespace: str, job: str) -> None:
    """Ends a Job."""
    with hub._writing(f"cancel Job {job}", namespace):
        hub._api.cancel_job(job_id=job, namespace=namespace)


def may_write(hub: Hub, repo: str) -> bool:
    """Whether a token may write to a repository.

    Raises:
        HubError: The Hub does not say.
    """
    hf: Any = hub._api
    from bot.hub.client import NotFound, Refused

    try:
        with hub._reading(f"may write to {repo}"):
            hf.auth_check(repo, write=True)
    except (NotFound, Refused):
        return False
    return True


def open_branch(hub: Hub, repo: str, branch: str) -> None:
    """Makes a branch at the head of the main one."""
    with hub._writing(f"branch {branch} of {repo}", repo):
        hub._api.create_branch(repo, branch=branch)


def drop_branch(hub: Hub, repo: str, branch: str) -> None:
    """Deletes a branch."""
    with hub._writing(f"branch {branch} of {repo}", repo):
        hub._api.delete_branch(repo, branch=branch)
