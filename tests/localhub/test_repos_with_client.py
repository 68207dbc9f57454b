"""Repositories, references and listings, through the unmodified client."""

from __future__ import annotations

import io
import secrets
from typing import Any

import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import (
    BadRequestError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

CARD = """---
license: mit
library_name: transformers
tags: [faces]
base_model: someone/source
base_model_relation: quantized
---
# A card
"""


def readme(text: str = CARD) -> CommitOperationAdd:
    return CommitOperationAdd("README.md", text.encode())


def status_of(error: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    return int(error.value.response.status_code)


def test_an_embedded_hub_says_that_it_is_one(api: Any, hub: HubServer) -> None:
    from huggingface_hub import get_session

    answer = get_session().get(f"{hub.endpoint}/api/embedded-hub").json()
    assert answer["embedded"] is True and answer["version"]


def test_whoami_names_the_user_and_the_role(hub: HubServer) -> None:
    assert hub.api("alice").whoami()["name"] == "alice"
    assert hub.api("reader").whoami()["auth"]["accessToken"]["role"] == "read"


def test_a_foreign_token_is_refused(hub: HubServer) -> None:
    from huggingface_hub import HfApi

    with pytest.raises(HfHubHTTPError) as error:
        HfApi(endpoint=hub.endpoint, token="hf_of_another_hub").whoami()
    assert status_of(error) == 401


def test_create_twice_is_a_conflict_that_exist_ok_takes(api: Any, repo: str) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        api.create_repo(repo)
    assert status_of(error) == 409
    assert api.create_repo(repo, exist_ok=True).repo_id == repo


def test_kinds_do_not_meet(api: Any, repo: str) -> None:
    assert not api.repo_exists(repo, repo_type="dataset")
    api.create_repo(repo, repo_type="dataset")
    api.delete_repo(repo)
    assert api.repo_exists(repo, repo_type="dataset") and not api.repo_exists(repo)


def test_a_new_repository_holds_attributes_only(api: Any, repo: str) -> None:
    info = api.model_info(repo, files_metadata=True)
    assert [sibling.rfilename for sibling in info.siblings] == [".gitattributes"]
    assert info.author == repo.partition("/")[0] and len(info.sha) == 40
    assert info.created_at == info.last_modified


def test_writes_need_a_token_that_writes(hub: HubServer, repo: str) -> None:
    from huggingface_hub import HfApi

    for client, expected in ((HfApi(endpoint=hub.endpoint, token=False), 401), (hub.api("reader"), 403)):
        with pytest.raises(HfHubHTTPError) as error:
            client.create_commit(repo, [readme()], commit_message="no")
        assert status_of(error) == expected


def test_another_users_namespace_is_read_only_but_takes_pull_requests(hub: HubServer) -> None:
    alice, other = hub.api("alice"), hub.api()
    repo = f"alice/{secrets.token_hex(4)}"
    alice.create_repo(repo)
    with pytest.raises(HfHubHTTPError) as error:
        other.create_commit(repo, [readme()], commit_message="no")
    assert status_of(error) == 403
    made = other.create_commit(repo, [readme()], commit_message="please", create_pr=True)
    other.create_commit(
        repo, [CommitOperationAdd("more.txt", b"more")], commit_message="more", revision=made.pr_revision
    )
    with pytest.raises(HfHubHTTPError) as error:
        other.merge_pull_request(repo, made.pr_num)
    assert status_of(error) == 403
    alice.merge_pull_request(repo, made.pr_num)
    assert alice.list_repo_commits(repo)[0].authors == ["alice", "local-user"]


def test_private_repositories_are_seen_by_members_only(hub: HubServer) -> None:
    alice = hub.api("alice")
    repo = f"alice/{secrets.token_hex(4)}"
    alice.create_repo(repo, private=True)
    assert alice.model_info(repo).private is True
    assert not hub.api().repo_exists(repo)
    assert repo not in [model.id for model in hub.api().list_models(author="alice")]
    assert repo in [model.id for model in alice.list_models(author="alice")]


def test_gated_files_are_refused_but_the_repository_is_known(hub: HubServer) -> None:
    alice, other = hub.api("alice"), hub.api()
    repo = f"alice/{secrets.token_hex(4)}"
    alice.create_repo(repo)
    alice.update_repo_settings(repo, gated="auto")
    assert other.model_info(repo).gated == "auto"
    assert other.repo_exists(repo)
    with pytest.raises(GatedRepoError):
        other.hf_hub_download(repo, ".gitattributes")
    assert alice.hf_hub_download(repo, ".gitattributes")


def test_access_to_a_gated_repository_is_given_and_taken(hub: HubServer, api: Any) -> None:
    repo = f"local-user/gated-{secrets.token_hex(4)}"
    api.create_repo(repo)
    api.create_commit(repo, [readme()], commit_message="card")
    api.update_repo_settings(repo, gated="manual")
    alice = hub.api("alice")
    with pytest.raises(GatedRepoError):
        alice.hf_hub_download(repo, "README.md")
    with pytest.raises(HfHubHTTPError):
        alice.grant_access(repo, "alice")
    api.grant_access(repo, "alice")
    assert alice.hf_hub_download(repo, "README.md", force_download=True)
    (granted,) = api.list_accepted_access_requests(repo)
    assert granted.username == "alice" and granted.status == "accepted"
    with pytest.raises(BadRequestError):
        api.grant_access(repo, "alice")
    api.reject_access_request(repo, "alice", rejection_reason="no")
    assert not list(api.list_accepted_access_requests(repo))
    with pytest.raises(GatedRepoError):
        alice.hf_hub_download(repo, ".gitattributes")
    api.accept_access_request(repo, request_id=granted.request_id)
    assert alice.hf_hub_download(repo, ".gitattributes")
    with pytest.raises(HfHubHTTPError) as nobody:
        api.grant_access(repo, "nobody")
    assert status_of(nobody) == 404


def test_names_that_differ_in_case_only_are_one_repository(hub: HubServer, api: Any, repo: str) -> None:
    loud = repo.upper()
    assert api.repo_info(loud).id == repo
    api.create_commit(loud, [readme()], commit_message="card")
    assert "README.md" in api.list_repo_files(repo)
    with pytest.raises(HfHubHTTPError) as twice:
        api.create_repo(loud)
    assert status_of(twice) == 409 and api.create_repo(loud, exist_ok=True).repo_id == repo
    with pytest.raises(HfHubHTTPError) as foreign:
        hub.api().create_repo("ALICE/model")
    assert status_of(foreign) == 403
    sister = f"{repo.partition('/')[0].upper()}/sister"
    assert api.create_repo(sister).repo_id == f"{repo.partition('/')[0]}/sister"


def test_evaluation_results_are_read_back(api: Any, repo: str) -> None:
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from ruamel.yaml import YAML

    text = io.BytesIO()
    YAML().dump(eval_result_entries_to_yaml([EvalResultEntry("cais/hle", "default", 20.9)]), text)
    operations = [CommitOperationAdd(".eval_results/hle.yaml", text.getvalue())]
    operations.append(CommitOperationAdd(".eval_results/bad.yaml", b"- {dataset: x}\n"))
    api.create_commit(repo, operations, commit_message="results")
    (entry,) = api.model_info(repo, expand=["evalResults"]).eval_results
    assert (entry.dataset_id, entry.task_id, entry.value) == ("cais/hle", "default", 20.9)


def test_move_carries_everything(api: Any, repo: str) -> None:
    api.create_commit(repo, [readme()], commit_message="card", create_pr=True)
    head = api.model_info(repo).sha
    api.move_repo(repo, f"{repo}-moved")
    assert not api.repo_exists(repo)
    assert api.model_info(f"{repo}-moved").sha == head
    assert api.get_discussion_details(f"{repo}-moved", 1).title == "card"


def test_missing_things_have_their_own_errors(api: Any, repo: str) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("nobody/nothing")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(repo, revision="nowhere")
    assert not api.file_exists(repo, "absent.txt")
    assert not api.repo_exists("gpt2") and not api.file_exists("gpt2", "config.json")
    assert not api.repo_exists("nobody/nothing")
    api.delete_repo("nobody/nothing", missing_ok=True)


def test_card_facts_are_in_the_information(api: Any, repo: str) -> None:
    api.create_commit(repo, [readme()], commit_message="card")
    info = api.model_info(repo)
    assert info.card_data.license == "mit" and info.library_name == "transformers"
    expected = {"faces", "license:mit", "base_model:someone/source", "base_model:quantized:someone/source"}
    assert expected <= set(info.tags)


def test_expand_gives_what_is_asked_for_and_no_more(api: Any, repo: str) -> None:
    info = api.model_info(repo, expand=["sha", "lastModified"])
    assert info.sha and info.last_modified and info.siblings is None and info.tags is None


def test_listing_by_author_is_newest_first_and_lazy_pages_join(api: Any) -> None:
    owner = f"org-{secrets.token_hex(4)}"
    for name in ("one", "two", "three"):
        api.create_repo(f"{owner}/{name}")
    api.create_commit(f"{owner}/one", [readme()], commit_message="card")
    found = list(api.list_models(author=owner, sort="last_modified", expand=["sha", "lastModified"]))
    assert [model.id.rpartition("/")[2] for model in found] == ["one", "three", "two"]
    assert all(model.sha for model in found)
    assert [model.id for model in api.list_models(search=f"{owner}/t", sort="last_modified", limit=1)] == [
        f"{owner}/three"
    ]
    assert [model.id for model in api.list_models(author=owner, filter="faces")] == [f"{owner}/one"]


def test_branches_and_tags(api: Any, repo: str) -> None:
    first = api.model_info(repo).sha
    api.create_branch(repo, branch="feat/x")
    made = api.create_commit(repo, [readme()], commit_message="card", revision="feat/x")
    api.create_tag(repo, tag="v1", revision="feat/x", tag_message="the first")
    api.create_tag(repo, tag="v0")
    refs = api.list_repo_refs(repo)
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"main": first, "feat/x": made.oid}
    assert {ref.name: ref.target_commit for ref in refs.tags} == {"v0": first, "v1": made.oid}
    assert api.model_info(repo, revision="v1").sha == made.oid
    for call, expected in (
        (lambda: api.create_branch(repo, branch="feat/x"), 409),
        (lambda: api.create_tag(repo, tag="v1"), 409),
        (lambda: api.create_branch(repo, branch="feat"), 400),
        (lambda: api.delete_branch(repo, branch="main"), 403),
    ):
        with pytest.raises(HfHubHTTPError) as error:
            call()
        assert status_of(error) == expected
    api.delete_branch(repo, branch="feat/x")
    api.delete_tag(repo, tag="v1")
    refs = api.list_repo_refs(repo)
    assert [ref.name for ref in refs.branches] == ["main"] and [ref.name for ref in refs.tags] == ["v0"]


def test_long_histories_and_trees_come_in_pages(api: Any, repo: str) -> None:
    operations = [CommitOperationAdd(f"data/{n:04}.txt", str(n).encode()) for n in range(1001)]
    operations += [CommitOperationAdd(f"few/{n}.txt", b"x") for n in range(51)]
    api.create_commit(repo, operations, commit_message="many")
    paths = [item.path for item in api.list_repo_tree(repo, "data", recursive=True)]
    assert paths == [f"data/{n:04}.txt" for n in range(1001)]
    assert len(list(api.list_repo_tree(repo, "few", expand=True))) == 51
    for n in range(49):
        api.create_commit(repo, [CommitOperationAdd("n.txt", str(n).encode())], commit_message=f"commit {n}")
    titles = [commit.title for commit in api.list_repo_commits(repo)]
    assert titles == [f"commit {n}" for n in reversed(range(49))] + ["many", "initial commit"]


def test_names_that_could_leave_the_folder_are_refused(api: Any, hub: HubServer) -> None:
    from huggingface_hub import get_session

    headers = {"Authorization": f"Bearer {hub.token}"}
    before = {path.name for path in hub.folder.iterdir()}
    for name, organisation in (("..", "x"), ("a/../../b", None), ("a", ".."), ("a.git", "x"), ("a\0b", "x"), ("", "x")):
        body = {"name": name, "organization": organisation}
        answer = get_session().post(f"{hub.endpoint}/api/repos/create", json=body, headers=headers)
        assert answer.status_code == 400, (name, organisation)
    for path in ("%2e%2e/%2e%2e/resolve/main/x", "..%2f..%2f/x/resolve/main/instance.json"):
        assert get_session().get(f"{hub.endpoint}/{path}").status_code == 404
    assert {path.name for path in hub.folder.iterdir()} == before
    assert "x" not in {path.name for path in hub.folder.parent.iterdir()}


def test_cards_are_checked_as_on_a_push(api: Any, repo: str) -> None:
    bad = "---\nlicense: my-own\nbase_model_relation: conversion\n---\n"
    with pytest.raises((BadRequestError, ValueError), match="license"):
        api.create_commit(repo, [readme(bad)], commit_message="bad card")
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        api.create_commit(repo, [readme("# no metadata")], commit_message="bare card")


def test_a_date_can_be_given_so_that_histories_repeat(hub: HubServer) -> None:
    from huggingface_hub import HfApi

    shas = []
    for _ in range(2):
        api = HfApi(endpoint=hub.endpoint, token=hub.token, headers={"X-Commit-Date": "2024-05-06T07:08:09Z"})
        repo = f"org-{secrets.token_hex(4)}/dated"
        api.create_repo(repo)
        shas.append(api.create_commit(repo, [readme()], commit_message="card").oid)
        assert api.model_info(repo).last_modified.isoformat() == "2024-05-06T07:08:09+00:00"
    assert shas[0] == shas[1]
