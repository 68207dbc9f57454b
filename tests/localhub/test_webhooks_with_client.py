"""Webhooks: kept through the client, told on loopback."""

from __future__ import annotations

import json
import queue
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd, WebhookPayload, WebhookWatchedItem
from huggingface_hub.errors import HfHubHTTPError


class Listener:
    """A server that keeps what it is told; it fails ``failures`` times first."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.failures = 0
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                failing = listener.failures > 0
                listener.failures -= failing
                # Noted before it is answered: once answered, the Hub sends the next one, to another thread.
                if not failing:
                    listener.told.put((self.headers.get("X-Webhook-Secret", ""), body))
                self.send_response(503 if failing else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"

    def next(self) -> dict[str, Any]:
        return self.told.get(timeout=10)[1]


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A listening server."""
    server = Listener()
    yield server
    server.server.shutdown()
    server.server.server_close()


def scope(payload: dict[str, Any]) -> tuple[str, str]:
    return payload["event"]["action"], payload["event"]["scope"]


def test_webhooks_are_kept_changed_and_removed(hub: HubServer, api: Any, listener: Listener) -> None:
    hook = api.create_webhook(url=listener.url, watched=[{"type": "org", "name": "x"}], domains=["repo"], secret="s")
    assert (hook.url, hook.domains, hook.secret, hook.disabled) == (listener.url, ["repo"], "s", False)
    assert api.get_webhook(hook.id) == hook and hook in api.list_webhooks()
    assert hub.api("alice").list_webhooks() == []
    with pytest.raises(HfHubHTTPError):
        hub.api("alice").get_webhook(hook.id)
    assert api.disable_webhook(hook.id).disabled and not api.enable_webhook(hook.id).disabled
    changed = api.update_webhook(hook.id, watched=[WebhookWatchedItem("model", "a/b")], domains=["discussion"])
    assert changed.watched == [WebhookWatchedItem("model", "a/b")] and changed.domains == ["discussion"]
    api.delete_webhook(hook.id)
    assert hook.id not in [each.id for each in api.list_webhooks()]


def test_addresses_beyond_this_machine_are_refused(api: Any) -> None:
    for url in (
        "http://example.com/",
        "https://127.0.0.1/",
        "http://127.0.0.1.example.com/",
        "http://10.0.0.1/",
        "ftp://localhost/",
    ):
        with pytest.raises(HfHubHTTPError) as error:
            api.create_webhook(url=url, watched=[{"type": "org", "name": "x"}])
        assert error.value.response.status_code == 400


def test_the_life_of_a_repository_is_told_in_order(api: Any, listener: Listener) -> None:
    owner = f"org-{secrets.token_hex(4)}"
    repo = f"{owner}/m"
    hook = api.create_webhook(url=listener.url, watched=[{"type": "org", "name": owner}], secret="word")
    listener.failures = 1
    api.create_repo(repo)
    secret, payload = listener.told.get(timeout=10)
    assert secret == "word" and scope(payload) == ("create", "repo")
    first = payload["repo"]["headSha"]
    made = api.create_commit(repo, [CommitOperationAdd("a.txt", b"a")], commit_message="a")
    payload = listener.next()
    assert payload["updatedRefs"] == [{"ref": "refs/heads/main", "oldSha": first, "newSha": made.oid}]
    assert WebhookPayload(**payload).webhook.id == hook.id
    pull = api.create_commit(repo, [CommitOperationAdd("b.txt", b"b")], commit_message="b", create_pr=True)
    payload = listener.next()
    assert scope(payload) == ("create", "discussion") and payload["discussion"]["isPullRequest"]
    assert listener.next()["updatedRefs"] == [{"ref": "refs/pr/1", "oldSha": None, "newSha": pull.oid}]
    api.comment_discussion(repo, 1, "words")
    payload = listener.next()
    assert scope(payload) == ("create", "discussion.comment") and payload["comment"]["content"] == "words"
    api.merge_pull_request(repo, 1)
    payload = listener.next()
    assert scope(payload) == ("update", "discussion") and payload["discussion"]["status"] == "merged"
    assert listener.next()["updatedRefs"][0]["newSha"] == api.model_info(repo).sha
    api.create_tag(repo, tag="v1")
    assert listener.next()["updatedRefs"][0]["ref"] == "refs/tags/v1"
    api.delete_tag(repo, tag="v1")
    assert listener.next()["updatedRefs"][0]["newSha"] is None
    api.update_repo_settings(repo, private=True)
    assert listener.next()["updatedConfig"] == {"private": True}
    api.move_repo(repo, f"{owner}/n")
    assert listener.next()["movedTo"] == {"name": f"{owner}/n", "owner": {"id": owner}}
    api.delete_repo(f"{owner}/n")
    assert scope(listener.next()) == ("delete", "repo")
    api.delete_webhook(hook.id)
    assert listener.told.empty()


def test_only_what_is_watched_and_may_be_seen_is_told(hub: HubServer, api: Any, listener: Listener, repo: str) -> None:
    private = f"alice/{secrets.token_hex(4)}"
    hook = api.create_webhook(
        url=listener.url,
        watched=[{"type": "user", "name": "alice"}, {"type": "model", "name": repo}],
        domains=["discussion"],
    )
    hub.api("alice").create_repo(private, private=True)
    hub.api("alice").create_discussion(private, "secret")
    api.create_commit(repo, [CommitOperationAdd("a.txt", b"a")], commit_message="a")
    api.create_discussion(repo, "told")
    assert listener.next()["discussion"]["title"] == "told"
    assert listener.told.empty()
    api.delete_webhook(hook.id)


def test_secrets_of_webhooks_are_for_their_owner(hub: HubServer) -> None:
    assert httpx2.get(f"{hub.endpoint}/api/settings/webhooks").status_code == 401
    path = hub.folder / "webhooks.json"
    assert path.stat().st_mode & 0o777 == 0o600
