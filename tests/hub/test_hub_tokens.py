"""A token goes to the Hub that it belongs to, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_cases import QUICK
from hub_stub import Stub, stub
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import BotError, HubError, RecipeError
from bot.hub.client import Hub
from bot.hub.download import Expected
from bot.hub.tokens import PUBLIC_HUB, default_endpoint, is_loopback, normal_endpoint, read_token_file, token_for

ROOT = Path(__file__).resolve().parents[2]
TREE = "/api/models/o/m/tree/main"


def test_hf_token_belongs_to_hf_endpoint_and_to_nothing_else() -> None:
    environ = {"HF_TOKEN": "hf_public"}
    assert token_for(PUBLIC_HUB, environ) == "hf_public"
    assert token_for("https://HuggingFace.co:443/", environ) == "hf_public"
    for other in ("https://huggingface.co.evil.example", "https://example.org", "http://127.0.0.1:8000"):
        assert token_for(other, environ) is None
    elsewhere = environ | {"HF_ENDPOINT": "https://hub.example.org"}
    assert token_for("https://hub.example.org/", elsewhere) == "hf_public"
    assert token_for(PUBLIC_HUB, elsewhere) is None
    assert default_endpoint(elsewhere) == "https://hub.example.org"


def test_the_stored_login_belongs_to_hf_endpoint(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_stored\n")
    environ = {"HF_HOME": str(tmp_path)}
    assert token_for(PUBLIC_HUB, environ) == "hf_stored"
    assert token_for("http://127.0.0.1:1", environ) is None
    assert token_for(PUBLIC_HUB, {"HOME": str(tmp_path / "nobody")}) is None


def test_a_pair_belongs_together() -> None:
    environ = {"BOT_HUB_TOKEN": "hf_pair", "BOT_HUB_ENDPOINT": "https://hub.example.org", "HF_TOKEN": "hf_public"}
    assert token_for("https://hub.example.org", environ) == "hf_pair"
    assert token_for(PUBLIC_HUB, environ) == "hf_public"
    assert token_for("https://other.example.org", environ) is None
    with pytest.raises(RecipeError, match="BOT_HUB_ENDPOINT"):
        token_for(PUBLIC_HUB, {"BOT_HUB_TOKEN": "hf_pair"})


def test_an_explicit_token_wins_and_a_malformed_one_is_not_repeated(tmp_path: Path) -> None:
    assert token_for("https://x.example", {"HF_TOKEN": "a"}, explicit="hf_b\n") == "hf_b"
    for bad in ("two words", "new\nline", "schlüssel", "\x00"):
        with pytest.raises(RecipeError) as caught:
            token_for("https://x.example", {}, explicit=bad)
        assert bad not in str(caught.value)
    for content in (b"", b"\xff\xfe"):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(RecipeError):
            read_token_file(tmp_path / "token")
    with pytest.raises(RecipeError):
        read_token_file(tmp_path / "none")


@pytest.mark.parametrize(
    "endpoint",
    ["", "huggingface.co", "ftp://x.org", "http://example.org", "https://u:p@x.org", "https://x.org/?a=b", "https://"],
)
def test_malformed_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        normal_endpoint(endpoint)
    assert "u:p" not in str(caught.value)


@given(st.sampled_from(["http", "HTTP"]), st.integers(1, 65535), st.sampled_from(["", "/", "//"]))
def test_one_endpoint_has_one_spelling(scheme: str, port: int, slash: str) -> None:
    once = normal_endpoint(f"{scheme}://LocalHost:{port}{slash}")
    assert once == normal_endpoint(once) and once.startswith("http://localhost")


def test_loopback_is_told_by_name_alone() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"))
    assert not any(
        is_loopback(host) for host in ("localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "", "0x7f")
    )


# -- on the wire -------------------------------------------------------------------------------------------------------


def redirect(to: Stub, status: int = 302) -> object:
    return lambda request: request.reply(status, Location=to.endpoint + request.path)


def foreign_tokens(other: Stub) -> list[str | None]:
    return [seen.authorization for seen in other.seen if seen.authorization is not None]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_carries_no_token(status: int) -> None:
    with stub() as own, stub() as other:
        own.answers["/api/models/o/m"] = redirect(other, status)  # type: ignore[assignment]
        other.answers["/api/models/o/m"] = lambda request: request.reply(200, b'{"id": "o/m", "sha": "abc"}')
        assert Hub(own.endpoint, "hf_secret", policy=QUICK).head("o/m").sha == "abc"
        assert own.seen[-1].authorization == "Bearer hf_secret"
        assert other.seen and foreign_tokens(other) == []


def test_a_download_that_is_redirected_carries_no_token(tmp_path: Path) -> None:
    with stub() as own, stub() as other:
        own.answers["/o/m/resolve"] = redirect(other)  # type: ignore[assignment]
        other.answers["/o/m/resolve"] = lambda request: request.reply(200, b"content")
        hub = Hub(own.endpoint, "hf_secret", policy=QUICK)
        hub.download("o/m", "main", "f", tmp_path / "f", Expected(bytes=7))
        assert (tmp_path / "f").read_bytes() == b"content"
        assert other.seen and foreign_tokens(other) == []


def test_a_next_page_at_another_host_is_not_asked_for() -> None:
    """The client would send the token there: it trusts the link."""
    with stub() as own, stub() as other:
        link = f'<{other.endpoint}/next>; rel="next"'
        own.answers[TREE] = lambda request: request.reply(200, b"[]", Link=link)
        with pytest.raises(HubError, match="not given for") as caught:
            Hub(own.endpoint, "hf_secret", policy=QUICK).tree("o/m", "main")
        assert other.seen == [] and "hf_secret" not in str(caught.value)


@pytest.mark.parametrize("status", [307, 308])
def test_a_write_is_not_sent_on_to_another_host(status: int) -> None:
    with stub() as own, stub() as other:
        own.answers["/api/models/o/m/discussions"] = redirect(other, status)  # type: ignore[assignment]
        with pytest.raises(HubError, match="not followed"):
            Hub(own.endpoint, "hf_secret", policy=QUICK).comment("o/m", 1, "hello")
        assert other.seen == []


def test_each_hub_gets_its_own_token_and_a_hub_without_one_gets_none() -> None:
    with stub() as first, stub() as second, stub() as third:
        for each in (first, second, third):
            each.answers["/api/models/o/m"] = lambda request: request.reply(200, b'{"id": "o/m", "sha": "abc"}')
        hubs = [Hub(first.endpoint, "hf_1"), Hub(second.endpoint, "hf_2"), Hub(third.endpoint, None)]
        for hub in (*hubs, *reversed(hubs)):
            hub.head("o/m")
        assert {seen.authorization for seen in first.seen} == {"Bearer hf_1"}
        assert {seen.authorization for seen in second.seen} == {"Bearer hf_2"}
        assert {seen.authorization for seen in third.seen} == {None}


def test_a_login_on_this_machine_is_never_used_by_itself(tmp_path: Path) -> None:
    """In a process of its own, with every variable and file that the client library would take a token from."""
    (tmp_path / "token").write_text("hf_stored")
    script = f"""
import sys, json
sys.path.insert(0, {str(ROOT)!r}); sys.path.insert(0, {str(Path(__file__).parent)!r})
from hub_stub import stub
from bot.hub.client import Hub
with stub() as server:
    server.answers["/api"] = lambda request: request.reply(200, b'{{"id": "o/m", "sha": "abc", "embedded": true}}')
    server.answers["/o/m"] = lambda request: request.reply(200, b"x")
    hub = Hub(server.endpoint)
    hub.head("o/m"); hub.is_embedded(); hub.read_bytes("o/m", "main", "x")
    print(json.dumps([[seen.path, seen.authorization] for seen in server.seen]))
"""
    environ = {**os.environ, "HF_TOKEN": "hf_public", "HF_HOME": str(tmp_path), "HUGGING_FACE_HUB_TOKEN": "hf_old"}
    for name in ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_DISABLE_TELEMETRY"):
        environ.pop(name, None)
    result = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert len(seen) == 3 and all(authorization is None for _, authorization in seen)


def test_an_error_never_holds_the_token() -> None:
    with stub() as own:
        own.answers["/"] = lambda request: request.reply(403, b'{"error": "no"}')
        hub = Hub(own.endpoint, "hf_secret", policy=QUICK)
        with pytest.raises(BotError) as caught:
            hub.head("o/m")
        assert "hf_secret" not in str(caught.value) + repr(hub) + repr(caught.value.__cause__)
