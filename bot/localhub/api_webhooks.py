"""Webhooks, as the client sets them; who is told of what is in `bot.localhub.webhooks`."""

from __future__ import annotations

import ipaddress
import re
import secrets
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from bot.localhub.errors import HubError, bad_request
from bot.localhub.web import Call, json_answer
from bot.localhub.webhooks import DOMAINS, Payload

_WATCHABLE = ("user", "org", "model", "dataset")


def check_url(url: Any, hosts: tuple[str, ...] = ()) -> str:
    """Return an address that webhooks may be sent to.

    Args:
        url: What the client asks for.
        hosts: Names, beside loopback's, that may be called.

    Raises:
        HubError: 400 for any other.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if host in hosts:
            known = parts.scheme in ("http", "https")
        else:
            known = parts.scheme == "http" and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
        good = known and parts.port != 0 and parts.username is None
    except (ValueError, TypeError, AttributeError):
        good = False
    if not good:
        raise bad_request(f"The embedded Hub tells addresses such as http://127.0.0.1:9000/hook, not {url!r}")
    return str(url)


def _shown(identity: str, hook: Payload) -> Payload:
    return {"id": identity, **{key: value for key, value in hook.items() if key != "owner"}}


def _changes(call: Call) -> Payload:
    """Return the checked fields of a webhook that a request sets."""
    body = call.json_object()
    changes: Payload = {}
    if body.get("jobSourceId") is not None:
        raise bad_request("The embedded Hub's webhooks call an address; they run no Jobs")
    if "url" in body:
        changes["url"] = check_url(body["url"], call.store.webhook_hosts)
    if "domains" in body:
        if not isinstance(body["domains"], list) or not set(body["domains"]) <= set(DOMAINS):
            raise bad_request(f"domains is a list of {' and '.join(DOMAINS)}")
        changes["domains"] = body["domains"]
    if "watched" in body:
        changes["watched"] = _watched(body["watched"])
    if body.get("secret") is not None:
        if not isinstance(body["secret"], str) or not re.fullmatch(r"[\x21-\x7e]{1,256}", body["secret"]):
            raise bad_request("A secret is up to 256 visible ASCII characters")
        changes["secret"] = body["secret"]
    return changes


def _watched(value: Any) -> list[Payload]:
    try:
        found = [{"type": item["type"], "name": item["name"]} for item in value]
    except (TypeError, KeyError):
        raise bad_request("watched is a list of objects with type and name") from None
    if not all(item["type"] in _WATCHABLE and isinstance(item["name"], str) for item in found):
        raise bad_request(f"What is watched has one of the types {', '.join(_WATCHABLE)}")
    return found


def list_hooks(call: Call) -> Response:
    """``GET /api/settings/webhooks``: the caller's webhooks."""
    user = call.writer()
    found = [_shown(identity, hook) for identity, hook in call.webhooks.all().items() if hook["owner"] == user.name]
    return json_answer(found)


def create_hook(call: Call) -> Response:
    """``POST /api/settings/webhooks``."""
    user = call.writer()
    changes = _changes(call)
    if "url" not in changes or "watched" not in changes:
        raise bad_request("A webhook needs url and watched")
    identity = secrets.token_hex(12)
    hook = {"domains": list(DOMAINS), "secret": None, **changes, "disabled": False, "owner": user.name}
    call.webhooks.put(identity, hook)
    return json_answer({"webhook": _shown(identity, hook)})


def get_hook(call: Call) -> Response:
    """``GET /api/settings/webhooks/{id}``."""
    return json_answer({"webhook": _shown(call["id"], call.webhooks.owned(call.writer(), call["id"]))})


def update_hook(call: Call) -> Response:
    """``POST /api/settings/webhooks/{id}``; as on the Hub, an empty ``watched`` empties the list."""
    hook = {**call.webhooks.owned(call.writer(), call["id"]), **_changes(call)}
    call.webhooks.put(call["id"], hook)
    return json_answer({"webhook": _shown(call["id"], hook)})


def switch_hook(call: Call) -> Response:
    """``POST /api/settings/webhooks/{id}/enable`` and ``/disable``."""
    if call["what"] not in ("enable", "disable"):
        raise HubError(404, "A webhook is enabled or disabled")
    hook = {**call.webhooks.owned(call.writer(), call["id"]), "disabled": call["what"] == "disable"}
    call.webhooks.put(call["id"], hook)
    return json_answer({"webhook": _shown(call["id"], hook)})


def delete_hook(call: Call) -> Response:
    """``DELETE /api/settings/webhooks/{id}``."""
    call.webhooks.owned(call.writer(), call["id"])
    call.webhooks.put(call["id"], None)
    return json_answer({})
