"""Publishing exactly once, with the real client, against an embedded Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_cases import QUICK, Case, Fault, faulty, make_case, sha256
from huggingface_hub import CommitOperationAdd

from bot.errors import HubError, OverwriteError, StepError, VerificationError, WithheldError
from bot.hub.client import Hub, Refused
from bot.hub.publish import Publication, find, publish, read_release
from bot.hub.verify import confirm, require, verify

Clients = Callable[[str], Any]


def own_prs(api: Any, repo: str) -> list[tuple[int, str]]:
    return sorted((item.num, item.status) for item in api.get_repo_discussions(repo, discussion_type="pull_request"))


def go(hub: Hub, case: Case, mode: str = "pull-request", **more: Any) -> Publication:
    return publish(hub, **case.arguments(mode, **more))


def merge(api: Any, repo: str, number: int) -> None:
    api.merge_pull_request(repo, number)


def test_first_publication_opens_one_pull_request_and_verifies(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients, upload: str
) -> None:
    case = make_case(tmp_path / "a", target, models={"model.onnx": upload.encode() * 4_000_000})
    steps: list[str] = []
    done = go(hub, case, on_step=steps.append)
    assert (done.kind, done.number, done.revision) == ("pull-request", 1, "refs/pr/1")
    assert done.uploaded_bytes == sum(path.stat().st_size for path in case.folder.rglob("*") if path.is_file())
    assert done.url == f"{hub.endpoint}/{target}/discussions/1"
    found = confirm(hub, case.release, done, tmp_path / "cache")
    assert found.ok and found.release == case.release
    assert {check.path for check in found.files} == {
        path.relative_to(case.folder).as_posix() for path in case.folder.rglob("*") if path.is_file()
    }
    details = as_user("local-user").get_discussion_details(target, 1)
    assert details.title == case.title
    assert f"Release-Id: {case.release.identity}" in details.events[0].content
    assert f"Recipe: {case.release.recipe}" in details.events[0].content
    assert steps


def test_second_run_does_nothing_and_sends_nothing(server: Any, hub: Hub, target: str, tmp_path: Path) -> None:
    case = make_case(tmp_path / "a", target)
    first = go(hub, case)
    with faulty(server.endpoint) as watched:
        again = go(Hub(watched.endpoint, server.token, policy=QUICK), case)
        assert watched.writes() == []
        there = find(
            Hub(watched.endpoint, server.token, policy=QUICK), target, case.release.identity, mode="pull-request"
        )
    assert (again.kind, again.number, again.commit, again.uploaded_bytes) == ("pull-request", 1, first.commit, 0)
    assert there is not None and there.commit == first.commit


def test_after_the_merge_nothing_is_left_to_do(hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    case = make_case(tmp_path / "a", target)
    go(hub, case)
    merge(as_user("local-user"), target, 1)
    done = go(hub, case)
    assert done.kind == "nothing" and "holds this release" in done.reason
    assert read_release(hub, target) == case.release
    require(verify(hub, target, "main", tmp_path / "cache"))


def test_commit_mode_commits_once(hub: Hub, target: str, tmp_path: Path, as_user: Clients, upload: str) -> None:
    case = make_case(tmp_path / "a", target)
    done = go(hub, case, "commit")
    assert done.kind == "commit" and done.uploaded_bytes > 0
    confirm(hub, case.release, done, tmp_path / "cache")
    assert as_user("local-user").model_info(target).sha == done.commit
    before = len(as_user("local-user").list_repo_commits(target))
    assert go(hub, case, "commit").kind == "nothing"
    assert len(as_user("local-user").list_repo_commits(target)) == before
    assert own_prs(as_user("local-user"), target) == []
    newer = make_case(tmp_path / "b", target, seed="2")
    assert go(hub, newer, "commit").kind == "commit"
    back = go(hub, case, "commit")
    assert back.kind == "nothing" and "replaced since" in back.reason
    assert go(hub, case, "commit", reopen=True).kind == "commit"


def test_closed_by_a_person_is_respected_until_reopened(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    case = make_case(tmp_path / "a", target)
    go(hub, case)
    as_user("local-user").change_discussion_status(target, 1, "closed", comment="no thanks")
    done = go(hub, case)
    assert (done.kind, done.number) == ("nothing", 1) and "closed by a person" in done.reason
    there = find(hub, target, case.release.identity, mode="pull-request")
    assert there is not None and there.kind == "nothing"
    assert go(hub, case, "commit").kind == "nothing"
    again = go(hub, case, reopen=True)
    assert (again.kind, again.number) == ("pull-request", 1)
    assert own_prs(as_user("local-user"), target) == [(1, "open")]


def test_newer_release_supersedes_older_pull_requests(hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    old, new = make_case(tmp_path / "a", target), make_case(tmp_path / "b", target, seed="2")
    go(hub, old)
    done = go(hub, new)
    api = as_user("local-user")
    assert done.number == 2 and own_prs(api, target) == [(1, "closed"), (2, "open")]
    comments = [event.content for event in api.get_discussion_details(target, 1).events if event.type == "comment"]
    assert f"{hub.endpoint}/{target}/discussions/2" in comments[-1]
    # The bot closed it itself: going back to the old release is no overruling of a person.
    assert go(hub, old).number == 3
    assert own_prs(api, target) == [(1, "closed"), (2, "closed"), (3, "open")]


def test_a_stranger_who_copies_the_trailer_has_no_effect(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    case = make_case(tmp_path / "a", target)
    alice, api = as_user("alice"), as_user("local-user")
    api.create_repo(target)
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    forged = [CommitOperationAdd("release.json", case.release.to_json())]
    for _ in range(2):
        alice.create_commit(target, forged, commit_message="Release", commit_description=trailers, create_pr=True)
        forged = [CommitOperationAdd("release.json", case.release.to_json())]
    alice.change_discussion_status(target, 2, "closed")
    done = go(hub, case)
    assert (done.kind, done.number) == ("pull-request", 3)
    assert own_prs(api, target) == [(1, "open"), (2, "closed"), (3, "open")]
    # A stranger's comment with the bot's own marks changes nothing either.
    alice.comment_discussion(target, 3, comment=f"Closed-By-Bot: superseded\n{trailers}")
    api.change_discussion_status(target, 3, "closed")
    assert "closed by a person" in go(hub, case).reason


def test_a_persons_commit_to_the_pull_request_stays(hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    case = make_case(tmp_path / "a", target)
    go(hub, case)
    card = b"---\nlicense: apache-2.0\n---\n# Better words\n"
    as_user("alice").create_commit(
        target, [CommitOperationAdd("README.md", card)], commit_message="Better words", revision="refs/pr/1"
    )
    done = go(hub, case)
    assert (done.kind, done.number, done.edited, done.uploaded_bytes) == ("pull-request", 1, ("README.md",), 0)
    assert hub.read_bytes(target, "refs/pr/1", "README.md") == card
    assert confirm(hub, case.release, done, tmp_path / "cache").ok
    # Anyone who was not told of the edit sees it.
    with pytest.raises(VerificationError, match=r"README\.md has the sha256"):
        require(verify(hub, target, "refs/pr/1", tmp_path / "other"))


def test_what_the_bot_itself_left_incomplete_is_completed(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    case = make_case(tmp_path / "a", target)
    go(hub, case)
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    as_user("local-user").create_commit(
        target,
        [CommitOperationAdd("model.onnx", b"half")],
        commit_message="Release",
        commit_description=trailers,
        revision="refs/pr/1",
    )
    assert find(hub, target, case.release.identity, mode="pull-request") is None
    done = go(hub, case)
    assert done.number == 1 and done.uploaded_bytes == len((case.folder / "model.onnx").read_bytes())
    require(verify(hub, target, "refs/pr/1", tmp_path / "cache"))


def test_other_figures_of_the_same_release_make_no_commit(hub: Hub, target: str, tmp_path: Path) -> None:
    first = go(hub, make_case(tmp_path / "a", target))
    again = go(hub, make_case(tmp_path / "b", target, bot_version="0.1.1"))
    assert (again.number, again.commit, again.uploaded_bytes) == (1, first.commit, 0)


def test_frozen_file_is_never_replaced(hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    old = make_case(tmp_path / "a", target, models={"pinned.onnx": b"old"}, frozen=("pinned.onnx",))
    go(hub, old)
    merge(as_user("local-user"), target, 1)
    new = make_case(tmp_path / "b", target, seed="2", models={"pinned.onnx": b"new"})
    for mode in ("pull-request", "commit"):
        with pytest.raises(OverwriteError) as caught:
            go(hub, new, mode)
        assert caught.value.exit_code == 6
        assert all(word in str(caught.value) for word in ("pinned.onnx", "frozen", sha256(b"old"), sha256(b"new")))
    assert own_prs(as_user("local-user"), target) == [(1, "merged")]


def test_a_repo_made_by_hand_is_taken_over_without_touching_it(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    api = as_user("local-user")
    api.create_repo(target)
    pinned = b"pinned" * 2_000_000
    by_hand = {
        "pinned.onnx": pinned,
        "README.md": b"# by hand\n",
        "convert.py": b"print()\n",
        "LICENSE": b"License text\n",
    }
    api.create_commit(
        target, [CommitOperationAdd(name, data) for name, data in by_hand.items()], commit_message="By hand"
    )
    before = hub.tree(target, "main")
    models = {"pinned.onnx": pinned, "new.onnx": b"new"}
    case = make_case(tmp_path / "a", target, models=models, frozen=("pinned.onnx",), absent=("pinned.onnx",))
    with pytest.raises(OverwriteError, match=r"README\.md.*not published by the bot"):
        go(hub, case, "commit")
    done = go(hub, case)
    require(verify(hub, target, done.revision, tmp_path / "cache"))
    after = hub.tree(target, "refs/pr/1")
    assert {path for path in before if after.get(path) != before[path]} == {"README.md"}
    assert hub.tree(target, "main") == before
    merge(api, target, 1)
    assert hub.tree(target, "main")["pinned.onnx"] == before["pinned.onnx"]


def test_a_frozen_file_that_is_not_as_described_stops(hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    as_user("local-user").create_repo(target)
    case = make_case(
        tmp_path / "a", target, models={"pinned.onnx": b"x"}, frozen=("pinned.onnx",), absent=("pinned.onnx",)
    )
    with pytest.raises(OverwriteError, match="does not hold it"):
        go(hub, case)
    as_user("local-user").create_commit(target, [CommitOperationAdd("pinned.onnx", b"y")], commit_message="By hand")
    with pytest.raises(OverwriteError, match=sha256(b"y")):
        go(hub, case)


@pytest.mark.parametrize("path", ["LICENSE", "model.onnx", "release.json", "release/recipe.yaml", "source/config.json"])
def test_files_of_others_are_refused(hub: Hub, target: str, tmp_path: Path, as_user: Clients, path: str) -> None:
    api = as_user("local-user")
    api.create_repo(target)
    api.create_commit(target, [CommitOperationAdd(path, b"{}")], commit_message="By hand")
    with pytest.raises(OverwriteError, match=sha256(b"{}")):
        go(hub, make_case(tmp_path / "a", target))
    assert own_prs(api, target) == []


def test_a_file_that_a_person_changed_after_the_merge_is_refused(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    api = as_user("local-user")
    go(hub, make_case(tmp_path / "a", target))
    merge(api, target, 1)
    api.create_commit(target, [CommitOperationAdd("model.onnx", b"by hand")], commit_message="By hand")
    with pytest.raises(OverwriteError, match="changed by somebody else since"):
        go(hub, make_case(tmp_path / "b", target, seed="2"))


def test_own_unchanged_files_may_be_replaced(hub: Hub, target: str, tmp_path: Path) -> None:
    first = go(hub, make_case(tmp_path / "a", target), "commit")
    second = go(hub, make_case(tmp_path / "b", target, seed="2"), "commit")
    assert second.kind == "commit" and hub.read_bytes(target, first.commit, "model.onnx").startswith(b"model 1")
    assert hub.read_bytes(target, "main", "model.onnx").startswith(b"model 2")


def test_the_card_is_replaced_by_a_commit_only_if_it_is_the_bots_own(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    go(hub, make_case(tmp_path / "a", target), "commit")
    as_user("local-user").create_commit(target, [CommitOperationAdd("README.md", b"# mine\n")], commit_message="Mine")
    with pytest.raises(OverwriteError, match="pull-request"):
        go(hub, make_case(tmp_path / "b", target, seed="2"), "commit")
    assert go(hub, make_case(tmp_path / "b", target, seed="2")).kind == "pull-request"


def test_two_recipes_for_one_target_are_refused(hub: Hub, target: str, tmp_path: Path) -> None:
    go(hub, make_case(tmp_path / "a", target), "commit")
    with pytest.raises(OverwriteError, match="target of the recipe faceage"):
        go(hub, make_case(tmp_path / "b", target, seed="2", recipe="other"))


def test_random_weights_go_to_an_embedded_hub_only(
    hub: Hub, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(tmp_path / "a", target, random_weights=True)
    with faulty(hub.endpoint, Fault("GET", "embedded-hub", 404)) as other:
        elsewhere = Hub(other.endpoint, None, policy=QUICK)
        with pytest.raises(OverwriteError, match="random"):
            go(elsewhere, case)
        assert [path for _, path, _ in other.seen] == ["/api/embedded-hub"]
    assert go(hub, case).kind == "pull-request"


def test_without_a_token_nothing_is_published(server: Any, target: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no token"):
        go(Hub(server.endpoint, None, policy=QUICK), make_case(tmp_path / "a", target))


def test_a_token_without_the_right_says_which_is_missing(server: Any, target: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        go(Hub(server.endpoint, server.tokens["reader"], policy=QUICK), make_case(tmp_path / "a", target))
    assert "settings/tokens" in caught.value.remedy and caught.value.exit_code == 7


@pytest.mark.parametrize("broken", ["missing", "other", "withheld", "link", "record"])
def test_a_folder_that_is_not_whole_is_not_published(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients, broken: str
) -> None:
    case = make_case(tmp_path / "a", target)
    if broken == "missing":
        (case.folder / "model.onnx").unlink()
    elif broken == "other":
        (case.folder / "model.onnx").write_bytes(b"other")
    elif broken == "withheld":
        case.release = case.release.model_copy(
            update={
                "artifacts": (
                    *case.release.artifacts,
                    case.release.artifacts[0].model_copy(update={"name": "x", "file": "LICENSE"}),
                ),
                "withheld": ("x",),
            }
        )
        (case.folder / "release.json").write_bytes(case.release.to_json())
    elif broken == "link":
        (case.folder / "source/link").symlink_to("/etc/passwd")
    else:
        (case.folder / "release.json").write_bytes(b"{}")
    with pytest.raises(StepError):
        go(hub, case)
    assert not as_user("local-user").repo_exists(target)


def test_nothing_publishable_is_withheld(hub: Hub, target: str, tmp_path: Path) -> None:
    with pytest.raises(WithheldError):
        go(hub, make_case(tmp_path / "a", target, withheld=("model.onnx",)))


def test_find_says_none_for_a_target_that_does_not_exist(hub: Hub, target: str) -> None:
    assert find(hub, target, "0" * 64, mode="pull-request") is None
    assert read_release(hub, target) is None


# -- faults ------------------------------------------------------------------------------------------------------------

COMMIT = r"/commit/"


def end_state(api: Any, repo: str, mode: str) -> None:
    """The one right end state, and nothing beside it."""
    prs = own_prs(api, repo)
    if mode == "pull-request":
        assert [status for _, status in prs].count("open") == 1
    else:
        assert prs == []
        assert sum("Release-Id" in commit.message for commit in api.list_repo_commits(repo)) == 1


@pytest.mark.parametrize("mode", ["pull-request", "commit"])
@pytest.mark.parametrize("kind", ["after", "reset", "close", "truncate", 500, 502, 503, 504, 429, 408, 409, 412])
def test_a_commit_with_a_lost_or_bad_answer_lands_once(
    server: Any, target: str, tmp_path: Path, as_user: Clients, kind: Any, mode: str
) -> None:
    fault = Fault("POST", COMMIT, kind)
    with faulty(server.endpoint, fault) as between:
        hub = Hub(between.endpoint, server.token, policy=QUICK)
        case = make_case(tmp_path / "a", target)
        done = go(hub, case, mode)
        assert fault.fired == 1
        assert done.kind == mode and done.uploaded_bytes > 0
        confirm(hub, case.release, done, tmp_path / "cache")
    api = as_user("local-user")
    end_state(api, target, mode)
    assert [status for _, status in own_prs(api, target)] == (["open"] if mode == "pull-request" else [])


@pytest.mark.parametrize("mode", ["pull-request", "commit"])
@pytest.mark.parametrize(
    "path",
    [
        "/api/models/[^/]+/[^/?]+$",
        "/tree/",
        "discussions",
        "/preupload/",
        "validate-yaml",
        "repos/create",
        "whoami",
        "/resolve/",
        "discussions/1",
        "/commits/",
        "xet-write-token",
    ],
)
@pytest.mark.parametrize("kind", [503, "reset", "after"])
def test_passing_faults_elsewhere_do_no_harm(
    server: Any, target: str, tmp_path: Path, as_user: Clients, path: str, kind: Any, mode: str
) -> None:
    fault = Fault("", path, kind, times=2)
    with faulty(server.endpoint, fault) as between:
        hub = Hub(between.endpoint, server.token, policy=QUICK)
        case = make_case(tmp_path / "a", target, models={"model.onnx": target.encode() * 800_000})
        done = go(hub, case, mode)
        confirm(hub, case.release, done, tmp_path / "cache")
    end_state(as_user("local-user"), target, mode)
    if not (mode == "commit" and path in ("discussions/1",)):
        assert fault.fired > 0


def test_a_listing_that_fails_stops_and_opens_nothing(
    server: Any, target: str, tmp_path: Path, as_user: Clients
) -> None:
    case = make_case(tmp_path / "a", target)
    as_user("local-user").create_repo(target)
    with faulty(server.endpoint, Fault("GET", "discussions", 500, times=99)) as between:
        with pytest.raises(HubError) as caught:
            go(Hub(between.endpoint, server.token, policy=QUICK), case)
        assert between.writes() == []
    assert caught.value.exit_code == 7 and own_prs(as_user("local-user"), target) == []


def test_a_hub_that_never_answers_a_commit_ends_in_an_error(
    server: Any, target: str, tmp_path: Path, as_user: Clients
) -> None:
    with faulty(server.endpoint, Fault("POST", COMMIT, 503, times=99)) as between:
        with pytest.raises(HubError, match="Tried 5 times"):
            go(Hub(between.endpoint, server.token, policy=QUICK), make_case(tmp_path / "a", target))
    assert own_prs(as_user("local-user"), target) == []


def test_a_head_that_moves_under_a_commit_is_read_again(
    server: Any, target: str, tmp_path: Path, as_user: Clients
) -> None:
    api, moved = as_user("local-user"), []

    def move(method: str, path: str) -> None:
        if COMMIT in path and not moved:
            moved.append(api.create_commit(target, [CommitOperationAdd("note.txt", b"hi")], commit_message="Note"))

    with faulty(server.endpoint) as between:
        between.before = move
        done = go(Hub(between.endpoint, server.token, policy=QUICK), make_case(tmp_path / "a", target), "commit")
    assert done.kind == "commit" and moved
    assert {"note.txt", "model.onnx"} <= set(api.list_repo_files(target))
    end_state(api, target, "commit")


def test_a_file_that_appears_in_between_is_not_overwritten(
    server: Any, target: str, tmp_path: Path, as_user: Clients
) -> None:
    api, moved = as_user("local-user"), []

    def move(method: str, path: str) -> None:
        if COMMIT in path and not moved:
            moved.append(api.create_commit(target, [CommitOperationAdd("LICENSE", b"theirs")], commit_message="Theirs"))

    with faulty(server.endpoint) as between:
        between.before = move
        with pytest.raises(OverwriteError, match="LICENSE"):
            go(Hub(between.endpoint, server.token, policy=QUICK), make_case(tmp_path / "a", target), "commit")
    assert moved


def test_a_rival_that_opened_first_wins(server: Any, hub: Hub, target: str, tmp_path: Path, as_user: Clients) -> None:
    """Another bot of the same account opens the same release between our look and our commit."""
    case, rival = make_case(tmp_path / "a", target), make_case(tmp_path / "b", target)
    opened: list[Publication] = []

    def race(method: str, path: str) -> None:
        if COMMIT in path and not opened:
            opened.append(go(hub, rival))

    with faulty(server.endpoint) as between:
        between.before = race
        done = go(Hub(between.endpoint, server.token, policy=QUICK), case)
    assert opened[0].number == 1 and done.number == 1
    assert own_prs(as_user("local-user"), target) == [(1, "open"), (2, "closed")]
    assert go(hub, case).number == 1


def test_a_rival_that_was_left_open_is_closed_by_whoever_comes_next(
    hub: Hub, target: str, tmp_path: Path, as_user: Clients
) -> None:
    case = make_case(tmp_path / "a", target)
    go(hub, case)
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    as_user("local-user").create_commit(
        target, [CommitOperationAdd("x", b"")], commit_message="Rival", commit_description=trailers, create_pr=True
    )
    assert find(hub, target, case.release.identity, mode="pull-request") is None
    assert go(hub, case).number == 1
    assert own_prs(as_user("local-user"), target) == [(1, "open"), (2, "closed")]
