"""Patience: what is repeated, how long the bot waits, and that it never waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hub_cases import QUICK
from hub_here import Here
from hub_stub import Handler, stub
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import HubError
from bot.hub.client import Doubtful, Hub
from bot.hub.download import Expected
from bot.hub.retry import HubUnavailable, Policy

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
POLICY = Policy(now=lambda: NOW)


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"RateLimit": '"api";r=0;t=55'}, 56.0),
        (429, {"RateLimit": '"api";r=3;t=55', "Retry-After": "7"}, 8.0),
        (503, {"RateLimit": '"api";r=0;t=55', "retry-after": "7"}, 8.0),
        (503, {"Retry-After": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 91.0),
        (503, {"Retry-After": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 1.0),
        (429, {"Retry-After": "soon"}, None),
        (429, {"Retry-After": "-5"}, None),
        (429, {}, None),
    ],
)
def test_what_the_hub_asks_for(status: int, headers: dict[str, str], wait: float | None) -> None:
    assert POLICY.asked_wait(status, headers) == wait


@given(st.integers(1, 60))
def test_waits_double_and_stay_within_their_limit(attempt: int) -> None:
    full = min(POLICY.longest_wait, POLICY.first_wait * 2.0 ** (attempt - 1))
    assert 0.8 * full <= POLICY.wait_after(attempt) <= full


@given(st.text(max_size=40))
def test_no_header_can_break_it(text: str) -> None:
    wait = POLICY.asked_wait(429, {"Retry-After": text, "RateLimit": text})
    assert wait is None or wait >= 0


def slept(policy: Policy = QUICK) -> tuple[Policy, list[float]]:
    """A policy that only writes down how long it would have waited."""
    waits: list[float] = []
    return replace(policy, sleep=waits.append), waits


def test_a_read_waits_as_long_as_the_hub_asks(here: Here) -> None:
    here.hand_made({"note.txt": b"x"})
    policy, waits = slept()
    hub = here.hub(policy=policy)
    for headers, wait in (({"RateLimit": '"api";r=0;t=55'}, 56.0), ({"Retry-After": "120"}, 121.0)):
        here.server.fault("status", f"/api/models/{here.target}", status=429, headers=headers)
        assert hub.head(here.target).sha
        assert waits.pop() == wait
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    here.server.fault("status", f"/api/models/{here.target}/tree/*", status=503, headers={"Retry-After": date})
    assert "note.txt" in hub.tree(here.target, "main")
    assert 295 < waits.pop() <= 301 and waits == []


def test_a_hub_that_asks_for_too_much_is_not_waited_for(here: Here) -> None:
    policy, waits = slept()
    here.server.fault("status", "/api/whoami-v2", status=429, headers={"Retry-After": "86400"}, times=0)
    with pytest.raises(HubUnavailable, match="asks to wait 86401 s"):
        _ = here.hub(policy=policy).account
    assert waits == []


def test_calls_that_the_client_repeats_itself_are_not_repeated_twice_over(here: Here) -> None:
    policy, waits = slept()
    here.hand_made({"note.txt": b"x"})
    here.server.fault("status", f"/api/models/{here.target}/tree/*", status=503, times=0)
    begin = time.monotonic()
    with pytest.raises(HubUnavailable, match="tried 5 times"):
        here.hub(policy=policy).tree(here.target, "main")
    assert sum(fault["struck"] for fault in here.server.faults()) == 5
    assert len(waits) == 4 and time.monotonic() - begin < 2


def test_a_write_is_sent_once(here: Here) -> None:
    policy, waits = slept()
    here.hand_made({"note.txt": b"x"})
    headers = {"Retry-After": "40"}
    here.server.fault(
        "status", f"/api/models/{here.target}/discussions/1/comment", status=503, times=0, headers=headers
    )
    with pytest.raises(Doubtful) as caught:
        here.hub(policy=policy).comment(here.target, 1, "hello")
    assert sum(fault["struck"] for fault in here.server.faults()) == 1
    assert waits == [] and caught.value.wait == 41.0


def test_a_repository_that_is_being_made_by_another_is_waited_for(here: Here) -> None:
    """The client repeats this one at once and for ever; the Hub says that it did nothing."""
    policy, waits = slept()
    body = '{"error": "Cannot create repo: another conflicting operation is in progress"}'
    here.server.fault("status", "/api/repos/create", status=409, body=body, times=3)
    here.hub(policy=policy).create_repo(here.target)
    assert len(waits) == 3 and here.api().repo_exists(here.target)
    here.server.fault("status", "/api/repos/create", status=409, body=body, times=0)
    with pytest.raises(HubUnavailable):
        here.hub(policy=policy).create_repo(here.target + "2")


def test_no_network_is_said_as_such() -> None:
    with stub() as server:
        endpoint = server.endpoint
    policy, waits = slept()
    with pytest.raises(HubUnavailable) as caught:
        Hub(endpoint, None, policy=policy).head("o/m")
    assert "network" in caught.value.remedy and len(waits) == 4


# -- servers that do not answer ----------------------------------------------------------------------------------------

IMPATIENT = replace(QUICK, attempts=2, answer=0.3, commit_answer=0.3, whole_answer=0.5, stall=0.5, stall_bytes=10_000)


def silent(_: Handler) -> None:
    time.sleep(3)


def drip(request: Handler) -> None:
    """Sends a byte now and then: no single read ever times out."""
    request.send_response_only(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    for _ in range(30):
        try:
            request.wfile.write(b"x")
        except OSError:
            return
        time.sleep(0.1)


@pytest.mark.parametrize("answer", [silent, drip])
@pytest.mark.parametrize(
    "call",
    [
        lambda hub, _: hub.head("o/m"),
        lambda hub, _: hub.tree("o/m", "main"),
        lambda hub, _: hub.pull_requests("o/m", author="a"),
        lambda hub, _: hub.conversation("o/m", 1),
        lambda hub, _: next(hub.commits("o/m", "main")),
        lambda hub, _: hub.files_at("o/m", "main", ["a"]),
        lambda hub, _: hub.account,
        lambda hub, _: hub.read_bytes("o/m", "main", "a"),
        lambda hub, _: hub.create_repo("o/m"),
        lambda hub, _: hub.comment("o/m", 1, "x"),
        lambda hub, _: hub.set_status("o/m", 1, "closed"),
        lambda hub, folder: hub.download("o/m", "main", "a", folder / "a", Expected(bytes=100_000)),
        lambda hub, _: hub.commit("o/m", {"a": b"x"}, message="m", description="", revision="main", parent="a" * 40),
    ],
)
def test_no_call_hangs(call: Callable[[Hub, Path], Any], answer: Callable[[Handler], None], tmp_path: Path) -> None:
    with stub() as server:
        server.answers["/"] = answer
        begin = time.monotonic()
        with pytest.raises(HubError):
            call(Hub(server.endpoint, "hf_x", policy=IMPATIENT), tmp_path)
        assert time.monotonic() - begin < 4


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from bot.hub import session

    monkeypatch.setattr(session, "LARGEST_ANSWER", 1_000_000)
    with stub() as server:
        server.answers["/"] = lambda request: request.reply(200, b"[" + b" " * 1_100_000 + b"]")
        with pytest.raises(HubError, match="larger than 1000000"):
            Hub(server.endpoint, None, policy=QUICK).tree("o/m", "main")


@pytest.mark.parametrize("path", ["/content/*", "/verify"])
def test_an_upload_is_never_asked_to_wait_for_hours(here: Here, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library repeats uploads itself, and would wait for as long as it is told to."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    where = f"/{here.target}.git/info/lfs/objects/*{path}" if path != "/verify" else "*/info/lfs/objects/verify"
    here.server.fault("status", where, status=429, headers={"Retry-After": "7200"})
    begun = time.monotonic()
    with pytest.raises(HubUnavailable, match="it asks to wait 7201 s"):
        here.publish(here.case())
    assert time.monotonic() - begun < 60 and here.pull_requests() == []
    assert here.publish(here.case()).number == 1
