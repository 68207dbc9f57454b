"""Failures on demand, rate limits, and what may call the Hub at all."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hub_server import HubServer, start_hub
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError

from bot.localhub.errors import HubError
from bot.localhub.faults import Fault, Faults, from_json
from bot.localhub.limits import Limit, Limiter, parse


@pytest.fixture(autouse=True)
def no_faults(hub: HubServer) -> Iterator[None]:
    """Leave no fault behind."""
    yield
    hub.clear_faults()


def about(hub: HubServer) -> httpx2.Response:
    return httpx2.get(f"{hub.endpoint}/api/embedded-hub")


def test_a_status_strikes_after_those_it_lets_pass_and_so_many_times(hub: HubServer) -> None:
    hub.fault("status", "/api/embedded-*", "GET", skip=1, times=2, status=429, headers={"Retry-After": "1"}, body="{}")
    answers = [about(hub) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
    assert answers[1].headers["retry-after"] == "1" and answers[1].text == "{}"
    assert [(fault["seen"], fault["struck"]) for fault in hub.faults()] == [(4, 2)]


def test_a_delay_waits_and_then_answers(hub: HubServer) -> None:
    hub.fault("delay", seconds=0.3)
    start = time.monotonic()
    assert about(hub).status_code == 200
    assert time.monotonic() - start >= 0.3


def test_reset_and_close_break_the_connection_in_their_own_ways(hub: HubServer) -> None:
    hub.fault("reset")
    with pytest.raises(httpx2.ReadError):
        about(hub)
    hub.fault("close")
    with pytest.raises(httpx2.RemoteProtocolError):
        about(hub)
    assert about(hub).status_code == 200


def test_a_lost_answer_leaves_the_work_done(api: Any, hub: HubServer, repo: str) -> None:
    hub.fault("lost", f"/api/models/{repo}/commit/main", "POST")
    with pytest.raises(httpx2.RemoteProtocolError):
        api.create_commit(repo, [CommitOperationAdd("a.txt", b"a")], commit_message="landed")
    assert api.list_repo_commits(repo)[0].title == "landed"


def test_a_closed_connection_leaves_nothing_done(api: Any, hub: HubServer, repo: str) -> None:
    hub.fault("close", "*/commit/*", "POST")
    with pytest.raises(httpx2.RemoteProtocolError):
        api.create_commit(repo, [CommitOperationAdd("a.txt", b"a")], commit_message="never")
    assert len(api.list_repo_commits(repo)) == 1


@pytest.mark.parametrize(("name", "size"), [("small.txt", 1000), ("large.bin", 1_000_000)])
def test_truncated_and_corrupt_downloads(api: Any, hub: HubServer, repo: str, name: str, size: int) -> None:
    content = b"\x41" * size
    api.create_commit(repo, [CommitOperationAdd(name, content)], commit_message="x")
    url = f"{hub.endpoint}/{repo}/resolve/main/{name}"
    hub.fault("corrupt", f"*/{name}")
    got = httpx2.get(url).content
    assert [(n, byte) for n, byte in enumerate(got) if byte != 0x41] == [(size // 2, 0x40)] and len(got) == size
    hub.fault("truncate", f"*/{name}", bytes=100)
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(url)
    hub.fault("truncate", f"*/{name}", "GET", bytes=size // 3)
    assert Path(api.hf_hub_download(repo, name)).read_bytes() == content


def test_faults_are_set_by_writers_only_and_checked(hub: HubServer) -> None:
    url = f"{hub.endpoint}/api/embedded-hub/faults"
    assert httpx2.post(url, json={"kind": "close"}).status_code == 401
    reader = {"Authorization": f"Bearer {hub.tokens['reader']}"}
    assert httpx2.post(url, json={"kind": "close"}, headers=reader).status_code == 403
    for bad in ({}, {"kind": "explode"}, {"kind": "close", "when": 1}, {"kind": "status", "status": 99}, {"kind": 1}):
        answer = httpx2.post(url, json=bad, headers={"Authorization": f"Bearer {hub.token}"})
        assert answer.status_code == 400, bad
    assert hub.faults() == []


def test_faults_from_python() -> None:
    faults = Faults()
    faults.add(Fault("close", path="/a/*", times=0))
    faults.add(from_json({"kind": "reset", "path": "/b c"}))
    assert [faults.strike("GET", path) is not None for path in ("/a/b/c", "/b", "/b%20c", "/b%20c")] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(HubError):
        from_json({"kind": "delay", "seconds": "x"})
    with pytest.raises(HubError):
        faults.add(Fault("delay", seconds=-1))


def test_rate_limits_count_per_bearer_and_say_when_to_come_back(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "hub", "--user", "alice", "--rate-limit", "api=3/3600")
    try:
        for left in (2, 1, 0):
            headers = {"Authorization": f"Bearer {hub.token}"}
            answer = httpx2.get(f"{hub.endpoint}/api/whoami-v2", headers=headers)
            assert answer.status_code == 200
            assert answer.headers["ratelimit"].startswith(f'"api";r={left};t=')
        with pytest.raises(HfHubHTTPError) as error:
            hub.api().whoami()
        assert error.value.response.status_code == 429
        assert error.value.response.headers["ratelimit-policy"] == '"fixed window";"api";q=3;w=3600'
        assert hub.api("alice").whoami()["name"] == "alice"
    finally:
        hub.stop()


def test_windows_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("bot.localhub.limits.time.time", lambda: now[0])
    limiter = Limiter({"pages": Limit(1, 10)})
    assert limiter.count("me", "/")["RateLimit"] == '"pages";r=0;t=11'
    with pytest.raises(HubError):
        limiter.count("me", "/models")
    assert limiter.count("me", "/api/models") == {}
    now[0] = 1010.0
    limiter.count("me", "/")
    with pytest.raises(HubError):
        parse("pages=1/0")


# ------------------------------------------------------------------------------------------------------ who may call


def raw(hub: HubServer, request: bytes) -> bytes:
    host, port = hub.endpoint.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def test_foreign_host_names_get_nothing(hub: HubServer) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil.example"):
        answer = raw(hub, f"GET /api/embedded-hub HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert b" 421 " in answer.split(b"\r\n")[0] or b" 400 " in answer.split(b"\r\n")[0], host
    answer = raw(hub, b"GET /api/embedded-hub HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n")
    assert b" 200 " in answer.split(b"\r\n")[0]


def test_no_cross_origin_header_is_ever_sent(hub: HubServer) -> None:
    answer = httpx2.options(f"{hub.endpoint}/api/repos/create", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_only_loopback_is_listened_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 2"):
        start_hub(tmp_path / "hub", "--host", "0.0.0.0")  # noqa: S104


def test_bodies_have_limits(hub: HubServer) -> None:
    headers = {"Authorization": f"Bearer {hub.token}"}
    answer = httpx2.post(f"{hub.endpoint}/api/repos/create", content=b" " * (9 << 20), headers=headers)
    assert answer.status_code == 413


def test_yaml_that_grows_is_refused(hub: HubServer) -> None:
    bomb = "---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n"
    deep = "---\na: " + "[" * 5000 + "\n---\n"
    for content in (bomb, deep, "---\na: " + "x" * 300_000 + "\n---\n", "---\n- a\n---\n", "---\na: [\n---\n"):
        answer = httpx2.post(f"{hub.endpoint}/api/validate-yaml", json={"content": content, "repoType": "model"})
        assert answer.status_code == 400 and answer.json()["errors"]


def test_a_card_that_cannot_be_read_does_not_break_the_repository(api: Any, hub: HubServer, repo: str) -> None:
    files = {"README.md": "---\na: &a [x]\nb: *a\n---\n# hi", "config.json": "[" * 9000}
    lines = [{"key": "header", "value": {"summary": "bad card"}}]
    lines += [{"key": "file", "value": {"path": path, "content": content}} for path, content in files.items()]
    body = "\n".join(json.dumps(line) for line in lines)
    headers = {"Authorization": f"Bearer {hub.token}"}
    answer = httpx2.post(f"{hub.endpoint}/api/models/{repo}/commit/main", content=body, headers=headers)
    assert answer.status_code == 200
    assert api.model_info(repo).card_data is None or not api.model_info(repo).card_data.to_dict()
    assert repo in [model.id for model in api.list_models(author=repo.partition("/")[0], full=True)]


def test_a_connection_is_closed_and_not_reset_however_much_was_sent(hub: HubServer, repo: str) -> None:
    for size in (0, 10, 100_000, 3_000_000):
        hub.fault("close", "*/commit/*", "POST")
        with pytest.raises(httpx2.RemoteProtocolError):
            httpx2.post(f"{hub.endpoint}/api/models/{repo}/commit/main", content=b"x" * size)
