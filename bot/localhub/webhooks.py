"""Webhooks: who is told of what, and the telling. Only loopback is told, and hosts named when the Hub was started.

Payloads are those of version 3, https://huggingface.co/docs/hub/webhooks. They are made when the thing happens, and
sent by a thread of their own, in order.
"""

from __future__ import annotations

import http.client
import json
import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bot.localhub import durable
from bot.localhub.errors import HubError
from bot.localhub.names import repo_type
from bot.localhub.repository import MAIN, Repository
from bot.localhub.store import Store, User

log = logging.getLogger("bot.localhub.webhooks")
DOMAINS = ("repo", "discussion")
_ATTEMPTS = 3
_TIMEOUT = 5.0
Payload = dict[str, Any]


# ------------------------------------------------------------------------------------------------------ what happened


@dataclass(frozen=True)
class Event:
    """Something that happened to a repository, with the payload that tells it.

    Attributes:
        kind: ``models`` or ``datasets``.
        repo_id: ``namespace/name``.
        private: Whether the repository is.
        scope: ``repo``, ``repo.content``, ``repo.config``, ``discussion`` or ``discussion.comment``.
        payload: All of the payload but the key ``webhook``.
    """

    kind: str
    repo_id: str
    private: bool
    scope: str
    payload: Payload


def event(base: str, repository: Repository, action: str, scope: str, **more: Any) -> Event:
    """Return an event.

    Args:
        base: The Hub's address, as the one who caused it wrote it.
        repository: Where it happened; it must still exist.
        action: ``create``, ``update``, ``move`` or ``delete``.
        scope: See ``Event``.
        more: Further keys of the payload, such as ``updatedRefs``.
    """
    settings = repository.settings
    path = f"{repository.kind}/{repository.repo_id}"
    described = {
        "type": repo_type(repository.kind),
        "name": repository.repo_id,
        "id": settings["id"],
        "private": bool(settings.get("private")),
        "url": {"web": f"{base}/{repository.web_path}", "api": f"{base}/api/{path}"},
        "owner": {"id": repository.namespace},
        "headSha": repository.reference(MAIN),
    }
    payload = {"event": {"action": action, "scope": scope}, "repo": described, **more}
    return Event(repository.kind, repository.repo_id, bool(settings.get("private")), scope, payload)


def content_event(base: str, repository: Repository, reference: str, old: str | None, new: str | None) -> Event:
    """Return the event of a reference that moved."""
    moved = [{"ref": reference, "oldSha": old, "newSha": new}]
    return event(base, repository, "update", "repo.content", updatedRefs=moved)


def discussion_event(base: str, repository: Repository, record: Payload, action: str, comment: Payload | None) -> Event:
    """Return the event of a discussion that was opened or changed, or that got a comment.

    Args:
        base: The Hub's address, as the one who caused it wrote it.
        repository: Where.
        record: The discussion.
        action: ``create`` or ``update``.
        comment: The comment's event, if a comment is what happened.
    """
    page = f"{base}/{repository.web_path}/discussions/{record['num']}"
    api = f"{base}/api/{repository.kind}/{repository.repo_id}/discussions/{record['num']}"
    described: Payload = {
        "id": f"{repository.settings['id']}-{record['num']}",
        "num": record["num"],
        "title": record["title"],
        "status": record["status"],
        "author": {"id": record["author"]},
        "isPullRequest": record["isPullRequest"],
        "pinned": False,
        "url": {"web": page, "api": api},
    }
    if record["isPullRequest"]:
        merged = {"mergeCommitId": record["mergeCommitId"]} if record["mergeCommitId"] else {}
        described["changes"] = {"base": record["base"], **merged}
    if comment is None:
        return event(base, repository, action, "discussion", discussion=described)
    told = {
        "id": comment["id"],
        "author": {"id": comment["author"]["name"]},
        "content": comment["data"]["latest"]["raw"],
        "hidden": comment["data"]["hidden"],
        "url": {"web": f"{page}#{comment['id']}"},
    }
    return event(base, repository, action, "discussion.comment", discussion=described, comment=told)


# ------------------------------------------------------------------------------------------------------ the hooks


class Webhooks:
    """The webhooks of a Hub, kept in ``webhooks.json``, and their delivery.

    Args:
        store: What the Hub keeps.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = store.folder / "webhooks.json"
        self._lock = threading.Lock()
        self._queue: queue.Queue[tuple[str, str, bytes]] = queue.Queue()
        self._thread: threading.Thread | None = None

    def all(self) -> dict[str, Payload]:
        """Return all webhooks, by id."""
        return dict(durable.read_json(self._path) or {})

    def owned(self, user: User, identity: str) -> Payload:
        """Return a user's webhook.

        Raises:
            HubError: 404 if he has none of this id.
        """
        hook = self.all().get(identity)
        if hook is None or hook["owner"] != user.name:
            raise HubError(404, f"No webhook {identity}")
        return hook

    def put(self, identity: str, hook: Payload | None) -> None:
        """Keep a webhook, or forget it."""
        with self._lock:
            hooks = self.all()
            if hook is None:
                hooks.pop(identity, None)
            else:
                hooks[identity] = hook
            durable.write_json(self._path, hooks, mode=0o600)

    def tell(self, events: list[Event]) -> None:
        """Queue events for all webhooks that watch for them."""
        if not events:
            return
        for identity, hook in self.all().items():
            for happened in events:
                if self._watches(hook, happened):
                    body = {**happened.payload, "webhook": {"id": identity, "version": 3}}
                    self._queue.put((hook["url"], hook.get("secret") or "", json.dumps(body).encode()))
        with self._lock:
            if not self._queue.empty() and self._thread is None:
                self._thread = threading.Thread(target=self._deliver, name="webhooks", daemon=True)
                self._thread.start()

    def _watches(self, hook: Payload, happened: Event) -> bool:
        owner = User(hook["owner"], "read")
        namespace = happened.repo_id.partition("/")[0]
        if hook["disabled"] or happened.scope.partition(".")[0] not in hook["domains"]:
            return False
        if happened.private and not self._store.is_member(owner, namespace):
            return False
        names = {("user", namespace), ("org", namespace), (repo_type(happened.kind), happened.repo_id)}
        return any((item["type"], item["name"]) in names for item in hook["watched"])

    def _deliver(self) -> None:
        while True:
            url, secret, body = self._queue.get()
            for attempt in range(_ATTEMPTS):
                try:
                    status = post(url, secret, body)
                except OSError as error:
                    log.warning("webhook %s: %s", url, error)
                else:
                    log.info("webhook %s: %d", url, status)
                    if status < 500:
                        break
                time.sleep(0.5 * 2**attempt)


def post(url: str, secret: str, body: bytes) -> int:
    """Send a payload and return the status of the answer.

    Raises:
        OSError: No answer came.
    """
    parts = urlsplit(url)
    scheme = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = scheme(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    headers = {"Content-Type": "application/json", "User-Agent": "embedded-hub"}
    if secret:
        headers["X-Webhook-Secret"] = secret
    try:
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"no answer ({error!r})") from error
    finally:
        connection.close()
