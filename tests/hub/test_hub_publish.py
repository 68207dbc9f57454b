"""Publishing exactly once, with the real client, against an embedded Hub."""

from __future__ import annotations

import pytest
from hub_cases import sha256, watched
from hub_here import Here

from bot.errors import HubError, OverwriteError, StepError, VerificationError, WithheldError
from bot.hub.client import Refused
from bot.hub.publish import Publication, find, read_release
from bot.hub.verify import confirm, require, verify


def files_of(case: object) -> dict[str, int]:
    folder = case.folder  # type: ignore[attr-defined]
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_first_publication_opens_one_pull_request_and_verifies(here: Here, upload: str) -> None:
    case, steps = here.case(models={"model.onnx": upload.encode() * 4_000_000}), []
    done = here.publish(case, on_step=steps.append)
    assert (done.kind, done.number, done.revision) == ("pull-request", 1, "refs/pr/1")
    assert done.uploaded_bytes == sum(files_of(case).values())
    assert done.url == f"{here.server.endpoint}/{here.target}/discussions/1"
    found = confirm(here.hub(), case.release, done, here.cache())
    assert found.ok and found.release == case.release
    assert {check.path for check in found.files} == set(files_of(case))
    details = here.api().get_discussion_details(here.target, 1)
    assert details.title == case.title
    for trailer in (f"Release-Id: {case.release.identity}", "Recipe: faceage"):
        assert trailer in details.events[0].content
        assert trailer in here.api().list_repo_commits(here.target, revision="refs/pr/1")[0].message
    assert steps


def test_second_run_makes_no_write_and_sends_nothing(here: Here) -> None:
    case = here.case()
    first = here.publish(case)
    with watched(here.server.endpoint) as proxy:
        again = here.publish(case, hub=here.hub(endpoint=proxy.endpoint))
        there = find(here.hub(endpoint=proxy.endpoint), here.target, case.release.identity, mode="pull-request")
        assert proxy.writes() == []
    assert (again.kind, again.number, again.commit, again.uploaded_bytes) == ("pull-request", 1, first.commit, 0)
    assert there is not None and there.commit == first.commit


def test_after_the_merge_nothing_is_left_to_do(here: Here) -> None:
    case = here.case()
    here.publish(case)
    here.api().merge_pull_request(here.target, 1)
    done = here.publish(case)
    assert done.kind == "nothing" and "holds this release" in done.reason
    assert read_release(here.hub(), here.target) == case.release
    require(verify(here.hub(), here.target, "main", here.cache()))


def test_a_merged_release_that_was_replaced_does_not_come_back_by_itself(here: Here) -> None:
    old, new = here.case("1"), here.case("2")
    for number, case in ((1, old), (2, new)):
        here.publish(case)
        here.api().merge_pull_request(here.target, number)
    done = here.publish(old)
    assert (done.kind, done.number) == ("nothing", 1) and "replaced since" in done.reason
    assert here.publish(old, reopen=True).number == 3


def test_commit_mode_commits_once(here: Here, upload: str) -> None:
    case, api = here.case(), here.api()
    done = here.publish(case, "commit")
    assert done.kind == "commit" and done.uploaded_bytes > 0
    confirm(here.hub(), case.release, done, here.cache())
    assert api.model_info(here.target).sha == done.commit
    before = len(api.list_repo_commits(here.target))
    assert here.publish(case, "commit").kind == "nothing"
    assert len(api.list_repo_commits(here.target)) == before and here.pull_requests() == []
    assert here.publish(here.case("2"), "commit").kind == "commit"
    back = here.publish(case, "commit")
    assert back.kind == "nothing" and "replaced since" in back.reason
    assert here.publish(case, "commit", reopen=True).kind == "commit"


def test_a_commit_supersedes_open_pull_requests(here: Here) -> None:
    case = here.case()
    here.publish(case)
    done = here.publish(case, "commit")
    assert done.kind == "commit" and here.pull_requests() == [(1, "closed")]


def test_closed_by_a_person_is_respected_until_reopened(here: Here) -> None:
    case = here.case()
    here.publish(case)
    here.api().change_discussion_status(here.target, 1, "closed", comment="no thanks")
    done = here.publish(case)
    assert (done.kind, done.number) == ("nothing", 1) and "closed by a person" in done.reason
    there = find(here.hub(), here.target, case.release.identity, mode="pull-request")
    assert there is not None and there.kind == "nothing"
    assert here.publish(case, "commit").kind == "nothing"
    assert here.publish(here.case("2")).number == 2, "another release is not what the person closed"
    here.api().change_discussion_status(here.target, 2, "closed")
    again = here.publish(case, reopen=True)
    assert (again.kind, again.number) == ("pull-request", 1)
    assert here.pull_requests() == [(1, "open"), (2, "closed")]


def test_newer_release_supersedes_older_pull_requests(here: Here) -> None:
    old, new = here.case("1"), here.case("2")
    here.publish(old)
    assert here.publish(new).number == 2
    assert here.pull_requests() == [(1, "closed"), (2, "open")]
    events = here.api().get_discussion_details(here.target, 1).events
    comments = [event.content for event in events if event.type == "comment"]
    assert f"{here.server.endpoint}/{here.target}/discussions/2" in comments[-1]
    # The bot closed it itself: going back to the old release overrules no person.
    assert here.publish(old).number == 3
    assert here.pull_requests() == [(1, "closed"), (2, "closed"), (3, "open")]


def test_a_stranger_who_copies_the_trailers_has_no_effect(here: Here) -> None:
    case = here.case()
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    here.hand_made({"note.txt": b"mine"})
    for _ in range(2):
        record = {"release.json": case.release.to_json()}
        here.hand_made(record, "alice", commit_description=trailers, create_pr=True)
    here.api("alice").change_discussion_status(here.target, 2, "closed")
    done = here.publish(case)
    assert (done.kind, done.number) == ("pull-request", 3)
    assert here.pull_requests() == [(1, "open"), (2, "closed"), (3, "open")]
    # Nor do the bot's own marks in a stranger's comment: this is still a person's closing.
    here.api("alice").comment_discussion(here.target, 3, comment=f"{trailers}\nClosed-By-Bot: superseded")
    here.api().change_discussion_status(here.target, 3, "closed")
    assert "closed by a person" in here.publish(case).reason


def test_a_strangers_commit_with_our_trailer_on_main_has_no_effect(here: Here) -> None:
    case = here.case()
    here.hand_made({"note.txt": b"mine"}, "alice", commit_description=f"Release-Id: {case.release.identity}")
    assert here.publish(case, "commit").kind == "commit"


def test_a_persons_commit_to_the_pull_request_stays(here: Here) -> None:
    case, hub = here.case(), here.hub()
    here.publish(case)
    card = b"---\nlicense: apache-2.0\n---\n# Better words\n"
    here.hand_made({"README.md": card}, "alice", revision="refs/pr/1")
    done = here.publish(case)
    assert (done.kind, done.number, done.edited, done.uploaded_bytes) == ("pull-request", 1, ("README.md",), 0)
    assert hub.read_bytes(here.target, "refs/pr/1", "README.md") == card
    assert confirm(hub, case.release, done, here.cache()).ok
    # Anyone who was not told of the edit sees it.
    with pytest.raises(VerificationError, match=r"README\.md has the sha256"):
        require(verify(hub, here.target, "refs/pr/1", here.cache()))


def test_what_the_bot_itself_left_incomplete_is_completed(here: Here) -> None:
    case = here.case()
    here.publish(case)
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    here.hand_made({"model.onnx": b"half"}, commit_description=trailers, revision="refs/pr/1")
    here.hand_made({"LICENSE": b"theirs"}, "alice", revision="refs/pr/1")
    assert find(here.hub(), here.target, case.release.identity, mode="pull-request") is None
    done = here.publish(case)
    assert done.number == 1 and done.uploaded_bytes == files_of(case)["model.onnx"]
    found = verify(here.hub(), here.target, "refs/pr/1", here.cache())
    assert [check.path for check in found.files if check.status != "ok"] == ["LICENSE"]
    assert here.hub().read_bytes(here.target, "refs/pr/1", "LICENSE") == b"theirs"


def test_a_release_is_known_by_its_commit_where_the_description_does_not_tell(here: Here) -> None:
    """As if somebody had edited the description, or a Hub did not take it over from the commit."""
    case, api = here.case(), here.api()
    here.hand_made({"note.txt": b"mine"})
    here.publish(case)
    whole = {path: (case.folder / path).read_bytes() for path in files_of(case)}
    api.change_discussion_status(here.target, 1, "closed", comment="Closed-By-Bot: superseded")
    api.create_pull_request(here.target, title="Release", description="Please merge.")
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    here.hand_made(whole, commit_description=trailers, revision="refs/pr/2")
    done = here.publish(case)
    assert (done.number, done.uploaded_bytes) == (2, 0)


def test_a_pull_request_that_a_person_opened_with_the_same_account_is_left_alone(here: Here) -> None:
    """Its history holds the last release's commit, which is not its own."""
    here.publish(here.case("1"), "commit")
    here.hand_made({"note.txt": b"mine"}, create_pr=True)
    here.api().create_pull_request(here.target, title="Idea", description="An idea.")
    assert here.publish(here.case("2")).number == 3
    assert [status for _, status in here.pull_requests()] == ["open", "draft", "open"]


def test_other_figures_of_the_same_release_make_no_commit(here: Here) -> None:
    first = here.publish(here.case())
    again = here.publish(here.case(bot_version="0.1.1"))
    assert (again.number, again.commit, again.uploaded_bytes) == (1, first.commit, 0)


def test_a_frozen_file_is_never_replaced(here: Here) -> None:
    here.publish(here.case(models={"pinned.onnx": b"old"}, frozen=("pinned.onnx",)))
    here.api().merge_pull_request(here.target, 1)
    new = here.case("2", models={"pinned.onnx": b"new"})
    for mode in ("pull-request", "commit"):
        with pytest.raises(OverwriteError) as caught:
            here.publish(new, mode)
        assert caught.value.exit_code == 6
        for word in ("pinned.onnx", "frozen", sha256(b"old"), sha256(b"new")):
            assert word in str(caught.value)
    assert here.pull_requests() == [(1, "merged")]


def test_a_repo_made_by_hand_is_taken_over_without_touching_it(here: Here) -> None:
    pinned, hub = b"pinned" * 2_000_000, here.hub()
    readme = b"---\nlicense: apache-2.0\n---\n# By hand\n"
    here.hand_made({"pinned.onnx": pinned, "README.md": readme, "convert.py": b"1", "LICENSE": b"License text\n"})
    before = hub.tree(here.target, "main")
    models = {"pinned.onnx": pinned, "new.onnx": b"new"}
    case = here.case(models=models, frozen=("pinned.onnx",), absent=("pinned.onnx",))
    with pytest.raises(OverwriteError, match=r"README\.md: was not published by the bot"):
        here.publish(case, "commit")
    done = here.publish(case)
    require(verify(hub, here.target, done.revision, here.cache()))
    after = hub.tree(here.target, "refs/pr/1")
    assert {path for path in before if after.get(path) != before[path]} == {"README.md"}
    assert hub.tree(here.target, "main") == before
    here.api().merge_pull_request(here.target, 1)
    assert hub.tree(here.target, "main")["pinned.onnx"] == before["pinned.onnx"]
    assert hub.read_bytes(here.target, "main", "convert.py") == b"1"


def test_a_frozen_file_that_is_not_as_described_stops(here: Here) -> None:
    here.hand_made({"note.txt": b"mine"})
    case = here.case(models={"pinned.onnx": b"x"}, frozen=("pinned.onnx",), absent=("pinned.onnx",))
    with pytest.raises(OverwriteError, match="does not hold it"):
        here.publish(case)
    here.hand_made({"pinned.onnx": b"y"})
    with pytest.raises(OverwriteError, match=sha256(b"y")):
        here.publish(case)


@pytest.mark.parametrize("path", ["LICENSE", "model.onnx", "release.json", "release/recipe.yaml", "source/config.json"])
def test_files_of_others_are_refused(here: Here, path: str) -> None:
    here.hand_made({path: b"{}"})
    with pytest.raises(OverwriteError, match=sha256(b"{}")):
        here.publish(here.case())
    assert here.pull_requests() == []


def test_a_file_that_a_person_changed_after_the_merge_is_refused(here: Here) -> None:
    here.publish(here.case())
    here.api().merge_pull_request(here.target, 1)
    here.hand_made({"model.onnx": b"by hand"})
    with pytest.raises(OverwriteError, match="changed by somebody else since"):
        here.publish(here.case("2"))


def test_own_unchanged_files_may_be_replaced_and_the_old_stay_in_the_history(here: Here) -> None:
    first = here.publish(here.case("1"), "commit")
    assert here.publish(here.case("2"), "commit").kind == "commit"
    assert here.hub().read_bytes(here.target, first.commit, "model.onnx").startswith(b"model 1")
    assert here.hub().read_bytes(here.target, "main", "model.onnx").startswith(b"model 2")


def test_unchanged_files_are_not_sent_again(here: Here) -> None:
    models = {"model.onnx": b"same" * 3_000_000}
    here.publish(here.case("1", models=models), "commit")
    assert here.publish(here.case("2", models=models), "commit").uploaded_bytes < 100_000


def test_a_commit_replaces_the_card_only_if_it_is_the_bots_own(here: Here) -> None:
    here.publish(here.case("1"), "commit")
    here.hand_made({"README.md": b"---\nlicense: mit\n---\n# mine\n"})
    with pytest.raises(OverwriteError, match="pull-request"):
        here.publish(here.case("2"), "commit")
    assert here.publish(here.case("2")).kind == "pull-request"


def test_two_recipes_for_one_target_are_refused(here: Here) -> None:
    here.publish(here.case(), "commit")
    with pytest.raises(OverwriteError, match="target of the recipe faceage"):
        here.publish(here.case("2", recipe="other"))


def test_random_weights_go_to_an_embedded_hub_only(here: Here) -> None:
    case = here.case(random_weights=True)
    here.server.fault("status", "/api/embedded-hub", status=404)
    with watched(here.server.endpoint) as proxy:
        with pytest.raises(OverwriteError, match="random"):
            here.publish(case, hub=here.hub(endpoint=proxy.endpoint))
        assert [path for _, path, _ in proxy.seen] == ["/api/embedded-hub"]
    assert here.publish(case).kind == "pull-request"


def test_a_pull_request_that_the_hub_shows_as_somebody_elses_is_opened_once(here: Here) -> None:
    """As for an account that was renamed, or a publisher whose commits are a system user's."""
    here.server.fault("status", "/api/whoami-v2", status=200, body='{"type": "user", "name": "renamed"}', times=0)
    with pytest.raises(HubError, match=r"#1 was opened, and the Hub says that local-user .* account is renamed"):
        here.publish(here.case())
    assert here.pull_requests() == [(1, "open")]


def test_without_a_token_nothing_is_published(here: Here) -> None:
    with pytest.raises(Refused, match="no token"):
        here.publish(here.case(), hub=here.hub(None))


def test_a_token_without_the_right_says_where_to_get_it(here: Here) -> None:
    with pytest.raises(Refused) as caught:
        here.publish(here.case(), hub=here.hub("reader"))
    assert "settings/tokens" in caught.value.remedy and caught.value.exit_code == 7


@pytest.mark.parametrize("broken", ["missing", "other", "withheld", "link", "record"])
def test_a_folder_that_is_not_whole_is_not_published(here: Here, broken: str) -> None:
    case = here.case()
    if broken == "missing":
        (case.folder / "model.onnx").unlink()
    elif broken == "other":
        (case.folder / "model.onnx").write_bytes(b"other")
    elif broken == "withheld":
        held = case.release.artifacts[0].model_copy(update={"name": "x", "file": "held.onnx"})
        more = {"artifacts": (*case.release.artifacts, held), "withheld": ("x",)}
        case.release = case.release.model_copy(update=more)
        (case.folder / "release.json").write_bytes(case.release.to_json())
        (case.folder / "held.onnx").write_bytes(b"held")
    elif broken == "link":
        (case.folder / "source/link").symlink_to("/etc/passwd")
    else:
        (case.folder / "release.json").write_bytes(b"{}")
    with pytest.raises(StepError):
        here.publish(case)
    assert not here.api().repo_exists(here.target)


def test_a_release_without_artifacts_is_withheld(here: Here) -> None:
    with pytest.raises(WithheldError):
        here.publish(here.case(withheld=("model.onnx",)))


def test_what_is_not_there_is_not_found(here: Here) -> None:
    assert find(here.hub(), here.target, "0" * 64, mode="pull-request") is None
    assert read_release(here.hub(), here.target) is None


def test_a_rival_that_opened_first_wins(here: Here) -> None:
    """Another bot of the same account opens the same release between our look and our commit."""
    case, rival, opened = here.case(), here.case(), list[Publication]()

    def race(_: str, path: str) -> None:
        if "/commit/" in path and not opened:
            opened.append(here.publish(rival))

    with watched(here.server.endpoint) as proxy:
        proxy.before = race
        done = here.publish(case, hub=here.hub(endpoint=proxy.endpoint))
    assert (opened[0].number, done.number) == (1, 1)
    assert here.pull_requests() == [(1, "open"), (2, "closed")]
    assert here.publish(case).number == 1


def test_a_rival_that_was_left_open_is_closed_by_whoever_comes_next(here: Here) -> None:
    case = here.case()
    here.publish(case)
    trailers = f"Release-Id: {case.release.identity}\nRecipe: faceage"
    here.hand_made({"x": b""}, commit_description=trailers, create_pr=True)
    assert find(here.hub(), here.target, case.release.identity, mode="pull-request") is None
    assert here.publish(case).number == 1
    assert here.pull_requests() == [(1, "open"), (2, "closed")]
