"""All that a publisher and its reviewers say to a Hub, in one conversation, through Xet and through Git LFS."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, ModelCard
from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

CARD = "---\nlicense: mit\ntags: [faces]\n---\n# A model\n"


@pytest.mark.parametrize("way", ["xet", "lfs"])
@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_conversation(
    hub: HubServer, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, kind: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", way == "lfs")
    repo, where = f"org-{secrets.token_hex(4)}/thing", {"repo_type": kind}
    large = secrets.token_bytes(200_000)

    # Who am I, and is anything there?
    assert api.whoami()["name"] == "local-user"
    assert not api.repo_exists(repo, **where)
    api.create_repo(repo, **where)
    api.auth_check(repo, write=True, **where)

    # A commit of all kinds of operation, and one that comes too late.
    first = api.create_commit(
        repo,
        [
            CommitOperationAdd("README.md", CARD.encode()),
            CommitOperationAdd("model.onnx", large),
            CommitOperationAdd("old/a.txt", b"a"),
            CommitOperationAdd("old/b.txt", b"b"),
        ],
        commit_message="First",
        **where,
    )
    second = api.create_commit(
        repo,
        [
            CommitOperationCopy("model.onnx", "copy.onnx"),
            CommitOperationCopy("old/a.txt", "a.txt"),
            CommitOperationDelete("old/"),
        ],
        commit_message="Second",
        parent_commit=first.oid,
        **where,
    )
    with pytest.raises(HfHubHTTPError) as late:
        api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=repo, parent_commit=first.oid, **where)
    assert late.value.response.status_code == 412
    same = api.create_commit(repo, [CommitOperationAdd("model.onnx", large)], commit_message="Nothing new", **where)
    assert same.oid == second.oid

    # What is there now?
    files = {".gitattributes", "README.md", "a.txt", "copy.onnx", "model.onnx"}
    assert set(api.list_repo_files(repo, **where)) == files
    assert [commit.title for commit in api.list_repo_commits(repo, **where)] == ["Second", "First", "initial commit"]
    (found,) = api.get_paths_info(repo, ["copy.onnx", "missing"], expand=True, **where)
    assert found.lfs.sha256 == hashlib.sha256(large).hexdigest() and found.last_commit.title == "Second"
    assert (found.xet_hash is None) == (way == "lfs")
    info = api.repo_info(repo, files_metadata=True, **where)
    assert info.sha == second.oid and {sibling.rfilename for sibling in info.siblings} == files
    listed = api.list_models if kind == "model" else api.list_datasets
    assert [each.id for each in listed(author=repo.partition("/")[0], filter="faces", expand=["sha"])] == [repo]

    # Branches and tags.
    api.create_branch(repo, branch="feat/x", revision=first.oid, **where)
    api.create_tag(repo, tag="v1", tag_message="One", **where)
    refs = api.list_repo_refs(repo, include_pull_requests=True, **where)
    assert {ref.name for ref in refs.branches} == {"main", "feat/x"} and [ref.name for ref in refs.tags] == ["v1"]
    assert api.file_exists(repo, "old/a.txt", revision="feat/x", **where)
    assert not api.file_exists(repo, "old/a.txt", revision="v1", **where)
    api.delete_branch(repo, branch="feat/x", **where)
    api.delete_tag(repo, tag="v1", **where)

    # A pull request from a reader's question to its merge.
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "new.onnx").write_bytes(large[::-1])
    (folder / "notes.txt").write_text("notes")
    made = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Add files", create_pr=True, **where)
    (request,) = api.get_repo_discussions(repo, discussion_type="pull_request", **where)
    api.comment_discussion(repo, request.num, "Is it right?", **where)
    api.rename_discussion(repo, request.num, "Add two files", **where)
    if request.status == "draft":
        api.change_discussion_status(repo, request.num, "open", **where)
    details = api.get_discussion_details(repo, request.num, **where)
    assert details.title == "Add two files" and not details.conflicting_files and "notes" in details.diff
    assert made.pr_num == request.num if made.pr_num else True
    api.merge_pull_request(repo, request.num, comment="Yes", **where)
    merged = api.get_discussion_details(repo, request.num, **where)
    assert merged.status == "merged" and merged.merge_commit_oid == api.repo_info(repo, **where).sha
    question = api.create_discussion(repo, title="A question", description="Why?", **where)
    api.change_discussion_status(repo, question.num, "closed", comment="Because", **where)

    # Downloads, whole and checked.
    assert Path(api.hf_hub_download(repo, "new.onnx", **where)).read_bytes() == large[::-1]
    snapshot = Path(api.snapshot_download(repo, **where))
    assert (snapshot / "copy.onnx").read_bytes() == large
    assert not api.verify_repo_checksums(repo, **where).mismatches
    with pytest.raises(RemoteEntryNotFoundError):
        api.hf_hub_download(repo, "missing.txt", **where)

    # The card alone, settings, another name, and the end.
    with monkeypatch.context() as patch:
        # Cards go to the address that the client was imported with.
        patch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
        patch.setattr("huggingface_hub.hf_api.api.endpoint", hub.endpoint)
        ModelCard(CARD.replace("A model", "A thing")).push_to_hub(repo, token=hub.token, **where)
    assert "A thing" in Path(api.hf_hub_download(repo, "README.md", **where)).read_text()
    api.update_repo_settings(repo, private=True, gated="manual", **where)
    assert api.repo_info(repo, **where).private
    api.move_repo(from_id=repo, to_id=f"{repo}-moved", **where)
    assert api.repo_exists(f"{repo}-moved", **where) and not api.repo_exists(repo, **where)
    api.delete_repo(f"{repo}-moved", **where)
    assert not api.repo_exists(f"{repo}-moved", **where)
