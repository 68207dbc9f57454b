"""Drives a headless Chromium through the DevTools protocol, over two pipes: nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

TIMEOUT = 60.0
"""Seconds to wait for an answer, or for something to happen in a page; the machine may be busy."""

PHONE, DESK = (390, 844), (1280, 900)


def executable() -> str | None:
    """Return the Chromium of this machine, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _pipe() -> tuple[int, int]:
    """Return the two ends of a pipe, with numbers that are out of the way of 3 and 4."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Chromium:
    """A headless Chromium with one page.

    Args:
        profile: An empty folder for its profile.
    """

    def __init__(self, profile: Path) -> None:
        self.problems: list[str] = []
        self.requested: list[str] = []
        self._number = 0
        self._waiting = b""
        self._loaded = 0
        reads, self._to = _pipe()
        self._from, writes = _pipe()
        program = [str(executable()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        program += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars"]
        program += ["--force-color-profile=srgb", "--disable-background-networking", "--disable-component-update"]
        # Chromium takes commands on descriptor 3 and answers on 4; a plain sh knows no descriptors above 9.
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', *program, "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.look(DESK)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._from)

    # ---------------------------------------------------------------------------------------------- the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._read(deadline)
            if answer is None:
                raise TimeoutError(f"Chromium did not answer {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _read(self, deadline: float) -> dict[str, Any] | None:
        """Return the next message, or None at the deadline."""
        while b"\0" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                return None
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium ended")
            self._waiting += piece
        text, _, self._waiting = self._waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        """Keep what a person would see in the console, and every address that a page asked for."""
        values = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(values["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                self.problems.append(str(values["args"]))
            case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{values['entry']['text']} {values['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requested.append(values["request"]["url"])
            case "Network.loadingFailed" if not values.get("canceled"):
                self.problems.append(f"{values['type']}: {values['errorText']}")
            case "Page.loadEventFired":
                self._loaded += 1

    # ---------------------------------------------------------------------------------------------- what a person does

    def look(self, size: tuple[int, int], scheme: str = "light") -> None:
        """Take a screen of another size in CSS pixels, and ``light`` or ``dark`` mode."""
        width, height = size
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        before = self._loaded
        result = self.call("Page.navigate", url=url)
        if result.get("errorText"):
            raise RuntimeError(f"{url}: {result['errorText']}")
        self._wait_for_load(before)

    def _wait_for_load(self, before: int) -> None:
        deadline = time.monotonic() + TIMEOUT
        while self._loaded == before:
            if self._read(deadline) is None:
                raise TimeoutError("The page did not load")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def text(self) -> str:
        """Return what the page says."""
        return str(self.evaluate("document.body.innerText"))

    def click(self, kind: str, label: str) -> None:
        """Click, with the mouse, on the first element of a kind that has this text, and wait for the next page."""
        find = f"[...document.querySelectorAll({kind!r})].find(e => e.innerText.trim() === {label!r})"
        place = self.evaluate(
            f"(() => {{const e = {find}; if (!e) return null; e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        if place is None:
            raise LookupError(f"There is no {kind} {label!r}")
        before = self._loaded
        for what in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=what, x=place[0], y=place[1], button="left", clickCount=1)
        self._wait_for_load(before)

    def write(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.evaluate(f"document.querySelector({selector!r}).focus()")
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page, as PNG."""
        size = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        more = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
