"""The rules by which a recipe is due, held against the publisher's own over every situation of a small kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.hub import publish as publishing
from bot.hub.client import Conversation, PullRequest
from bot.hub.target import Own, Target
from bot.records import Due
from bot.watch.deciding import Inputs, Request, Situation, decide, reasons_for, settles_at
from bot.watch.findings import Finding, Row
from bot.watch.matrix import LARGEST, matrix

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
IDENTITIES = ("a" * 64, "b" * 64)

requests = st.builds(
    lambda number, status, identity, recipe, closed: Request(
        number, status, identity, recipe, closed if status == "closed" else ""
    ),
    st.integers(1, 9),
    st.sampled_from(["open", "draft", "closed", "merged"]),
    st.sampled_from(IDENTITIES),
    st.sampled_from(["mine", "other"]),
    st.sampled_from(["", "superseded", "rival", "verification"]),
)


def _own(request: Request) -> Own:
    pull = PullRequest(request.number, "", request.status, "bot")
    return Own(Conversation(pull, (), ("c" * 40,)), request.identity, request.recipe, request.closed_as)


class _Release:
    """As much of a release as the publisher's decision looks at."""

    def __init__(self, identity: str) -> None:
        self.identity, self.recipe = identity, "mine"


def _published_by(held: str, there: list[Request], mode: Any, committed: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the publisher would do: `nothing`, `waiting` or `act`."""
    release: Any = _Release(held) if held else None
    target = Target("you/target", "d" * 40, {}, release)
    own = [_own(request) for request in there]
    commit = type("Commit", (), {"sha": "e" * 40})() if committed else None
    monkeypatch.setattr(publishing, "own_commit", lambda *_, **__: commit)
    monkeypatch.setattr(publishing, "account_of", lambda _: "bot")
    identity = IDENTITIES[0]
    hub: Any = None
    plan = publishing._decide(hub, target, own, identity, mode, reopen=False)
    recipe = publishing._recipe_of(target, own, identity)
    if plan.action == "nothing":
        left = publishing._leftovers(own, identity, None, recipe, committed=publishing._holds(target, identity))
        return "act" if left else "nothing"
    if plan.action == "resume":
        return "act" if publishing._leftovers(own, identity, plan.own, recipe) else "waiting"
    return "act"


@given(
    there=st.lists(requests, max_size=4, unique_by=lambda request: request.number),
    held=st.sampled_from(["", *IDENTITIES]),
    mode=st.sampled_from(["pull-request", "commit"]),
    committed=st.booleans(),
)
def test_what_is_due_is_what_the_publisher_would_act_on(
    there: list[Request], held: str, mode: Any, committed: bool
) -> None:
    # The release's own pull requests carry its own recipe's name: the name is part of the identity.
    mine = [request for request in there if request.identity != IDENTITIES[0] or request.recipe == "mine"]
    mine.sort(key=lambda request: request.number)
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = _published_by(held, mine, mode, committed, monkeypatch)
    found = decide(IDENTITIES[0], Situation("mine", mode, held, mine, None, lambda: committed))
    meant = {"due": "act", "waiting for review": "waiting", "current": "nothing", "closed": "nothing"}
    assert meant.get(found.state, "nothing") == expected, found


@given(
    there=st.lists(requests, max_size=4, unique_by=lambda request: request.number),
    held=st.sampled_from(["", *IDENTITIES]),
    mode=st.sampled_from(["pull-request", "commit"]),
)
def test_a_release_that_was_withheld_is_not_repeated(there: list[Request], held: str, mode: Any) -> None:
    # Not even to close what another release left open: the publisher stops at the discussion before it gets there.
    assert decide(IDENTITIES[0], Situation("mine", mode, held, there, notice=7)).state != "due"


def _inputs(**more: Any) -> Inputs:
    base: dict[str, Any] = {
        "identity": "a" * 64,
        "upstream": {"network": "1"},
        "samples": "2",
        "recipe_id": "3",
        "text": "4",
        "licences": {"LICENSE": "5"},
        "tools": {"onnx": "1.22"},
    }
    return Inputs(**{**base, **more})


@pytest.mark.parametrize(
    ("before", "reasons"),
    [
        ({"upstream": {"network": "0"}}, ("upstream files",)),
        ({"samples": "0"}, ("samples",)),
        ({"recipe_id": "0", "text": "0"}, ("recipe",)),
        ({"recipe_id": "0"}, ("recipe",)),  # The card's words, code of its own, or the shared templates.
        ({"recipe_id": "0", "licences": {"LICENSE": "0"}}, ("licence",)),
        ({"recipe_id": "0", "tools": {"onnx": "1.21"}}, ("tools",)),
        ({"recipe_id": "0", "text": "0", "licences": {}, "upstream": {}}, ("upstream files", "licence", "recipe")),
        ({"recipe_id": "", "upstream": {}}, ("upstream files",)),  # A record of an older bot.
    ],
)
def test_the_reasons_name_what_differs(before: dict[str, Any], reasons: tuple[str, ...]) -> None:
    assert reasons_for(_inputs(), _inputs(**before), outdated=False, retried=False) == reasons
    assert reasons_for(_inputs(), _inputs(**before), outdated=True, retried=False) == (
        *reasons,
        "pull request outdated",
    )


def test_a_first_release_and_another_attempt_are_named() -> None:
    assert reasons_for(_inputs(), None, outdated=False, retried=False) == ("new",)
    assert reasons_for(_inputs(), None, outdated=False, retried=True) == ("retry",)


def test_a_commit_settles_to_the_second() -> None:
    committed = NOW - timedelta(hours=6)
    assert settles_at(committed, 6 * 3600, NOW) is None
    assert settles_at(committed, 6 * 3600 + 1, NOW) == NOW + timedelta(seconds=1)


def _row(name: str, since: datetime | None) -> Row:
    return Row(name, Finding("due", ("new",)), "u/m", "t/m", "ubuntu-latest", since=since)


def test_the_matrix_holds_the_oldest_256() -> None:
    rows = [_row(f"model-{hour:03d}", NOW - timedelta(hours=hour)) for hour in range(300)]
    due = [record for row in rows if (record := row.due()) is not None]
    found = matrix(due)["include"]
    assert len(found) == LARGEST == 256
    assert [entry["recipe"] for entry in found[:2]] == ["model-299", "model-298"]
    assert found[-1] == {"recipe": "model-044", "target": "t/m", "runner": "ubuntu-latest", "reason": "new"}


def test_nothing_due_is_an_empty_matrix() -> None:
    assert matrix([]) == {"include": []}
    assert Row("x", Finding("current")).due() is None


def test_the_record_of_what_is_due_survives_its_json() -> None:
    record = _row("model", NOW).due()
    assert record is not None and Due.from_json(record.to_json()) == record
