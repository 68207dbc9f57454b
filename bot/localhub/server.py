"""Runs the embedded Hub: the listening socket, uvicorn, and the line that says it is ready."""

from __future__ import annotations

import ipaddress
import json
import logging
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from bot.localhub import durable
from bot.localhub.app import App
from bot.localhub.clock import Clock
from bot.localhub.errors import HubError
from bot.localhub.faults import Protocol
from bot.localhub.limits import Limiter, parse
from bot.localhub.store import DEFAULT_USER, Store


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        folder: Where everything is kept.
        host: A loopback address, or ``localhost``.
        port: TCP port; 0 takes a free one.
        ready_file: Also written with the ready line, when the Hub is ready.
        users: Further users, each ``name`` or ``name:read``.
        log: Whether to log requests on stderr.
        fast_clock: Whether every write gets a second of its own.
        run_jobs: Whether users may have commands run on this machine.
        plain_downloads: Whether large files are downloaded by plain HTTP only, never through Xet.
        webhook_hosts: Host names, beside loopback's, that webhooks may call.
        rate_limits: Each ``BUCKET=COUNT/SECONDS``.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    ready_file: Path | None = None
    users: tuple[str, ...] = ()
    log: bool = False
    fast_clock: bool = False
    run_jobs: bool = False
    plain_downloads: bool = False
    webhook_hosts: tuple[str, ...] = ()
    rate_limits: tuple[str, ...] = ()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on loopback.

    Raises:
        HubError: 400 for another address, or a port that is taken.
    """
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        if not ipaddress.ip_address(address).is_loopback:
            raise HubError(400, f"The embedded Hub listens on loopback only, not on {host}")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named; without it each answer waits 40 ms for an ACK.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except ValueError:
        raise HubError(400, f"Not a loopback address: {host!r}") from None
    except OSError as error:
        raise HubError(400, f"Cannot listen on {host} port {port}: {error.strerror}") from error
    bound.listen(128)
    return bound


class _Server(uvicorn.Server):
    """uvicorn that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: dict[str, Any], ready_file: Path | None) -> None:
        super().__init__(config)
        self._ready = ready
        self._ready_file = ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        line = json.dumps(self._ready)
        if self._ready_file:
            durable.write_bytes(self._ready_file, line.encode() + b"\n", mode=0o600)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def serve(settings: Settings) -> None:
    """Run until SIGINT or SIGTERM.

    Raises:
        HubError: The folder or the address cannot be used.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if settings.log else logging.ERROR)
    limiter = Limiter(dict(parse(text) for text in settings.rate_limits))
    bound = listen(settings.host, settings.port)
    store = Store(
        settings.folder,
        Clock(settings.fast_clock),
        settings.users,
        xet_downloads=not settings.plain_downloads,
        webhook_hosts=settings.webhook_hosts,
    )
    port = bound.getsockname()[1]
    name = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
    ready = {
        "endpoint": f"http://{name}:{port}",
        "dir": str(store.folder),
        "user": DEFAULT_USER,
        "token_file": str(store.token_file),
    }
    app = App(store, (name,), limiter, settings.run_jobs)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=Protocol,
        ws="none",
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
        server_header=False,
        # uvicorn's date may be seconds old; the client takes it for the present when it reads a Job's log.
        date_header=False,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn ends on these, and then raises them anew; by then the rest has to be put away.
        signal.signal(number, lambda *_: None)
    try:
        _Server(config, ready, settings.ready_file).run(sockets=[bound])
    finally:
        app.jobs.close()
        store.close()
        bound.close()
