"""Small releases with real files, and a Hub that answers badly on purpose."""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
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
    OnChange,
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


def artifact(
    name: str,
    file: str,
    data: bytes,
    *,
    frozen: bool = False,
    taken_over: bool = False,
    on_change: OnChange = "replace",
) -> Artifact:
    tensor = TensorSignature(name="x", dtype="float32", shape=("n", 4))
    signature = Signature(
        inputs=(tensor,), outputs=(tensor,), opsets={"ai.onnx": 18}, ir_version=10, minimum_runtime="1.17"
    )
    return Artifact(
        name=name,
        file=file,
        made_from="network",
        frozen=frozen or taken_over,
        taken_over=taken_over,
        on_change=on_change,
        steps=(StepRecord(name="float16"),),
        bytes=len(data),
        sha256=sha256(data),
        signature=signature,
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
    taken_over: tuple[str, ...] = (),
    on_change: OnChange = "replace",
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
        taken_over: Files that lie in the target already: frozen, and absent.
        on_change: What becomes of what was published under the same path.
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
        artifacts=tuple(
            artifact(name, name, data, frozen=name in frozen, taken_over=name in taken_over, on_change=on_change)
            for name, data in models.items()
        ),
        licenses=(LicenseRecord(name="apache-2.0", file="LICENSE", sha256=sha256(text)),),
        copies=(FileRecord(path="config.json", bytes=len(config), sha256=sha256(config)),),
        bot_version=bot_version,
        random_weights=random_weights,
        withheld=withheld,
    )
    files = {name: data for name, data in models.items() if name not in {*absent, *taken_over, *withheld}}
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


@dataclass
class Watched:
    """A proxy that passes everything on to a Hub.

    Attributes:
        endpoint: Its own address.
        seen: Method, path and number of bytes of the body of every request, in order.
        before: Called with method and path before each request is passed on.
    """

    endpoint: str
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    before: Callable[[str, str], None] | None = None

    def writes(self) -> list[tuple[str, str]]:
        """The requests that could have changed something."""
        harmless = re.compile(r"/(paths-info|preupload)/|validate-yaml|objects/batch")
        sent = [(method, path) for method, path, _ in self.seen if method not in ("GET", "HEAD")]
        return [(method, path) for method, path in sent if not harmless.search(path)]


@contextmanager
def watched(upstream: str) -> Iterator[Watched]:
    """Runs a proxy before a Hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = Watched(f"http://127.0.0.1:{server.server_port}")
    server.proxy, server.upstream = proxy, urlsplit(upstream)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def _serve(self) -> None:
        proxy: Watched = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.seen.append((self.command, self.path, len(body)))
        if proxy.before:
            proxy.before(self.command, self.path)
        upstream = self.server.upstream  # type: ignore[attr-defined]
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body or None, headers)
        response = connection.getresponse()
        data = response.read()
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
        connection.close()

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""
