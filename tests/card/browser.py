"""A page in headless Chromium, spoken to over its DevTools pipe: no driver and no network are needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Browser:
    """A Chromium with one page.

    Args:
        profile: An empty folder for its files.
    """

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        # Chromium reads from descriptor 3 and writes to 4. Shell redirections put the pipes there.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._input = os.fdopen(ours_in, "rb")
        self._output = os.fdopen(ours_out, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._output.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._input.read(1)) != b"\0":
            assert byte, "the browser ended"
            data += byte
        return dict(json.loads(data))

    def open(self, page: Path, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """Loads a file, as a window of this size and a system of this colour scheme would show it."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        """What a script in the page comes to."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if kind == "keyDown" and text else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **more)

    def screenshot(self, path: Path) -> bytes:
        """The whole page as a PNG, also written to a file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        data = base64.b64decode(answer["data"])
        path.write_bytes(data)
        return data

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was opened, but those that hold their content themselves."""
        self.evaluate("1")
        found = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in found if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """What the browser's console complains of."""
        self.evaluate("1")
        return [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(20)
        self._input.close()
        self._output.close()


CONTRASTS = """
(() => {
  const parse = text => { const m = text.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3])).concat(1);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const l = c.slice(0, 3).map(v => linear(v / 255));
    return .2126 * l[0] + .7152 * l[1] + .0722 * l[2]; };
  const ground = element => {
    const chain = [], own = e => parse(getComputedStyle(e).backgroundColor);
    for (let e = element; e; e = e.parentElement) chain.unshift(own(e));
    return chain.reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
  const found = {};
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const under = ground(element), colour = over(parse(getComputedStyle(element).color), under);
    const [a, b] = [light(colour), light(under)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    const name = element.tagName + '.' + element.className;
    if (!(name in found) || ratio < found[name]) found[name] = ratio;
  }
  return found;
})()
"""
"""The least contrast between text and ground, by tag and class."""
