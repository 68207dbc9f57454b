"""Tokens: one endpoint's token goes to no other, and random weights go to embedded Hubs only."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.world import UPSTREAM, World, network


class _Listener(http.server.BaseHTTPRequestHandler):
    """Says yes to being asked about, and remembers what it was sent."""

    seen: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def listener() -> Iterator[str]:
    _Listener.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_token_for_one_endpoint_is_not_sent_to_another(world: World, listener: str) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        env = {name: world.hub.token, "HF_ENDPOINT": world.hub.endpoint}
        done = world.bot("publish", "network", "--hub", listener, "--work", str(world.work), hub=False, env=env)
        assert done.returncode == 3
    env = {"BOT_HUB_TOKEN": world.hub.token, "BOT_HUB_ENDPOINT": world.hub.endpoint}
    world.bot("publish", "network", "--hub", listener, "--work", str(world.work), hub=False, env=env)
    assert _Listener.seen and all(authorization == "" for _, authorization in _Listener.seen)


def test_the_same_token_is_sent_to_the_endpoint_that_it_was_given_for(world: World, listener: str) -> None:
    env = {"BOT_HUB_TOKEN": "hf_planted", "BOT_HUB_ENDPOINT": listener}
    world.bot("publish", "network", "--hub", listener, "--work", str(world.work), hub=False, env=env)
    assert any(authorization == "Bearer hf_planted" for _, authorization in _Listener.seen)


def test_random_weights_are_refused_where_the_hub_is_no_embedded_one(world: World) -> None:
    """The same server behind a front that hides what it is: loopback alone is not enough."""
    world.upload(UPSTREAM, {"model.onnx": network(random_weights=True)})
    with _front(world.hub.endpoint) as endpoint:
        token = world.folder / "token"
        token.write_text(world.hub.token)
        where = ("--hub", endpoint, "--token-file", str(token), "--work", str(world.work))
        done = world.bot("publish", "network", *where, hub=False)
    assert done.returncode == 6 and "random" in done.stderr
    assert world.pull_requests() == []


class _front:
    """Passes everything on to a Hub, but for the question whether it is an embedded one."""

    def __init__(self, endpoint: str) -> None:
        import urllib.error
        import urllib.request

        class Handler(_Listener):
            def do_GET(self) -> None:
                if self.path.startswith("/api/embedded-hub"):
                    self.send_error(404)
                    return
                length = int(self.headers.get("Content-Length") or 0)
                request = urllib.request.Request(endpoint + self.path, method=self.command)
                request.data = self.rfile.read(length) if length else None
                for name, value in self.headers.items():
                    if name.lower() not in {"host", "content-length", "connection", "accept-encoding"}:
                        request.add_header(name, value)
                try:
                    answer = urllib.request.urlopen(request)
                except urllib.error.HTTPError as error:
                    answer = error
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in {"connection", "transfer-encoding", "content-length", "date", "server"}:
                        self.send_header(name, value)
                declared = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", declared)
                self.end_headers()
                self.wfile.write(body)

            do_HEAD = do_POST = do_PUT = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
