"""Starts the embedded Hub for the duration of a command, or finds the one that serves the folder already."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bot.errors import HubError

READY_FILE = "serving.json"


@dataclass(frozen=True)
class RunningHub:
    """An embedded Hub that answers.

    Attributes:
        endpoint: Its address.
        user: Who the token belongs to.
        token: For writing.
        folder: Its data.
    """

    endpoint: str
    user: str
    token: str
    folder: Path


@contextmanager
def local_hub(folder: Path, port: int = 0) -> Iterator[RunningHub]:
    """The embedded Hub over a folder; stopped afterwards if it was started here.

    Raises:
        HubError: It did not start.
    """
    folder = folder.absolute()
    running = _already_serving(folder)
    if running is not None:
        yield running
        return
    process = _start(folder, port)
    try:
        yield _wait(process, folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        (folder / READY_FILE).unlink(missing_ok=True)


def _already_serving(folder: Path) -> RunningHub | None:
    """The Hub that another command started over the same folder: two over one would not see each other's locks."""
    with suppress(OSError, ValueError, KeyError):
        ready = json.loads((folder / READY_FILE).read_text("utf-8"))
        with urllib.request.urlopen(f"{ready['endpoint']}/api/embedded-hub", timeout=5) as answer:  # noqa: S310
            if json.load(answer).get("embedded") is True:
                return _running(ready)
    return None


def _start(folder: Path, port: int) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bot.localhub", "--dir", str(folder), "--port", str(port)]
    # A killed command must not leave a Hub behind: its end closes the Hub's standard input.
    command += ["--ready-file", str(folder / READY_FILE), "--stop-with-stdin"]
    # Ctrl-C belongs to the command, which then stops the Hub itself: hence a session of its own.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[str], folder: Path) -> RunningHub:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        process.wait()
        said = process.stderr.read().strip() if process.stderr else ""
        raise HubError(
            f"the embedded Hub did not start: {said.splitlines()[-1] if said else 'it said nothing'}",
            where=str(folder),
            remedy="Is the folder writable, and served by no other Hub?",
        )
    return _running(json.loads(line))


def _running(ready: dict[str, Any]) -> RunningHub:
    users = json.loads(Path(ready["token_file"]).read_text("utf-8"))["users"]
    return RunningHub(ready["endpoint"], ready["user"], users[ready["user"]]["token"], Path(ready["dir"]))


def serve_forever(folder: Path, port: int) -> None:
    """Serves until Ctrl-C, saying where."""
    import typer

    with local_hub(folder, port) as running:
        typer.echo(f"The embedded Hub is at {running.endpoint} (data in {running.folder}). Ctrl-C stops it.")
        typer.echo(f"To write as {running.user}: the token is in {running.folder / 'tokens.json'}")
        with suppress(KeyboardInterrupt):
            while _already_serving(running.folder) is not None:
                _sleep()
            typer.echo("the embedded Hub has stopped")


def _sleep() -> None:
    import time

    time.sleep(2)


def seed_folder(running: RunningHub, repository: str, folder: Path, kind: Literal["model", "dataset"]) -> str:
    """Puts a folder into a repository as one commit, and returns the commit."""
    from bot.hub.client import Hub
    from bot.hub.seed import put_folder

    return put_folder(Hub(running.endpoint, running.token), repository, folder, repo_type=kind)
