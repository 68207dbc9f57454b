"""One discussion about a withheld release: opened once, updated, closed when a later release passes."""

from __future__ import annotations

from typing import Any

import pytest
from hub_here import Here

from bot.errors import HubError
from bot.hub.withheld import Notice, close_notices, close_outdated, find_notice, report_withheld


def report(here: Here, seed: str = "1", text: str = "age.mean_absolute is 3.1 years, and may be 0.02.") -> Notice:
    release = here.case(seed, withheld=("model.onnx",)).release
    notice = report_withheld(here.hub(), release, title="Release withheld", text=text)
    assert notice is not None
    return notice


def discussions(here: Here) -> list[tuple[int, str]]:
    items = here.api().get_repo_discussions(here.target, discussion_type="discussion")
    return sorted((item.num, item.status) for item in items)


def comments(here: Here, number: int) -> list[str]:
    events = here.api().get_discussion_details(here.target, number).events
    return [event.content for event in events if event.type == "comment"]


@pytest.fixture
def target(here: Here) -> Here:
    """A target that exists."""
    here.hand_made({"note.txt": b"mine"})
    return here


def test_a_withheld_release_is_one_discussion(target: Here) -> None:
    first = report(target)
    assert (first.number, first.action, first.is_open) == (1, "opened", True)
    assert first.url == f"{target.server.endpoint}/{target.target}/discussions/1"
    again = report(target)
    assert (again.number, again.action) == (1, "found")
    assert discussions(target) == [(1, "open")]
    assert len(comments(target, 1)) == 1 and "3.1 years" in comments(target, 1)[0]
    assert find_notice(target.hub(), target.target, first.identity) is not None
    assert find_notice(target.hub(), target.target, "0" * 64) is None


def test_the_next_withheld_release_is_said_in_the_same_discussion(target: Here) -> None:
    report(target, "1")
    second = report(target, "2", "Now it is 2.9 years.")
    assert (second.number, second.action) == (1, "updated")
    assert len(comments(target, 1)) == 2 and "2.9 years" in comments(target, 1)[1]
    assert report(target, "2").action == "found"


def test_a_release_that_passes_closes_it_and_a_later_failure_opens_another(target: Here) -> None:
    report(target, "1")
    passed = target.case("2")
    done = target.publish(passed)
    assert discussions(target) == [(1, "open")], "only what was verified has passed"
    close_notices(target.hub(), passed.release, done.url, lambda _: None)
    assert discussions(target) == [(1, "closed")] and done.url in comments(target, 1)[-1]
    assert report(target, "3").action == "opened"
    assert [status for _, status in discussions(target)] == ["closed", "open"]
    # The first one passed in the end, as far as anyone knows: it may be attempted again.
    assert find_notice(target.hub(), target.target, target.case("1").release.identity) is None


def test_a_closing_that_failed_is_made_up_for_by_the_next_run(target: Here) -> None:
    report(target, "1")
    case, said = target.case("2"), []
    done = target.publish(case)
    target.server.fault("status", f"/api/models/{target.target}/discussions/1/status", status=503, times=0)
    with pytest.raises(HubError):
        close_notices(target.hub(), case.release, done.url, lambda _: None)
    target.server.clear_faults()
    assert discussions(target) == [(1, "open")]
    close_outdated(target.hub(), target.target, "faceage", case.release.identity, "https://here", said.append)
    assert discussions(target) == [(1, "closed")] and "https://here" in comments(target, 1)[-1] and len(said) == 1


def test_a_release_that_goes_out_in_part_leaves_the_word_about_the_other_part(target: Here) -> None:
    models = {"model.onnx": b"bad" * 1000, "good.onnx": b"good" * 1000}
    case = target.case("1", models=models, withheld=("model.onnx",))
    report_withheld(target.hub(), case.release, title="Release withheld", text="model.onnx failed.")
    assert target.publish(case).kind == "pull-request"
    close_outdated(target.hub(), target.target, "faceage", case.release.identity, "https://here", lambda _: None)
    close_outdated(target.hub(), target.target, "another", "0" * 64, "https://here", lambda _: None)
    assert discussions(target) == [(1, "open")]


def test_a_person_who_closes_it_is_heard(target: Here) -> None:
    first = report(target)
    target.api().change_discussion_status(target.target, 1, "closed")
    again = report(target)
    assert (again.number, again.action, again.is_open) == (1, "found", False)
    assert find_notice(target.hub(), target.target, first.identity) is not None


def test_what_a_stranger_says_counts_for_nothing(target: Here) -> None:
    identity = target.case().release.identity
    trailers = f"Release-Id: {identity}\nRecipe: faceage"
    target.api("alice").create_discussion(target.target, "Withheld", description=trailers)
    assert find_notice(target.hub(), target.target, identity) is None
    notice = report(target)
    assert (notice.number, notice.action) == (2, "opened")
    target.api("alice").comment_discussion(target.target, 2, comment=f"{trailers}\nClosed-By-Bot: passed")
    assert report(target).action == "found"


def test_no_repository_is_created_for_it(here: Here) -> None:
    release = here.case(withheld=("model.onnx",)).release
    assert report_withheld(here.hub(), release, title="Withheld", text="x") is None
    assert not here.api().repo_exists(here.target)


@pytest.mark.parametrize("kind", ["lost", "reset", "status"])
@pytest.mark.parametrize("path", ["discussions", "discussions/1/comment", "discussions/1/status", "discussions/1"])
def test_faults_repeat_nothing(target: Here, path: str, kind: str) -> None:
    more: dict[str, Any] = {"method": "GET"} if path == "discussions/1" else {"method": "POST"}
    target.server.fault(kind, f"/api/models/{target.target}/{path}", **more)
    report(target, "1")
    report(target, "2")
    passed = target.case("3")
    done = target.publish(passed)
    close_notices(target.hub(), passed.release, done.url, lambda _: None)
    assert sum(fault["struck"] for fault in target.server.faults()) == 1
    assert discussions(target) == [(1, "closed")]
    assert len(comments(target, 1)) == 3
