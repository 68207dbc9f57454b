"""Jobs, as the client starts and follows them; what runs them is in `bot.localhub.jobs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import Response, StreamingResponse

from bot.localhub.errors import HubError, bad_request
from bot.localhub.jobs import Job
from bot.localhub.store import User
from bot.localhub.web import Call, json_answer, next_link

_PAGE = 100


def _caller(call: Call) -> User:
    """Return the caller if Jobs are on and he belongs to the namespace.

    Raises:
        HubError: 403 or 404 otherwise.
    """
    user = call.writer()
    if not call.jobs.enabled:
        raise HubError(403, "Jobs run commands on this machine; start the embedded Hub with --jobs to allow that")
    if not call.store.is_member(user, call["ns"]):
        raise HubError(403, f"{user.name} does not belong to {call['ns']}")
    return user


def _shown(call: Call, job: Job) -> dict[str, Any]:
    return job.shown(is_user=job.namespace in call.store.user_names)


def _job(call: Call) -> Job:
    _caller(call)
    return call.jobs.get(call["ns"], call["job"])


def _texts(value: Any, what: str) -> dict[str, str]:
    """Return a mapping from names to texts; numbers are written out."""
    if value is None:
        return {}
    if not isinstance(value, dict) or any("=" in name or "\0" in f"{name}{text}" for name, text in value.items()):
        raise bad_request(f"{what} is an object of texts")
    return {str(name): str(text) for name, text in value.items()}


def _specification(body: dict[str, Any]) -> dict[str, Any]:
    command, arguments = body.get("command"), body.get("arguments") or []
    if not isinstance(command, list) or not command or not isinstance(arguments, list):
        raise bad_request("A Job needs a command, a list of words")
    if not all(isinstance(word, str) and "\0" not in word for word in [*command, *arguments]):
        raise bad_request("The words of a command are texts")
    seconds, attempts = body.get("timeoutSeconds"), body.get("attempts")
    if not all(value is None or (isinstance(value, int) and 0 < value < 10**6) for value in (seconds, attempts)):
        raise bad_request("timeoutSeconds and attempts are positive whole numbers")
    spec: dict[str, Any] = {
        key: body[key] for key in ("dockerImage", "spaceId", "flavor", "timeoutSeconds", "attempts") if key in body
    }
    environment, labels = _texts(body.get("environment"), "environment"), _texts(body.get("labels"), "labels")
    labels.setdefault("name", Path(command[0]).name)
    return {**spec, "command": command, "arguments": arguments, "environment": environment, "labels": labels}


def start(call: Call) -> Response:
    """``POST /api/jobs/{ns}``."""
    user = _caller(call)
    body = call.json_object()
    hidden = _texts(body.get("secrets"), "secrets")
    return json_answer(_shown(call, call.jobs.start(call["ns"], user, _specification(body), hidden)))


def listing(call: Call) -> Response:
    """``GET /api/jobs/{ns}``, with the filters ``stage`` and ``label``."""
    _caller(call)
    stages = {stage.upper() for stage in call.query.get("stage", [])}
    labels = {tuple(label.partition("=")[::2]) for label in call.query.get("label", [])}
    found = [
        job
        for job in call.jobs.list(call["ns"])
        if (not stages or job.stage in stages) and labels <= set(job.spec.get("labels", {}).items())
    ]
    start_at = call.integer("cursor", 0, 0, 10**9)
    more = start_at + _PAGE < len(found)
    headers = next_link(call, {"cursor": str(start_at + _PAGE)}) if more else {}
    return json_answer([_shown(call, job) for job in found[start_at : start_at + _PAGE]], headers=headers)


def inspect(call: Call) -> Response:
    """``GET /api/jobs/{ns}/{job}``."""
    return json_answer(_shown(call, _job(call)))


def logs(call: Call) -> Response:
    """``GET /api/jobs/{ns}/{job}/logs``: server-sent events."""
    job = _job(call)
    tail = call.integer("tail", 0, 0, 10**7) if "tail" in call.query else None
    headers = {"Cache-Control": "no-cache"}
    return StreamingResponse(call.jobs.log(job, tail), media_type="text/event-stream", headers=headers)


def cancel(call: Call) -> Response:
    """``POST /api/jobs/{ns}/{job}/cancel``."""
    job = _job(call)
    call.jobs.cancel(job)
    return json_answer(_shown(call, job))


def duplicate(call: Call) -> Response:
    """``POST /api/jobs/{ns}/{job}/duplicate``: the same again; secrets have to be given again."""
    job, user = _job(call), _caller(call)
    hidden = _texts(call.json_object().get("secrets"), "secrets")
    spec = {key: value for key, value in job.spec.items() if key != "secrets"}
    return json_answer(_shown(call, call.jobs.start(call["ns"], user, spec, hidden)))


def relabel(call: Call) -> Response:
    """``PUT /api/jobs/{ns}/{job}/labels``."""
    job = _job(call)
    body = call.json_object()
    call.jobs.relabel(job, _texts(body.get("labels", body), "labels"))
    return json_answer(_shown(call, job))
