"""The pages for people in a real Chromium: what they look like in each size and mode, and what a click does."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from chromium import DESK, PHONE, Chromium, executable
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd
from PIL import Image

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(executable() is None, reason="needs Chromium, and this machine has none"),
]

CARD = """---
license: apache-2.0
pipeline_tag: image-classification
tags: [onnx, fp16]
---

# A model

Its outputs, with a table that is wider than a phone:

| file | bytes | sha256 |
|---|---:|---|
| model.onnx | 3,000 | `b7f277800124687d197f43c037dc7ad4a509e90b9d1f777f257dbc179b932866` |

![a plot](plot.png)
"""

HOSTILE = """---
license: mit
tags: ["<script>window.reached = 1</script>"]
---

<script>window.reached = 1</script>

<img src=x onerror="window.reached = 1"> <b onmouseover="window.reached = 1">b</b>

![far away](http://127.0.0.2:9/picture.png) ![data](data:image/svg+xml,<svg onload="window.reached=1"/>)

[a link](javascript:window.reached=1)

<style>body { background: url(http://127.0.0.2:9/style.png) }</style>
"""


def picture(colour: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (240, 120), colour).save(content, "PNG")
    return content.getvalue()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def quiet(browser: Chromium, hub: HubServer) -> Iterator[Chromium]:
    """The browser, of which nothing is left over, and which must neither complain nor ask anyone else for anything."""
    browser.problems.clear()
    browser.requested.clear()
    browser.look(DESK)
    yield browser
    hosts = {urlsplit(url).netloc for url in browser.requested if urlsplit(url).scheme in ("http", "https", "ws")}
    assert hosts == {urlsplit(hub.endpoint).netloc}
    assert not browser.problems


def change(api: Any, repo: str, name: str = "new.onnx") -> int:
    """Open a pull request that changes text, card, a picture and a large file, and return its number."""
    operations = [
        CommitOperationAdd("README.md", CARD.replace("A model", "A better model").encode()),
        CommitOperationAdd("plot.png", picture("seagreen")),
        CommitOperationAdd("config.json", b'{\n  "hidden_size": 768\n}\n'),
        CommitOperationAdd(name, bytes(range(256)) * 20),
    ]
    made = api.create_commit(
        repo, operations, commit_message="Convert to fp16", commit_description="All **checks** passed.", create_pr=True
    )
    return int(made.pr_num)


@pytest.fixture
def filled(api: Any, repo: str) -> str:
    operations = [
        CommitOperationAdd("README.md", CARD.encode()),
        CommitOperationAdd("plot.png", picture("firebrick")),
        CommitOperationAdd("config.json", b'{\n  "hidden_size": 384\n}\n'),
        CommitOperationAdd("model.onnx", bytes(3000)),
    ]
    api.create_commit(repo, operations, commit_message="The model")
    return repo


def test_every_page_in_every_size_and_mode(
    quiet: Chromium, api: Any, hub: HubServer, filled: str, tmp_path: Path
) -> None:
    number = change(api, filled)
    sha = api.model_info(filled).sha
    pages = ["/", f"/{filled.partition('/')[0]}", f"/{filled}", f"/{filled}/tree/main", f"/{filled}/commits/main"]
    pages += [f"/{filled}/commit/{sha}", f"/{filled}/blob/main/model.onnx", f"/{filled}/blob/main/config.json"]
    pages += [f"/{filled}/blob/main/plot.png", f"/{filled}/discussions", f"/{filled}/discussions/{number}"]
    grounds = set()
    for size in (DESK, PHONE):
        for scheme in ("light", "dark"):
            quiet.look(size, scheme)
            for page in pages:
                quiet.open(f"{hub.endpoint}{page}")
                wide = quiet.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide == 0, f"{page} is {wide} pixels too wide at {size}"
                small = quiet.evaluate(
                    "[...document.querySelectorAll('button')].filter(e => e.offsetHeight < 44).length"
                )
                assert small == 0, f"{page} has buttons that a thumb misses"
            grounds.add(quiet.evaluate("getComputedStyle(document.body).backgroundColor"))
            quiet.screenshot(tmp_path / f"{size[0]}-{scheme}.png")
    assert len(grounds) == 2, "dark mode looks like light mode"
    with Image.open(tmp_path / f"{PHONE[0]}-dark.png") as seen:
        assert seen.size == PHONE and len(seen.convert("RGB").getcolors(1 << 20) or ()) > 20


def pictures_arrive(browser: Chromium, seconds: float = 15) -> bool:
    """Whether every picture of the page is drawn after a while; those below the fold are fetched when they are near."""
    loaded = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
    deadline = time.monotonic() + seconds
    while not browser.evaluate(loaded) and time.monotonic() < deadline:
        browser.evaluate("[...document.images].forEach(image => image.scrollIntoView())")
        time.sleep(0.1)
    return bool(browser.evaluate(loaded))


def test_a_pull_request_is_read_and_merged_with_the_mouse(
    quiet: Chromium, api: Any, hub: HubServer, filled: str
) -> None:
    number = change(api, filled)
    quiet.open(f"{hub.endpoint}/{filled}")
    assert "waits for a review: Convert to fp16" in quiet.text()
    quiet.click("a", "Pull requests (1)")
    quiet.click("a", "Convert to fp16")
    text = quiet.text()
    for shown in ("All checks passed.", "before, at", "A better model", '"hidden_size": 768', "new.onnx"):
        assert shown in text
    assert pictures_arrive(quiet)
    quiet.write("#comment", "The figures are good.")
    quiet.click("button", "Merge")
    assert "Merged as" in quiet.text() and "The figures are good." in quiet.text()
    details = api.get_discussion_details(filled, number)
    assert details.status == "merged" and details.merge_commit_oid == api.model_info(filled).sha
    assert "new.onnx" in api.list_repo_files(filled)
    assert quiet.evaluate("document.querySelectorAll('button.main').length") == 0


def test_a_pull_request_is_closed_and_opened_again(quiet: Chromium, api: Any, hub: HubServer, filled: str) -> None:
    number = change(api, filled)
    quiet.open(f"{hub.endpoint}/{filled}/discussions/{number}")
    quiet.write("#comment", "Not this one.")
    quiet.click("button", "Close")
    assert api.get_discussion_details(filled, number).status == "closed"
    assert "Not this one." in quiet.text() and "Merge" not in quiet.text().split("\n")
    quiet.click("button", "Reopen")
    assert api.get_discussion_details(filled, number).status == "open"
    quiet.write("#comment", "After all?")
    quiet.click("button", "Comment")
    assert "After all?" in quiet.text()
    assert api.get_discussion_details(filled, number).status == "open"


def test_a_conflict_is_named_and_cannot_be_merged(quiet: Chromium, api: Any, hub: HubServer, filled: str) -> None:
    number = change(api, filled)
    api.create_commit(filled, [CommitOperationAdd("config.json", b"{}\n")], commit_message="Another")
    quiet.open(f"{hub.endpoint}/{filled}/discussions/{number}")
    assert "It cannot be merged" in quiet.text() and "config.json" in quiet.text()
    assert quiet.evaluate("document.querySelector('button.main').disabled")


def test_a_hostile_card_does_nothing(quiet: Chromium, api: Any, hub: HubServer, filled: str) -> None:
    operations = [CommitOperationAdd("README.md", HOSTILE.encode())]
    made = api.create_commit(
        filled,
        operations,
        commit_message="<img src=x onerror=window.reached=1>",
        commit_description=HOSTILE,
        create_pr=True,
    )
    quiet.open(f"{hub.endpoint}/{filled}/discussions/{made.pr_num}")
    assert quiet.evaluate("typeof window.reached") == "undefined"
    assert quiet.evaluate("document.scripts.length") == 0
    assert quiet.evaluate("[...document.links].filter(a => a.protocol === 'javascript:').length") == 0
    quiet.click("button", "Merge")
    quiet.open(f"{hub.endpoint}/{filled}")
    assert quiet.evaluate("typeof window.reached") == "undefined"


def test_a_page_of_another_site_cannot_merge(browser: Chromium, api: Any, hub: HubServer, filled: str) -> None:
    number = change(api, filled)
    browser.open(f"{hub.endpoint}/{filled}/discussions/{number}")
    token = browser.evaluate("document.querySelector('input[name=token]').value")
    form = (
        f'<!doctype html><form method="post" action="{hub.endpoint}/{filled}/discussions/{number}/merge">'
        f'<input name="token" value="{token}"><button>Win a prize</button></form>'
    )

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(form.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        # Another port is another origin, though the same site, so that even the cookie may come with the form.
        browser.open(f"http://localhost:{other.server_port}/")
        browser.click("button", "Win a prize")
        other.shutdown()
    assert "own pages only" in browser.text()
    assert api.get_discussion_details(filled, number).status == "open"
