"""Small releases with real files, and a Hub that answers badly on purpose."""

from __future__ import annotations

import hashlib
import http.client
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bot.hub.retry import Policy
from bot.records import (
    Artifact,
    Census,
    FileRecord,
    LicenseRecord,
    Release,
    Signature,
    Source,
    StepRecord,
    TensorSignature,
)

QUICK = Policy(attempts=5, first_wait=0.02, longest_wait=0.05, answer=10, commit_answer=10, connect=5)
"""Waits are short, but real."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def artifact(name: str, file: str, data: bytes, *, frozen: bool = False) -> Artifact:
    tensor = TensorSignature(name="x", dtype="float32", shape=("n", 4))
    signature = Signature(
        inputs=(tensor,), outputs=(tensor,), opsets={"ai.onnx": 18}, ir_version=10, minimum_runtime="1.17"
    )
    return Artifact(
        name=name,
        file=file,
        made_from="network",
        frozen=frozen,
        steps=(StepRecord(name="float16"),),
        bytes=len(data),
        sha256=sha256(data),
        signature=Signature(
            inputs=(tensor,), outputs=(tensor,), opsets={"ai.onnx": 18}, ir_version=10, minimum_runtime="1.17"
        ),
        census=Census(nodes=3, by_op={"MatMul": 3}, casts=0, parameters={"float16": 12}),
        built_with={"numpy": "2.4.6"},
    )


@dataclass
class Case:
    """A release and the folder that publishes it."""

    release: Release
    folder: Path
    title: str = "Release of faceage"
    description: str = "What a reviewer should know."

    def arguments(self, mode: str = "pull-request", **more: Any) -> dict[str, Any]:
        return {"release": self.release, "folder": self.folder, "mode": mode, "title": self.title, **more} | {
            "description": self.description
        }


def make_case(
    folder: Path,
    target: str,
    *,
    seed: str = "1",
    recipe: str = "faceage",
    models: Mapping[str, bytes] | None = None,
    frozen: tuple[str, ...] = (),
    absent: tuple[str, ...] = (),
    card: str = "",
    random_weights: bool = False,
    bot_version: str = "0.1.0",
    withheld: tuple[str, ...] = (),
) -> Case:
    """Writes a release's folder: models, a card, a licence, a copy, a recipe.

    Args:
        folder: Where.
        target: Repository.
        seed: Releases with different seeds have different identities and models.
        recipe: Its recipe.
        models: Content by file name.
        frozen: Files that are frozen.
        absent: Files that the release describes and that are not laid out.
        card: Text of the card.
        random_weights: The model's weights are random.
        bot_version: A difference that makes no other release.
        withheld: Artifacts, named as their files, that are withheld.
    """
    models = models if models is not None else {"model.onnx": f"model {seed}".encode() * 1000}
    text, config = b"License text\n", b'{"a": 1}'
    card = card or f"---\nlicense: apache-2.0\n---\n\n# Model {seed}\n"
    release = Release(
        identity=sha256(f"{target} {recipe} {seed}".encode()),
        recipe=recipe,
        recipe_text=f"recipe: {recipe} {seed}\n",
        target=target,
        runtime="onnxruntime>=1.22",
        source=Source(repo="up/stream", commit="a" * 40),
        artifacts=tuple(artifact(name, name, data, frozen=name in frozen) for name, data in models.items()),
        licenses=(LicenseRecord(name="apache-2.0", file="LICENSE", sha256=sha256(text)),),
        copies=(FileRecord(path="config.json", bytes=len(config), sha256=sha256(config)),),
        bot_version=bot_version,
        random_weights=random_weights,
        withheld=withheld,
    )
    files = {name: data for name, data in models.items() if name not in absent and name not in withheld}
    files |= {
        "README.md": card.encode(),
        "release/card.md": card.encode(),
        "release/recipe.yaml": release.recipe_text.encode(),
        "release.json": release.to_json(),
        "LICENSE": text,
        "source/config.json": config,
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Case(release, folder)


def new_repo_name() -> str:
    return f"org-{secrets.token_hex(4)}/model"


@dataclass
class Fault:
    """What happens to requests that fit.

    Attributes:
        method: HTTP method, or empty for any.
        path: Pattern that the path and query must contain.
        kind: A status, or one of reset, close, after, truncate, corrupt, delay.
        times: How often.
        headers: Of a refusal.
        body: Of a refusal.
        fired: How often it did happen.
    """

    method: str
    path: str
    kind: int | str
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": "made for a test"}'
    seconds: float = 1.0
    fired: int = 0

    def fits(self, method: str, path: str) -> bool:
        return self.fired < self.times and self.method in ("", method) and bool(re.search(self.path, path))


@dataclass
class FaultyHub:
    """A proxy before a Hub.

    Attributes:
        endpoint: Its own address.
        faults: What goes wrong, the first that fits.
        seen: Method, path, and number of bytes of the body, of every request.
        before: Called with method and path before each request is passed on.
    """

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    before: Callable[[str, str], None] | None = None

    def writes(self) -> list[tuple[str, str]]:
        """The requests that could have changed something."""
        harmless = re.compile(r"/(paths-info|preupload)/|validate-yaml|objects/batch")
        return [
            (method, path)
            for method, path, _ in self.seen
            if method not in ("GET", "HEAD") and not harmless.search(path)
        ]


@contextmanager
def faulty(upstream: str, *faults: Fault) -> Iterator[FaultyHub]:
    """Runs a proxy that passes requests on to a Hub, but for those that meet a fault."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = FaultyHub(f"http://127.0.0.1:{server.server_port}", list(faults))
    server.hub, server.upstream, server.lock = hub, upstream, threading.Lock()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, OSError):
            self.close_connection = True

    def _serve(self) -> None:
        hub: FaultyHub = self.server.hub  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:  # type: ignore[attr-defined]
            hub.seen.append((self.command, self.path, len(body)))
            fault = next((each for each in hub.faults if each.fits(self.command, self.path)), None)
            if fault:
                fault.fired += 1
        if hub.before:
            hub.before(self.command, self.path)
        kind = fault.kind if fault else ""
        if isinstance(kind, int) and fault:
            self._answer(kind, dict(fault.headers) | {"Content-Type": "application/json"}, fault.body)
        elif kind == "reset":
            self._hang_up(reset=True)
        elif kind == "close":
            self._hang_up()
        else:
            if kind == "delay" and fault:
                time.sleep(fault.seconds)
            status, headers, data = self._pass_on(body)
            if kind == "after":
                self._hang_up()
            elif kind == "corrupt" and data:
                self._answer(status, headers, bytes([data[0] ^ 1]) + data[1:])
            elif kind == "truncate" and data:
                self._answer(status, headers, data[: len(data) // 2], promised=len(data))
                self._hang_up()
            else:
                self._answer(status, headers, data)

    def _pass_on(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(self.server.upstream)  # type: ignore[attr-defined]
        connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 80), timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection",)}
        connection.request(self.command, self.path, body or None, headers)
        response = connection.getresponse()
        data = response.read()
        kept = {
            name: value
            for name, value in response.getheaders()
            if name.lower() not in ("connection", "transfer-encoding")
        }
        if self.command != "HEAD":
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
        connection.close()
        return response.status, kept, data

    def _answer(self, status: int, headers: Mapping[str, str], data: bytes, promised: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data) if promised is None else promised))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    def _hang_up(self, *, reset: bool = False) -> None:
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""
