"""A server for what the embedded Hub cannot do: redirects and links to foreign hosts, stalls, plain files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Seen:
    """One request that came in."""

    method: str
    path: str
    authorization: str | None
    range: str | None


@dataclass
class Stub:
    """A server that answers as it is told.

    Attributes:
        endpoint: Its address.
        seen: Every request.
        answers: A function from handler to nothing, by the beginning of the path; the longest beginning counts.
    """

    endpoint: str
    seen: list[Seen] = field(default_factory=list)
    answers: dict[str, Callable[[Handler], None]] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """One request, with short ways to answer it."""

    protocol_version = "HTTP/1.1"

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answers in one piece; an underscore in a header's name stands for a hyphen."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _serve(self) -> None:
        stub: Stub = self.server.stub  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        stub.seen.append(Seen(self.command, self.path, self.headers.get("Authorization"), self.headers.get("Range")))
        fitting = [begin for begin in stub.answers if self.path.startswith(begin)]
        if fitting:
            stub.answers[max(fitting, key=len)](self)
        else:
            self.reply(404, b'{"error": "nothing here"}')

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def stub() -> Iterator[Stub]:
    """Runs such a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running = Stub(f"http://127.0.0.1:{server.server_port}")
    server.stub = running  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
