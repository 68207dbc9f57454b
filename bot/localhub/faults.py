"""Failures on demand: what a test, or a curious person, can make the embedded Hub do wrong.

A fault fits requests by method and path, lets some pass, then strikes a number of times. Kinds:

========== =====================================================================================================
status     answer with a status, headers and a body of the fault's own; nothing is done
delay      wait some seconds, then go on as usual
reset      reset the connection (RST); nothing is done
close      close the connection without an answer (FIN); nothing is done
lost       do the work, then close the connection without an answer
truncate   do the work, send the head and the first bytes of the body, then close the connection
corrupt    do the work, answer with one bit of the body turned
========== =====================================================================================================
"""

from __future__ import annotations

import asyncio
import fnmatch
import socket
import struct
import threading
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.localhub.errors import bad_request

KINDS = ("status", "delay", "reset", "close", "lost", "truncate", "corrupt")


@dataclass
class Fault:
    """One failure on demand.

    Attributes:
        kind: One of ``KINDS``.
        path: Shell pattern for the decoded path; ``*`` also stands for slashes.
        method: HTTP method, or ``*``.
        skip: How many fitting requests pass first.
        times: How often it strikes; 0 is always.
        status: HTTP status, for ``status``.
        headers: Headers, for ``status``.
        body: Body, for ``status``; JSON with the key ``error`` if empty.
        seconds: How long ``delay`` waits.
        bytes: How many bytes of the body ``truncate`` sends, and which byte ``corrupt`` changes; -1 is half-way.
    """

    kind: str
    path: str = "*"
    method: str = "*"
    skip: int = 0
    times: int = 1
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    seconds: float = 0.0
    bytes: int = -1
    seen: int = 0
    struck: int = 0

    def fits(self, method: str, path: str) -> bool:
        """Tell whether a request is of the kind that this fault waits for."""
        return self.method in ("*", method) and fnmatch.fnmatchcase(path, self.path)


class Faults:
    """The faults that are set; safe to use from several threads."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        """Set a fault.

        Raises:
            HubError: 400 for an unknown kind or senseless numbers.
        """
        if fault.kind not in KINDS or not 200 <= fault.status <= 599 or min(fault.skip, fault.times) < 0:
            raise bad_request(f"A fault's kind is one of {', '.join(KINDS)}; its numbers are not negative")
        if not 0 <= fault.seconds <= 3600:
            raise bad_request("A fault waits between 0 and 3600 seconds")
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Return all faults with how often each was met (``seen``) and struck (``struck``)."""
        with self._lock:
            return [asdict(fault) for fault in self._faults]

    def strike(self, method: str, raw_path: str) -> Fault | None:
        """Count a request and return the fault that strikes it, or None."""
        path = unquote(raw_path)
        with self._lock:
            for fault in self._faults:
                if not fault.fits(method, path):
                    continue
                fault.seen += 1
                if fault.seen > fault.skip and (fault.times == 0 or fault.struck < fault.times):
                    fault.struck += 1
                    return fault
        return None


def from_json(value: Any) -> Fault:
    """Return the fault that a JSON object describes.

    Raises:
        HubError: 400 for anything else.
    """
    allowed = {"kind", "path", "method", "skip", "times", "status", "headers", "body", "seconds", "bytes"}
    if not isinstance(value, dict) or not value.keys() <= allowed or "kind" not in value:
        raise bad_request(f"A fault is an object with kind and any of {', '.join(sorted(allowed))}")
    if not isinstance(value.get("headers", {}), dict):
        raise bad_request("The headers of a fault are an object")
    fault = Fault(**value)
    texts = (fault.kind, fault.path, fault.method, fault.body, *fault.headers, *fault.headers.values())
    whole = (fault.skip, fault.times, fault.status, fault.bytes)
    good = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in whole)
    if not good or not isinstance(fault.seconds, int | float):
        raise bad_request("A fault has a kind, texts, whole numbers, and seconds")
    return fault


# ------------------------------------------------------------------------------------------------------ connections

_transports: dict[Any, asyncio.Transport] = {}


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which lets a fault find the connection of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember the connection by its far end."""
        super().connection_made(transport)
        _transports[self.client] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        _transports.pop(self.client, None)
        super().connection_lost(exc)


async def read_to_the_end(receive: Receive) -> None:
    """Take in what is left of a request: a socket that is closed with bytes unread ends with RST, not with FIN."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def hang_up(scope: Scope, receive: Receive, reset: bool) -> None:
    """End the connection of a request, with RST or with FIN, and wait until uvicorn knows."""
    transport = _transports.get(tuple(scope["client"]))
    if transport is None:
        raise RuntimeError("This server does not let faults reach its connections")
    if reset:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
    while (await receive())["type"] != "http.disconnect":
        pass


def own_answer(fault: Fault) -> Response:
    """Return the answer of a ``status`` fault."""
    body = fault.body or '{"error": "A fault of the embedded Hub"}'
    headers = {"Content-Type": "application/json", **fault.headers}
    return Response(body, fault.status, headers)


async def send_damaged(fault: Fault, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer cut short (``truncate``) or with one bit turned (``corrupt``)."""
    length = int(response.headers.get("content-length", "0"))
    place = fault.bytes if fault.bytes >= 0 else length // 2
    sent = 0

    async def damaged(message: Message) -> None:
        nonlocal sent
        if message["type"] != "http.response.body":
            await send(message)
            return
        body = bytearray(message.get("body", b""))
        start, sent = sent, sent + len(body)
        if fault.kind == "corrupt":
            if start <= place < sent:
                body[place - start] ^= 1
            await send({**message, "body": bytes(body)})
        elif start < place:
            await send({"type": "http.response.body", "body": bytes(body[: place - start]), "more_body": True})

    await response(scope, receive, damaged)
    if fault.kind == "truncate":
        await hang_up(scope, receive, reset=False)
