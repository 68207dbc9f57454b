"""Discussions and pull requests, through the unmodified client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError


def add(path: str, content: str) -> CommitOperationAdd:
    return CommitOperationAdd(path, content.encode())


def test_a_pull_request_comes_with_its_commit(api: Any, repo: str) -> None:
    head = api.model_info(repo).sha
    made = api.create_commit(
        repo, [add("a.txt", "a")], commit_message="Add a", commit_description="Why: b\n\nRelease-Id: 12", create_pr=True
    )
    assert (made.pr_num, made.pr_revision) == (1, "refs/pr/1")
    assert api.model_info(repo).sha == head
    details = api.get_discussion_details(repo, 1)
    assert (details.title, details.status, details.is_pull_request) == ("Add a", "open", True)
    assert (details.target_branch, details.conflicting_files, details.author) == ("refs/heads/main", [], "local-user")
    assert [event.type for event in details.events] == ["comment", "commit"]
    assert details.events[0].content == "Why: b\n\nRelease-Id: 12"
    assert details.events[1].oid == made.oid
    assert "+++ b/a.txt" in details.diff
    assert api.model_info(repo, revision="refs/pr/1").sha == made.oid
    assert api.list_repo_commits(repo, revision="refs/pr/1")[0].message == "Why: b\n\nRelease-Id: 12"


def test_commits_to_a_pull_request_and_its_merge(api: Any, repo: str) -> None:
    api.create_commit(repo, [add("a.txt", "a")], commit_message="Add a", create_pr=True)
    second = api.create_commit(repo, [add("b.txt", "b")], commit_message="Add b", revision="refs/pr/1")
    api.create_commit(repo, [add("c.txt", "c")], commit_message="Meanwhile")
    api.merge_pull_request(repo, 1, comment="thank you")
    details = api.get_discussion_details(repo, 1)
    assert details.status == "merged" and details.merge_commit_oid == api.model_info(repo).sha
    assert [event.type for event in details.events] == ["commit", "commit", "comment", "status-change"]
    assert details.events[1].oid == second.oid
    assert set(api.list_repo_files(repo)) == {".gitattributes", "a.txt", "b.txt", "c.txt"}
    newest = api.list_repo_commits(repo)[0]
    assert newest.title == "Add a (#1)" and f"- Add b ({second.oid})" in newest.message
    assert "+++ b/b.txt" in details.diff and "c.txt" not in details.diff
    for call in (
        lambda: api.merge_pull_request(repo, 1),
        lambda: api.change_discussion_status(repo, 1, "open"),
        lambda: api.create_commit(repo, [add("d.txt", "d")], commit_message="late", revision="refs/pr/1"),
    ):
        with pytest.raises(HfHubHTTPError) as error:
            call()
        assert error.value.response.status_code == 400


def test_conflicts_are_named_and_refuse_the_merge(api: Any, repo: str) -> None:
    api.create_commit(repo, [add("a.txt", "base\n")], commit_message="base")
    api.create_commit(repo, [add("a.txt", "theirs\n")], commit_message="theirs", create_pr=True)
    assert api.get_discussion_details(repo, 1).conflicting_files == []
    head = api.create_commit(repo, [add("a.txt", "ours\n")], commit_message="ours").oid
    assert api.get_discussion_details(repo, 1).conflicting_files == ["a.txt"]
    with pytest.raises(HfHubHTTPError) as error:
        api.merge_pull_request(repo, 1)
    assert error.value.response.status_code == 409
    assert api.model_info(repo).sha == head
    assert api.get_discussion_details(repo, 1).status == "open"


def test_a_pull_request_starts_from_its_parent(api: Any, repo: str) -> None:
    first = api.model_info(repo).sha
    api.create_commit(repo, [add("b.txt", "b")], commit_message="meanwhile")
    made = api.create_commit(repo, [add("a.txt", "a")], commit_message="Add a", create_pr=True, parent_commit=first)
    assert [commit.commit_id for commit in api.list_repo_commits(repo, revision="refs/pr/1")] == [made.oid, first]
    api.merge_pull_request(repo, 1)
    assert {"a.txt", "b.txt"} <= set(api.list_repo_files(repo))


def test_a_draft_is_opened_before_it_is_merged(api: Any, repo: str) -> None:
    draft = api.create_pull_request(repo, "A draft", description="soon")
    assert (draft.num, draft.status) == (1, "draft")
    api.create_commit(repo, [add("a.txt", "a")], commit_message="Add a", revision="refs/pr/1")
    with pytest.raises(HfHubHTTPError):
        api.merge_pull_request(repo, 1)
    api.change_discussion_status(repo, 1, "open")
    api.merge_pull_request(repo, 1)
    assert "a.txt" in api.list_repo_files(repo)


def test_discussions_take_comments_titles_and_closings(api: Any, hub: HubServer, repo: str) -> None:
    opened = api.create_discussion(repo, "A question", description="What?")
    hub.api("alice").comment_discussion(repo, opened.num, "An answer")
    api.rename_discussion(repo, opened.num, "A better question")
    api.change_discussion_status(repo, opened.num, "closed", comment="settled")
    details = api.get_discussion_details(repo, opened.num)
    assert (details.title, details.status, details.is_pull_request) == ("A better question", "closed", False)
    assert [event.type for event in details.events] == [
        "comment",
        "comment",
        "title-change",
        "comment",
        "status-change",
    ]
    assert [event.author for event in details.events][:2] == ["local-user", "alice"]
    with pytest.raises(HfHubHTTPError):
        api.merge_pull_request(repo, opened.num)
    with pytest.raises(HfHubHTTPError):
        hub.api("reader").comment_discussion(repo, opened.num, "no")


def test_comments_are_edited_by_their_author_and_hidden_by_members(api: Any, hub: HubServer, repo: str) -> None:
    alice = hub.api("alice")
    number = alice.create_discussion(repo, title="A question", description="First words").num
    (comment,) = alice.get_discussion_details(repo, number).events
    with pytest.raises(HfHubHTTPError) as foreign:
        api.edit_discussion_comment(repo, number, comment.id, "Other words")
    assert foreign.value.response.status_code == 403
    edited = alice.edit_discussion_comment(repo, number, comment.id, "Better words")
    assert edited.edited and edited.content == "Better words" and edited.id == comment.id
    (read,) = alice.get_discussion_details(repo, number).events
    assert read == edited and [each["raw"] for each in read._event["data"]["history"]] == [
        "First words",
        "Better words",
    ]
    hidden = api.hide_discussion_comment(repo, number, comment.id)
    assert hidden.hidden and "words" not in str(api.get_discussion_details(repo, number).events[0]._event)
    with pytest.raises(HfHubHTTPError) as gone:
        alice.edit_discussion_comment(repo, number, comment.id, "Back again")
    assert gone.value.response.status_code == 404


def test_listing_filters_and_pages(api: Any, hub: HubServer, repo: str) -> None:
    for n in range(52):
        api.create_discussion(repo, f"question {n}")
    hub.api("alice").create_commit(repo, [add("a.txt", "a")], commit_message="from alice", create_pr=True)
    api.change_discussion_status(repo, 1, "closed")
    numbers = [item.num for item in api.get_repo_discussions(repo)]
    assert numbers == list(range(53, 0, -1))
    only = api.get_repo_discussions(repo, discussion_type="pull_request", discussion_status="open")
    assert [item.num for item in only] == [53]
    assert [item.num for item in api.get_repo_discussions(repo, author="alice")] == [53]
    assert [item.num for item in api.get_repo_discussions(repo, discussion_status="closed")] == [1]


def test_upload_folder_opens_a_pull_request(api: Any, repo: str, tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "a.txt").write_text("a")
    made = api.upload_folder(repo_id=repo, folder_path=tmp_path / "up", create_pr=True)
    assert made.pr_num == 1
    assert "a.txt" in api.list_repo_files(repo, revision="refs/pr/1")
    assert "a.txt" not in api.list_repo_files(repo)
