"""The pages for people: what they show, what they refuse to show, and who may press their buttons."""

from __future__ import annotations

import hashlib
import re
import secrets
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from hypothesis import given
from hypothesis import strategies as st

from bot.localhub import cards, markdown, pages

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccfc0f01f000501"
    "01ff8e5a5d6e0000000049454e44ae426082"
)
CARD = """---
license: apache-2.0
tags: [onnx, "<i>tag</i>"]
---
# Title

<script>alert(1)</script>

text <b onclick="x()">bold</b> <!-- secret -->

[good](docs/a.md) [out](../../../etc/passwd) [bad](javascript:alert(1)) [tab](java\tscript:alert(1))
[far](https://far.example/x)

![plot](plots/a%20b.png) ![far](https://far.example/y.png) ![data](data:image/png;base64,xx)
![slash](//far.example/z.png)

| a | b |
|:--|--:|
| 1 | 2 |
"""
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects elements, and fails on unbalanced ones."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"unbalanced {tag}"

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


def check_harmless(reader: Reader) -> None:
    """No scripts, no inline style or handler, no address outside of this origin that is fetched without a click."""
    for tag, attributes in reader.elements:
        assert tag not in ("script", "iframe", "object", "embed", "style", "base", "svg", "math", "meta:http-equiv")
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("style", "srcdoc", "srcset", "http-equiv")
            if name in ("src", "action", "formaction"):
                assert value is not None and value.startswith("/") and not value.startswith("//")
            if name == "href" and tag == "a":
                assert re.match(r"(https?://|mailto:|/(?!/)|#|\?)", str(value)), value


@pytest.fixture
def browser(hub: HubServer) -> httpx2.Client:
    """A browser: it keeps cookies and asks for HTML."""
    return httpx2.Client(base_url=hub.endpoint, headers={"Accept": "text/html"})


def shown(browser: httpx2.Client, path: str) -> Reader:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script" not in policy and "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY" and answer.headers["content-type"].startswith("text/html")
    reader = read(answer.text)
    check_harmless(reader)
    return reader


@pytest.fixture
def pull_request(api: Any, repo: str) -> str:
    """A repository with a card and an open pull request that changes text, a picture and a large file."""
    base = [("README.md", CARD), ("model.onnx", b"\0" * 3000), ("plots/a b.png", PNG), ("old.txt", "old\n")]
    operations = [
        CommitOperationAdd(path, content if isinstance(content, bytes) else content.encode()) for path, content in base
    ]
    api.create_commit(repo, operations, commit_message="First <release>")
    changed = [
        CommitOperationAdd("README.md", CARD.replace("Title", "New title").encode()),
        CommitOperationAdd("model.onnx", b"\1" * 4000),
        CommitOperationAdd("plots/a b.png", PNG + b"\0"),
        CommitOperationDelete("old.txt"),
    ]
    api.create_commit(
        repo, changed, commit_message="Second", commit_description="**Why** <img src=x onerror=y>", create_pr=True
    )
    return repo


def test_every_page_is_whole_and_harmless_and_every_link_leads_somewhere(
    browser: httpx2.Client, pull_request: str
) -> None:
    waiting, seen = [f"/{pull_request}"], set()
    while waiting and len(seen) < 80:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for tag, attributes in shown(browser, path).elements:
            address = attributes.get("href" if tag == "a" else "src") or ""
            target = urljoin(path, address.partition("#")[0])
            if tag == "img" or "/resolve/" in target:
                assert browser.get(target).status_code == 200, target
            elif tag == "a" and target.startswith(f"/{pull_request}") and "docs/a.md" not in target:
                waiting.append(target)
    assert any("/blob/" in path for path in seen) and any("/commit/" in path for path in seen)
    assert any("refs%2Fpr%2F1" in path for path in seen)


def test_the_card_is_rendered_and_disarmed(browser: httpx2.Client, pull_request: str) -> None:
    reader = shown(browser, f"/{pull_request}")
    text = " ".join(reader.words)
    assert "<script>" in text and "secret" not in text and "<i>tag</i>" in text
    links = {attributes.get("href") for tag, attributes in reader.elements if tag == "a"}
    assert f"/{pull_request}/blob/main/docs/a.md" in links and "https://far.example/x" in links
    assert not any(link and ("passwd" in link or "alert" in link) for link in links)
    images = [attributes["src"] for tag, attributes in reader.elements if tag == "img"]
    assert images == [f"/{pull_request}/resolve/main/plots/a%20b.png"]
    assert "image: far, on far.example, not loaded" in text


def test_a_pull_request_shows_all_that_it_changes(browser: httpx2.Client, pull_request: str) -> None:
    text = " ".join(" ".join(shown(browser, f"/{pull_request}/discussions/1").words).split())
    for expected in (
        "Second",
        "# New title",
        "New title",
        *(f"sha256 {hashlib.sha256(content).hexdigest()}" for content in (bytes(3000), b"\1" * 4000, PNG + b"\0")),
        "4 files changed",
        "old.txt removed",
        "Merge",
    ):
        assert expected in text, expected


def test_merging_from_the_page(browser: httpx2.Client, pull_request: str, api: Any) -> None:
    path = f"/{pull_request}/discussions/1"
    token = next(a["value"] for tag, a in shown(browser, path).elements if tag == "input" and a.get("name") == "token")
    answer = browser.post(f"{path}/merge", data={"token": token, "comment": "Thank you"})
    assert answer.status_code == 303 and answer.headers["location"] == path
    details = api.get_discussion_details(pull_request, 1)
    assert details.status == "merged" and "old.txt" not in api.list_repo_files(pull_request)
    assert [event.content for event in details.events if event.type == "comment"][-1] == "Thank you"
    assert "Merged as" in " ".join(shown(browser, path).words)
    assert browser.post(f"{path}/merge", data={"token": token}).status_code == 400


def test_closing_reopening_and_commenting_from_the_page(browser: httpx2.Client, pull_request: str, api: Any) -> None:
    path = f"/{pull_request}/discussions/1"
    token = next(a["value"] for tag, a in shown(browser, path).elements if a.get("name") == "token")
    for action, expected in (("close", "closed"), ("reopen", "open"), ("comment", "open")):
        assert browser.post(f"{path}/{action}", data={"token": token, "comment": "words"}).status_code == 303
        assert api.get_discussion_details(pull_request, 1).status == expected
    assert browser.post(f"{path}/explode", data={"token": token}).status_code == 400


def test_forms_of_others_are_refused(browser: httpx2.Client, hub: HubServer, pull_request: str, api: Any) -> None:
    path = f"{hub.endpoint}/{pull_request}/discussions/1"
    reader = shown(browser, path)
    token = next(a["value"] for tag, a in reader.elements if a.get("name") == "token")
    cases: list[tuple[Any, dict[str, str], dict[str, str]]] = [
        (httpx2, {"token": str(token)}, {}),
        (browser, {}, {}),
        (browser, {"token": "0" * 64}, {}),
        (browser, {"token": str(token)}, {"Origin": "http://evil.example"}),
        (browser, {"token": str(token)}, {"Origin": "null"}),
        (browser, {"token": str(token)}, {"Sec-Fetch-Site": "cross-site"}),
        (httpx2, {"token": str(token)}, {"Cookie": "embedded_hub_1=x"}),
    ]
    for client, data, headers in cases:
        assert client.post(f"{path}/merge", data=data, headers=headers).status_code == 403
    assert api.get_discussion_details(pull_request, 1).status == "open"


def test_the_pages_cookie_reads_but_never_writes(browser: httpx2.Client, hub: HubServer, repo: str, api: Any) -> None:
    api.update_repo_settings(repo, private=True)
    api.create_commit(repo, [CommitOperationAdd("plots/a.png", PNG)], commit_message="plot")
    address = f"{hub.endpoint}/{repo}/resolve/main/plots/a.png"
    assert httpx2.get(address).status_code == 404
    shown(browser, f"/{repo}")
    assert browser.get(address).status_code == 200
    body = {"name": "x", "organization": "y"}
    assert browser.post(f"{hub.endpoint}/api/repos/create", json=body).status_code == 403
    cookie = browser.get(f"/{repo}").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie


def test_another_users_private_repository_is_not_shown(browser: httpx2.Client, hub: HubServer) -> None:
    repo = f"alice/{secrets.token_hex(4)}"
    hub.api("alice").create_repo(repo, private=True)
    assert browser.get(f"/{repo}").status_code == 404
    assert repo not in browser.get("/").text and repo not in browser.get("/alice").text


def test_errors_are_pages_for_browsers_and_json_for_clients(browser: httpx2.Client, hub: HubServer) -> None:
    answer = browser.get("/nobody/nothing")
    assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html")
    check_harmless(read(answer.text))
    assert httpx2.get(f"{hub.endpoint}/nobody/nothing").json()["error"]


def test_names_that_deceive_the_eye_are_spelled_out(browser: httpx2.Client, repo: str, api: Any) -> None:
    api.create_commit(repo, [CommitOperationAdd("cod\u202ecod.exe", b"x")], commit_message="m\u202em")
    for path in (f"/{repo}", f"/{repo}/tree/main", f"/{repo}/commits/main"):
        text = "".join(shown(browser, path).words)
        assert "\u202e" not in text and "[U+202E]" in text


def test_a_card_with_errors_says_so(browser: httpx2.Client, repo: str, hub: HubServer) -> None:
    body = '{"key":"header","value":{"summary":"s"}}\n'
    body += '{"key":"file","value":{"path":"README.md","content":"---\\nlicense: mine\\n---\\n# hi"}}'
    url = f"{hub.endpoint}/api/models/{repo}/commit/main"
    assert httpx2.post(url, content=body, headers={"Authorization": f"Bearer {hub.token}"}).status_code == 200
    assert "'mine' is none" in " ".join(shown(browser, f"/{repo}").words)


# ------------------------------------------------------------------------------------------------------ by themselves


def same(path: str) -> str:
    return "/repo/" + pages.encoded(path)


@given(st.text(alphabet=st.sampled_from(list("<>![]()\"'`#|-*_&:/\\ \n\tajscriptonxhttps.")), max_size=200))
def test_no_markdown_makes_anything_harmful(text: str) -> None:
    check_harmless(read(str(markdown.render(text, same, same))))


@given(st.text(max_size=300))
def test_cards_split_into_parts_that_hold_all_their_text(text: str) -> None:
    front, body = cards.split(text)
    assert body in text and (front is None or front in text)
    assert cards.lenient_front_matter(text) is not None


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("a/b.png", "a/b.png"),
        ("./a.png?x=1#y", "a.png"),
        ("/a.png", "a.png"),
        ("a/../b.png", "b.png"),
        ("../a.png", None),
        ("a/../../b", None),
        ("%2e%2e/a", None),
        ("", None),
        (".", None),
    ],
)
def test_relative_addresses_stay_in_the_repository(address: str, path: str | None) -> None:
    assert markdown.repository_path(address) == path


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_499, "999 kB"), (999_500, "1 MB"), (1_213_000_000, "1.21 GB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert pages.bytes_text(size) == text
