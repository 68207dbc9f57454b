"""The Hub's API for trusted publishing, and the embedded Hub's own for what the Hub has a settings page for."""

from __future__ import annotations

from starlette.responses import Response

from bot.localhub import oidc
from bot.localhub.errors import HubError, bad_request
from bot.localhub.web import Call, json_answer

_KINDS = {"datasets": "datasets"}


def exchange(call: Call) -> Response:
    """``POST /oauth/token``: a token for one repository, in exchange for a signed statement (RFC 8693)."""
    body = call.json_object()
    statement, resource = body.get("subject_token"), body.get("resource")
    if body.get("grant_type") != oidc.GRANT or body.get("subject_token_type") != oidc.ID_TOKEN:
        raise _invalid("only a statement about identity is exchanged here")
    if not isinstance(statement, str) or not isinstance(resource, str):
        raise _invalid("subject_token and resource are texts")
    *prefix, namespace, name = ["", *resource.split("/")][-3:] if resource.count("/") in (1, 2) else ["?", "", ""]
    kind = _KINDS.get("/".join(filter(None, prefix)), "models" if not any(prefix) else "")
    if not kind or not namespace or not name:
        raise _invalid("resource is a repository: namespace/name, or datasets/namespace/name")
    try:
        repository = call.store.repository(kind, f"{namespace}/{name}")
    except HubError:
        oidc.refuse()
    token = call.exchange.give(repository, statement, call.base)
    return json_answer(
        {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": oidc.LIFETIME,
            "issued_token_type": oidc.ACCESS_TOKEN,
        }
    )


def _invalid(why: str) -> HubError:
    return HubError(400, "invalid_request", extra={"error": "invalid_request", "error_description": why})


def listing(call: Call) -> Response:
    """``GET .../trusted-publishers``: whom a repository trusts."""
    repository = call.owned()
    found = [{"issuer": each.issuer, "claims": each.claims} for each in oidc.publishers(repository)]
    return json_answer({"publishers": found})


def replace(call: Call) -> Response:
    """``PUT .../trusted-publishers``: other ones in their place."""
    repository = call.owned()
    wanted = call.json_object().get("publishers")
    if not isinstance(wanted, list):
        raise bad_request("publishers is a list")
    oidc.set_publishers(repository, [oidc.publisher_from_json(each) for each in wanted])
    return listing(call)
