"""``python -m bot.localhub --dir D``: runs an embedded Hub.

When it is ready it prints one line of JSON: ``endpoint``, ``dir``, ``user``, ``token_file``. The token file, readable
by its owner alone, is ``{"users": {name: {"token": ..., "role": ...}}}``. Any namespace that is not a user's own is an
organisation; it exists as soon as a local user with a write token creates a repository in it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from bot.localhub.errors import HubError
from bot.localhub.server import Settings, serve


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    command = argparse.ArgumentParser(
        prog="python -m bot.localhub", description="An embedded Hub on loopback, over real git repositories."
    )
    command.add_argument("--dir", required=True, type=Path, help="folder that keeps everything; made if need be")
    command.add_argument("--port", type=int, default=0, help="TCP port; 0, the default, takes a free one")
    command.add_argument("--host", default="127.0.0.1", help="loopback address to listen on")
    command.add_argument("--ready-file", type=Path, help="write the ready line to this file too")
    command.add_argument(
        "--user", action="append", default=[], metavar="NAME", help="a further user; NAME:read for a read token"
    )
    command.add_argument("--log", action="store_true", help="log requests on stderr")
    command.add_argument(
        "--fast-clock", action="store_true", help="give every write a second of its own, ahead of the time if need be"
    )
    command.add_argument(
        "--stop-with-stdin", action="store_true", help="stop when standard input closes: with whoever started this"
    )
    command.add_argument(
        "--rate-limit", action="append", default=[], metavar="BUCKET=COUNT/SECONDS", help="such as api=500/300"
    )
    command.add_argument(
        "--plain-downloads", action="store_true", help="give large files by plain HTTP only, never through Xet"
    )
    command.add_argument(
        "--webhook-host", action="append", default=[], metavar="HOST", help="let webhooks call this host too"
    )
    command.add_argument("--jobs", action="store_true", help="let users have commands run on this machine (Jobs)")
    return command


def _stop_with_stdin() -> None:
    """Sends this process a SIGTERM as soon as its standard input closes, which a killed parent's does."""

    def watch() -> None:
        while sys.stdin.buffer.read(1 << 10):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = parser().parse_args(arguments)
    settings = Settings(
        folder=given.dir,
        host=given.host,
        port=given.port,
        ready_file=given.ready_file,
        users=tuple(given.user),
        log=given.log,
        fast_clock=given.fast_clock,
        run_jobs=given.jobs,
        plain_downloads=given.plain_downloads,
        webhook_hosts=tuple(given.webhook_host),
        rate_limits=tuple(given.rate_limit),
    )
    if given.stop_with_stdin:
        _stop_with_stdin()
    try:
        serve(settings)
    except HubError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
