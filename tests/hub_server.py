"""Starts an embedded Hub in a process of its own, for the tests of everything that talks to a Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class HubServer:
    """A running embedded Hub.

    Attributes:
        endpoint: Its URL, for ``HfApi(endpoint=...)``.
        token: The write token of ``local-user``.
        tokens: The tokens of all its users, by name.
        folder: Where it keeps everything.
        process: Its process.
    """

    endpoint: str
    token: str
    tokens: dict[str, str]
    folder: Path
    process: subprocess.Popen[str]

    def api(self, user: str = "local-user") -> Any:
        """Return a client that speaks to this Hub as one of its users."""
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=self.tokens[user])

    def fault(self, kind: str, path: str = "*", method: str = "*", **more: Any) -> None:
        """Set a fault; ``bot.localhub.faults`` says what there is. Faults stay until they struck or are cleared."""
        self._faults("POST", {"kind": kind, "path": path, "method": method, **more})

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults that are set, each with ``seen`` and ``struck``."""
        return list(self._faults("GET", None)["faults"])

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._faults("DELETE", None)

    def _faults(self, method: str, body: dict[str, Any] | None) -> Any:
        request = urllib.request.Request(
            f"{self.endpoint}/api/embedded-hub/faults",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """End it as a person would, and wait."""
        self.process.terminate()
        self._wait()

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL), and wait."""
        self.process.kill()
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def start_hub(folder: Path, *options: str, port: int = 0, timeout: float = 60) -> HubServer:
    """Start an embedded Hub and wait until it is ready.

    Args:
        folder: Where it keeps everything; what is there already is served again.
        options: Further options of ``python -m bot.localhub``.
        port: TCP port; 0 takes a free one.
        timeout: Seconds to wait.

    Raises:
        RuntimeError: It did not become ready; its standard error is on this process's own.
    """
    command = [sys.executable, "-m", "bot.localhub", "--dir", str(folder), "--port", str(port), *options]
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root)
    alarm = threading.Timer(timeout, process.kill)
    alarm.start()
    line = process.stdout.readline() if process.stdout else ""
    alarm.cancel()
    if not line:
        process.kill()
        raise RuntimeError(f"The embedded Hub did not start (exit code {process.wait()})")
    ready = json.loads(line)
    users = json.loads(Path(ready["token_file"]).read_text())["users"]
    tokens = {name: facts["token"] for name, facts in users.items()}
    return HubServer(ready["endpoint"], tokens[ready["user"]], tokens, Path(ready["dir"]), process)
