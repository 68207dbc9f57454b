"""Who may download from a gated repository: requests, and what its owners made of them, in ``hub/access.json``."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from bot.localhub import durable
from bot.localhub.clock import iso
from bot.localhub.errors import HubError, bad_request

if TYPE_CHECKING:
    from datetime import datetime

    from bot.localhub.repository import Repository
    from bot.localhub.store import User

STATUSES = ("pending", "accepted", "rejected")
_FILE = "access.json"
Record = dict[str, Any]


def requests(repository: Repository) -> dict[str, Record]:
    """Return for each user who asked, or was let in unasked: ``requestId``, ``status``, ``timestamp``."""
    return dict(durable.read_json(repository.folder / "hub" / _FILE) or {})


def is_granted(repository: Repository, user: User | None) -> bool:
    """Tell whether a user was let in."""
    return user is not None and requests(repository).get(user.name, {}).get("status") == "accepted"


def grant(repository: Repository, name: str, when: datetime) -> Record:
    """Let a user in who did not ask.

    Raises:
        HubError: 400 if there is a request of his already.
    """
    with repository.writing():
        found = requests(repository)
        if name in found:
            raise bad_request(f"{name} already has an access request, which is {found[name]['status']}")
        record = {"requestId": secrets.token_hex(12), "status": "accepted", "timestamp": iso(when)}
        repository.transact({}, {_FILE: {**found, name: record}})
    return record


def handle(repository: Repository, *, name: object, identity: object, status: object, reason: object) -> Record:
    """Accept or reject a request, or put it back among the pending ones.

    Args:
        repository: The gated repository.
        name: The user who asked, or None if ``identity`` is given.
        identity: The request's id, or None.
        status: ``pending``, ``accepted`` or ``rejected``.
        reason: Why it is rejected, or None.

    Raises:
        HubError: 400 for another status or the one that it has, 404 without such a request.
    """
    if status not in STATUSES:
        raise bad_request(f"A request is {', '.join(STATUSES)}, not {status!r}")
    with repository.writing():
        found = requests(repository)
        names = [each for each, record in found.items() if each == name or record["requestId"] == identity]
        if not names:
            raise HubError(404, "There is no such access request")
        record = found[names[0]]
        if record["status"] == status:
            raise bad_request(f"The access request of {names[0]} is {status} already")
        record = {**record, "status": status, "rejectionReason": reason if status == "rejected" else None}
        repository.transact({}, {_FILE: {**found, names[0]: record}})
    return record
