"""Publishing while the Hub fails: every end state is the one right release, or nothing and a clear error."""

from __future__ import annotations

import pytest
from hub_cases import watched
from hub_here import Here

from bot.errors import HubError, OverwriteError
from bot.hub.verify import confirm

BAD_ANSWERS = ["lost", "reset", "close", "truncate", 500, 502, 503, 504, 429, 408, 409, 412]
MODES = ["pull-request", "commit"]

PLACES = {
    "head": "/api/models/{target}",
    "tree": "/api/models/{target}/tree/*",
    "listing": "/api/models/{target}/discussions",
    "details": "/api/models/{target}/discussions/1",
    "history": "/api/models/{target}/commits/*",
    "preupload": "/api/models/{target}/preupload/*",
    "card check": "/api/validate-yaml",
    "create": "/api/repos/create",
    "who": "/api/whoami-v2",
    "content": "/{target}/resolve/*",
    "large file": "/{target}.git/info/lfs/objects/batch",
}


def set_fault(here: Here, kind: str | int, path: str, **more: object) -> None:
    if isinstance(kind, int):
        here.server.fault("status", path, status=kind, **more)
    else:
        here.server.fault(kind, path, **more)


def struck(here: Here) -> int:
    return sum(fault["struck"] for fault in here.server.faults())


def end_state_is_right(here: Here, mode: str) -> bool:
    if mode == "pull-request":
        return here.pull_requests() == [(1, "open")]
    commits = here.api().list_repo_commits(here.target)
    return here.pull_requests() == [] and sum("Release-Id" in commit.message for commit in commits) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_a_commit_without_a_good_answer_lands_once(here: Here, kind: str | int, mode: str) -> None:
    case = here.case()
    set_fault(here, kind, f"/api/models/{here.target}/commit/*")
    done = here.publish(case, mode)
    assert struck(here) == 1
    assert done.kind == mode and done.uploaded_bytes > 0
    confirm(here.hub(), case.release, done, here.cache())
    assert end_state_is_right(here, mode)


@pytest.mark.parametrize("kind", [503, "reset", "lost"])
@pytest.mark.parametrize("place", PLACES)
def test_passing_faults_elsewhere_do_no_harm(
    here: Here, place: str, kind: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", place == "large file")
    case = here.case(models={"model.onnx": here.target.encode() * 600_000})
    set_fault(here, kind, PLACES[place].format(target=here.target), times=2)
    done = here.publish(case)
    confirm(here.hub(), case.release, done, here.cache())
    assert struck(here) > 0
    assert end_state_is_right(here, "pull-request")


@pytest.mark.parametrize("place", ["head", "tree", "details", "preupload", "card check", "create", "who", "content"])
def test_lasting_faults_end_in_a_clear_error_and_the_next_run_goes_on(here: Here, place: str) -> None:
    if place in ("details", "content"):
        here.publish(here.case("0"))
        here.api().merge_pull_request(here.target, 1)
    case = here.case("1")
    set_fault(here, 502, PLACES[place].format(target=here.target), times=0, body="<html>Bad gateway</html>")
    with pytest.raises(HubError) as caught:
        here.publish(case)
    assert caught.value.exit_code == 7 and caught.value.where
    here.server.clear_faults()
    done = here.publish(case)
    confirm(here.hub(), case.release, done, here.cache())
    assert [status for _, status in here.pull_requests()].count("open") == 1


def test_an_answer_that_makes_no_sense_is_asked_for_once_more(here: Here) -> None:
    here.hand_made({"note.txt": b"mine"})
    for path in ("", "/tree/*", "/discussions", "/commits/*"):
        here.server.fault("status", f"/api/models/{here.target}{path}", status=200, body="<html>")
    here.server.fault("status", "/api/whoami-v2", status=200, body="[]")
    hub = here.hub()
    assert hub.account == "local-user" and hub.head(here.target).sha
    assert "note.txt" in hub.tree(here.target, "main")
    assert hub.pull_requests(here.target, author="local-user") == []
    assert [commit.title for commit in hub.commits(here.target, "main", limit=1)] == ["By hand"]
    assert struck(here) == 5


def test_a_passing_fault_in_the_middle_of_a_xet_upload_does_no_harm(here: Here) -> None:
    case = here.case(models={"model.onnx": here.target.encode() * 600_000})
    set_fault(here, 503, f"/api/models/{here.target}/xet-write-token/*")
    done = here.publish(case)
    confirm(here.hub(), case.release, done, here.cache())
    assert struck(here) == 1 and end_state_is_right(here, "pull-request")


@pytest.mark.parametrize("kind", [500, "reset"])
def test_a_listing_that_fails_stops_and_opens_nothing(here: Here, kind: str | int) -> None:
    case = here.case()
    here.hand_made({"note.txt": b"mine"})
    set_fault(here, kind, f"/api/models/{here.target}/discussions", times=0)
    with watched(here.server.endpoint) as proxy:
        with pytest.raises(HubError) as caught:
            here.publish(case, hub=here.hub(endpoint=proxy.endpoint))
        assert proxy.writes() == []
    here.server.clear_faults()
    assert caught.value.exit_code == 7 and here.pull_requests() == []


@pytest.mark.parametrize("kind", [503, 412, "close"])
def test_a_commit_that_never_succeeds_ends_in_an_error_and_in_nothing(here: Here, kind: str | int) -> None:
    set_fault(here, kind, f"/api/models/{here.target}/commit/*", times=0)
    with pytest.raises(HubError, match="Tried 5 times"):
        here.publish(here.case())
    here.server.clear_faults()
    assert here.pull_requests() == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_refused_commit_is_not_tried_again(here: Here, status: int) -> None:
    set_fault(here, status, f"/api/models/{here.target}/commit/*", times=0)
    with pytest.raises(HubError):
        here.publish(here.case())
    assert struck(here) == 1


def test_a_listing_that_lags_behind_opens_no_second_pull_request(here: Here) -> None:
    here.hand_made({"note.txt": b"mine"})
    empty = '{"discussions": [], "count": 0, "start": 0}'
    here.server.fault("status", f"/api/models/{here.target}/discussions", status=200, body=empty, times=4)
    here.server.fault("status", f"/api/models/{here.target}/discussions/1", status=503, times=2)
    assert here.publish(here.case()).number == 1
    here.server.clear_faults()
    assert here.pull_requests() == [(1, "open")]


def test_a_closing_without_an_answer_is_looked_up(here: Here) -> None:
    here.publish(here.case("1"))
    set_fault(here, "lost", f"/api/models/{here.target}/discussions/1/status")
    assert here.publish(here.case("2")).number == 2
    assert here.pull_requests() == [(1, "closed"), (2, "open")]


def test_a_head_that_moves_under_a_commit_is_read_again(here: Here) -> None:
    moved = []

    def move(_: str, path: str) -> None:
        if "/commit/" in path and not moved:
            moved.append(here.hand_made({"note.txt": b"hi"}))

    with watched(here.server.endpoint) as proxy:
        proxy.before = move
        done = here.publish(here.case(), "commit", hub=here.hub(endpoint=proxy.endpoint))
    assert done.kind == "commit" and moved
    assert {"note.txt", "model.onnx"} <= set(here.api().list_repo_files(here.target))
    assert end_state_is_right(here, "commit")


def test_a_file_that_appears_in_between_is_not_overwritten(here: Here) -> None:
    moved = []

    def move(_: str, path: str) -> None:
        if "/commit/" in path and not moved:
            moved.append(here.hand_made({"LICENSE": b"theirs"}))

    with watched(here.server.endpoint) as proxy, pytest.raises(OverwriteError, match="LICENSE"):
        proxy.before = move
        here.publish(here.case(), "commit", hub=here.hub(endpoint=proxy.endpoint))
    assert moved and here.hub().read_bytes(here.target, "main", "LICENSE") == b"theirs"


@pytest.mark.parametrize("place", ["/resolve/*/release.json", "/resolve/*/release/files.json"])
def test_a_record_with_a_flipped_bit_decides_nothing(here: Here, place: str) -> None:
    here.publish(here.case("1"), "commit")
    here.server.fault("corrupt", f"/{here.target}{place}", times=0)
    with pytest.raises(HubError, match="does not come as the Hub lists it"):
        here.publish(here.case("2"), "commit")
    here.server.clear_faults()
    here.server.fault("corrupt", f"/{here.target}{place}")
    assert here.publish(here.case("2"), "commit").kind == "commit"


@pytest.mark.parametrize("change", [("status", "opeo"), ("num", 7), ("author", {"name": "somebody"})])
def test_a_conversation_with_a_flipped_bit_decides_nothing(here: Here, change: tuple[str, object]) -> None:
    import json
    import urllib.request

    case = here.case()
    here.publish(case)
    url = f"/api/models/{here.target}/discussions/1"
    plain = json.loads(urllib.request.urlopen(here.server.endpoint + url, timeout=10).read())
    body = json.dumps({**plain, change[0]: change[1]})
    here.server.fault("status", url, "GET", status=200, body=body, times=0)
    with pytest.raises(HubError, match=f"{here.target} #1"):
        here.publish(case)
    here.server.clear_faults()
    assert here.pull_requests() == [(1, "open")]
