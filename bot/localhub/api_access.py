"""The Hub's API for those who own a gated repository: who asked for access, and who gets it."""

from __future__ import annotations

from starlette.responses import Response

from bot.localhub import access
from bot.localhub.errors import HubError, bad_request
from bot.localhub.web import Call, json_answer


def listing(call: Call) -> Response:
    """``GET .../user-access-request/{status}``: the requests in one state."""
    repository, _ = call.writable()
    if call["status"] not in access.STATUSES:
        raise HubError(404, f"Access requests are {', '.join(access.STATUSES)}")
    found = access.requests(repository)
    return json_answer(
        [
            {"user": {"user": name, "fullname": name}, **record}
            for name, record in found.items()
            if record["status"] == call["status"]
        ]
    )


def handle(call: Call) -> Response:
    """``POST .../user-access-request/handle``: change the state of a request, named by its user or its id."""
    repository, _ = call.writable()
    body = call.json_object()
    if (body.get("user") is None) == (body.get("requestId") is None):
        raise bad_request("A request is named by user or by requestId")
    access.handle(
        repository,
        name=body.get("user"),
        identity=body.get("requestId"),
        status=body.get("status"),
        reason=body.get("rejectionReason"),
    )
    return json_answer({})


def grant(call: Call) -> Response:
    """``POST .../user-access-request/grant``: let a user in who did not ask."""
    repository, _ = call.writable()
    name = call.json_object().get("user")
    if name not in call.store.user_names:
        raise HubError(404, f"There is no user {name!r}")
    return json_answer(access.grant(repository, str(name), call.when()))
