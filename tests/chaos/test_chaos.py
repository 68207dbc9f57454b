"""The short form passes, and the cases can fail: each kind of mistake, made on purpose, is found."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.hub import publish as publishing
from bot.hub.client import Hub
from tests.chaos import faulty, strangers, tampered
from tests.chaos.faulty import Call, FaultCase, Scene
from tests.chaos.place import Place, hurry_library
from tests.chaos.table import Result, read_json, render, write_json
from tests.hub_server import start_hub

ROOT = Path(__file__).parents[2]
SCENE = Scene("pull-request", "lfs", "fresh")
COMMIT = Call("POST", "/api/models/{repo}/commit/main", 0)


def test_the_short_form_finds_nothing_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--json", str(tmp_path / "chaos.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=560)
    last = re.fullmatch(r"(\d+) cases, (\d+) wrong", done.stdout.splitlines()[-1])
    assert last, done.stderr[-3000:]
    assert done.returncode == 0 and int(last[2]) == 0, done.stdout[-5000:]
    results = read_json(tmp_path / "chaos.json")
    assert len(results) == int(last[1]) >= 130
    struck = {result.name.split("/")[-2] for result in results if result.name.startswith("fault/")}
    assert struck >= {strike.name for strike in faulty.strikes()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place in this very process, where the bot can be broken on purpose."""
    folder = tmp_path_factory.mktemp("chaos")
    server = start_hub(folder / "hub", "--user", "alice", "--fast-clock")
    yield Place(server, folder, secrets.randbelow(1000))
    server.kill()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http, "time", _http.time)  # put back afterwards
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    hurry_library()


def case(strike: str, often: str = "once", call: Call = COMMIT, scene: Scene = SCENE) -> FaultCase:
    (found,) = [each for each in faulty.strikes() if each.name == strike]
    return FaultCase(scene, call, found, often)


@pytest.mark.parametrize("mode", faulty.MODES)
def test_a_bot_that_works_passes(place: Place, mode: str) -> None:
    result = faulty.carry_out(place, case("lost answer", scene=replace(SCENE, mode=mode)))
    assert (result.wrong, result.note) == ("", "got through")


def test_a_fault_that_never_strikes_is_wrong(place: Place) -> None:
    result = faulty.carry_out(place, case("503", call=Call("GET", "/api/nothing/{repo}", 0)))
    assert result.wrong == "the fault never struck"


def test_a_second_pull_request_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bot that takes a lost answer for a failure, and looks at nothing."""
    monkeypatch.setattr(publishing, "_decide", lambda *_, **__: publishing._Plan("new"))
    monkeypatch.setattr(publishing, "find", lambda *_, **__: None)
    monkeypatch.setattr(publishing._Run, "_tidy", lambda *_: None)
    monkeypatch.setattr(publishing._Run, "_without_rivals", lambda _, own, first: own)
    assert "2 pull requests in place of one" in faulty.carry_out(place, case("lost answer")).wrong


def test_half_a_release_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = publishing.Bundle.changed
    monkeypatch.setattr(publishing.Bundle, "changed", lambda self, tree: whole(self, tree)[1:])
    result = faulty.carry_out(place, case("503"))
    assert result.wrong.startswith("after the first run, which failed: ") and "LICENSE" in result.text


def test_an_error_of_the_library_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("sha")

    monkeypatch.setattr(Hub, "tree", broken)
    result = faulty.carry_out(place, case("503", call=Call("GET", "/api/models/{repo}", 0)))
    assert "ended in builtins.KeyError" in result.wrong


def test_a_success_that_the_hub_does_not_hold_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from bot.hub import verify as verifying
    from bot.hub import withheld

    def claimed(hub: Hub, *_: Any, **__: Any) -> publishing.Publication:
        assert hub.account  # one call, for the fault to strike
        return publishing.Publication("pull-request", 1, "refs/pr/1", "0" * 40)

    monkeypatch.setattr(publishing, "publish", claimed)
    monkeypatch.setattr(verifying, "confirm", lambda *_: None)
    monkeypatch.setattr(withheld, "close_notices", lambda *_: None)
    result = faulty.carry_out(place, case("503", call=Call("GET", "/api/whoami-v2", 0)))
    assert result.wrong.startswith("the first run said that it succeeded")


def test_tampering_that_nobody_looks_for_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from bot.hub import verify as verifying

    monkeypatch.setattr(verifying, "require", lambda _: None)
    assert tampered.carry_out(place, "licence changed", "commit").wrong == "it passes"


def test_a_bot_that_believes_strangers_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from bot.hub import target

    monkeypatch.setattr(Hub, "account", property(lambda _: strangers.WHO))
    monkeypatch.setattr(target, "account_of", lambda _: strangers.WHO)
    assert strangers.carry_out(place, "closed pull request").wrong


def test_the_table_counts_and_tells_how_to_repeat(tmp_path: Path) -> None:
    results = [Result("a/1", "a", note="x"), Result("a/2", "a", "bad", note="x", text="why"), Result("b", "b")]
    text = render(results, "chaos --seed 1")
    assert text.splitlines()[-1] == "3 cases, 1 wrong"
    assert re.search(r"^a +2 +1 +2 x$", text, re.MULTILINE) and "again: chaos --seed 1 --only 'a/2'" in text
    write_json(tmp_path / "r.json", results, {"seed": 1})
    assert read_json(tmp_path / "r.json") == results
