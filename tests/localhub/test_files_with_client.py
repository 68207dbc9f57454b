"""Uploads, commits and downloads, through the unmodified client."""

from __future__ import annotations

import hashlib
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

BINARY = np.random.default_rng(7).bytes(300_000)


def add(path: str, content: bytes | str) -> CommitOperationAdd:
    return CommitOperationAdd(path, content.encode() if isinstance(content, str) else content)


def repository_folder(hub: HubServer, repo: str) -> Path:
    return hub.folder / "repos" / "models" / f"{repo}.git"


def fsck(hub: HubServer, repo: str) -> None:
    command = ["git", "-C", str(repository_folder(hub, repo)), "fsck", "--full", "--strict", "--no-dangling"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("without_xet")
def test_one_commit_of_text_binary_copies_and_deletions(api: Any, hub: HubServer, repo: str) -> None:
    first = api.create_commit(
        repo,
        [add("a/b/c.txt", "text"), add("model.onnx", BINARY), add("gone.txt", "x"), add("old/1", "1")],
        commit_message="one",
    )
    second = api.create_commit(
        repo,
        [
            CommitOperationDelete("gone.txt"),
            CommitOperationDelete("old/"),
            CommitOperationCopy("model.onnx", "copy.onnx"),
            CommitOperationCopy("a/b/c.txt", "c.txt"),
        ],
        commit_message="two",
        parent_commit=first.oid,
    )
    found = {item.path: item for item in api.get_paths_info(repo, ["model.onnx", "copy.onnx", "c.txt", "gone.txt"])}
    assert set(found) == {"model.onnx", "copy.onnx", "c.txt"}
    assert found["copy.onnx"].lfs.sha256 == found["model.onnx"].lfs.sha256 == hashlib.sha256(BINARY).hexdigest()
    assert found["c.txt"].lfs is None and found["c.txt"].size == 4
    assert [item.path for item in api.list_repo_tree(repo)] == [
        "a",
        ".gitattributes",
        "c.txt",
        "copy.onnx",
        "model.onnx",
    ]
    assert api.model_info(repo).sha == second.oid
    fsck(hub, repo)


@pytest.mark.usefixtures("without_xet")
def test_the_hub_decides_what_is_large(api: Any, repo: str) -> None:
    big = "0123456789abcdef" * (700 * 1024)
    api.create_commit(
        repo, [add("x.onnx", "t"), add("blob.xyz", b"\0\1"), add("big.txt", big), add("é.txt", "é")], commit_message="x"
    )
    found = {item.path: item.lfs is not None for item in api.list_repo_tree(repo)}
    assert found == {
        ".gitattributes": False,
        "x.onnx": True,
        "blob.xyz": True,
        "big.txt": True,
        "é.txt": False,
    }
    attributes = Path(api.hf_hub_download(repo, ".gitattributes")).read_text()
    assert "blob.xyz filter=lfs" in attributes and "big.txt filter=lfs" in attributes


@pytest.mark.usefixtures("without_xet")
def test_unchanged_files_make_no_commit(api: Any, repo: str) -> None:
    operations = [("a.txt", b"a"), ("m.onnx", BINARY)]
    first = api.create_commit(repo, [add(*pair) for pair in operations], commit_message="one")
    again = api.create_commit(repo, [add(*pair) for pair in operations], commit_message="two")
    assert again.oid == first.oid and len(api.list_repo_commits(repo)) == 2


def test_ignored_files_are_left_out(api: Any, repo: str, tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    for name, content in ((".gitignore", "*.log\n!keep.log\n"), ("a.log", "x"), ("keep.log", "x"), ("a.txt", "x")):
        (tmp_path / "up" / name).write_text(content)
    api.upload_folder(repo_id=repo, folder_path=tmp_path / "up")
    assert set(api.list_repo_files(repo)) == {".gitattributes", ".gitignore", "keep.log", "a.txt"}


@pytest.mark.usefixtures("without_xet")
def test_downloads_carry_hashes_ranges_and_commits(api: Any, hub: HubServer, repo: str) -> None:
    made = api.create_commit(repo, [add("m.onnx", BINARY), add("t.txt", "0123456789")], commit_message="files")
    assert Path(api.hf_hub_download(repo, "m.onnx")).read_bytes() == BINARY
    snapshot = Path(api.snapshot_download(repo))
    assert snapshot.name == made.oid and (snapshot / "t.txt").read_text() == "0123456789"
    assert api.verify_repo_checksums(repo).mismatches == []
    url = hf_hub_url(repo, "t.txt", endpoint=hub.endpoint)
    session = get_session()
    for header, status, body in (
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=0-99", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=5-2", 200, b"0123456789"),
        ("rows=1-2", 200, b"0123456789"),
    ):
        answer = session.get(url, headers={"Range": header})
        assert answer.status_code == status, header
        assert body is None or answer.content == body
    answer = session.get(url)
    assert session.get(url, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    large = session.get(hf_hub_url(repo, "m.onnx", endpoint=hub.endpoint), headers={"Range": "bytes=299990-"})
    assert large.content == BINARY[-10:] and large.headers["content-range"] == "bytes 299990-299999/300000"


def test_a_missing_file_names_the_commit_it_is_missing_from(api: Any, hub: HubServer, repo: str) -> None:
    with pytest.raises(RemoteEntryNotFoundError) as error:
        api.hf_hub_download(repo, "absent.txt")
    assert error.value.response.headers["x-repo-commit"] == api.model_info(repo).sha


def test_what_is_uploaded_cannot_act_as_a_page_of_the_hub(api: Any, hub: HubServer, repo: str) -> None:
    api.create_commit(
        repo, [add("evil.html", "<script>1</script>"), add("evil.svg", "<svg onload='1'/>")], commit_message="x"
    )
    for name in ("evil.html", "evil.svg"):
        answer = get_session().get(hf_hub_url(repo, name, endpoint=hub.endpoint))
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "html" not in answer.headers["content-type"]


def test_a_stale_parent_is_refused(api: Any, repo: str) -> None:
    first = api.model_info(repo).sha
    api.create_commit(repo, [add("a.txt", "1")], commit_message="one", parent_commit=first[:8])
    with pytest.raises(HfHubHTTPError) as error:
        api.create_commit(repo, [add("a.txt", "2")], commit_message="two", parent_commit=first)
    assert error.value.response.status_code == 412
    assert Path(api.hf_hub_download(repo, "a.txt")).read_text() == "1"


def test_of_two_clients_with_one_parent_exactly_one_wins(api: Any, hub: HubServer, repo: str) -> None:
    for _ in range(5):
        head = api.model_info(repo).sha

        def write(n: int, parent: str = head) -> str:
            try:
                return str(
                    hub.api()
                    .create_commit(repo, [add("n.txt", f"{parent}{n}")], commit_message="n", parent_commit=parent)
                    .oid
                )
            except HfHubHTTPError as error:
                assert error.response.status_code == 412
                return "refused"

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(write, range(4)))
        assert results.count("refused") == 3
        assert api.model_info(repo).sha in results
    assert len(api.list_repo_commits(repo)) == 6


def test_writers_without_parent_queue_up_and_lose_nothing(api: Any, hub: HubServer, repo: str) -> None:
    def write(n: int) -> str:
        return str(hub.api().create_commit(repo, [add(f"{n}.txt", str(n))], commit_message=f"commit {n}").oid)

    with ThreadPoolExecutor(6) as pool:
        oids = set(pool.map(write, range(12)))
    assert len(oids) == 12
    assert set(api.list_repo_files(repo)) == {".gitattributes", *(f"{n}.txt" for n in range(12))}
    fsck(hub, repo)


def test_malformed_commits_leave_no_trace(hub: HubServer, api: Any, repo: str) -> None:
    head = api.model_info(repo).sha
    url = f"{hub.endpoint}/api/models/{repo}/commit/main"
    header = '{"key":"header","value":{"summary":"s"}}\n'
    never = '{"key":"lfsFile","value":{"path":"a","algo":"sha256","oid":"%s","size":1}}' % ("0" * 64)
    for body, status in (
        ("", 400),
        ("nonsense", 400),
        ('{"key":"file","value":{"path":"a","content":""}}', 400),
        (header + '{"key":"file","value":{"path":"../a","content":""}}', 422),
        (header + '{"key":"file","value":{"path":"a/..\\\\b","content":""}}', 422),
        (header + '{"key":"file","value":{"path":"a//b","content":""}}', 400),
        (header + '{"key":"file","value":{"path":".git/config","content":""}}', 400),
        (header + '{"key":"file","value":{"path":"a","content":"%","encoding":"base64"}}', 400),
        (header + never, 400),
        (header + '{"key":"deletedFile","value":{"path":"absent"}}', 404),
        (header + '{"key":"deletedFolder","value":{"path":"absent/"}}', 404),
        (header + '{"key":"rename","value":{"path":"a"}}', 400),
        ('{"key":"header","value":{"summary":"s","parentCommit":"zz"}}', 400),
        ("[" * 100_000, 400),
    ):
        answer = get_session().post(url, content=body, headers={"Authorization": f"Bearer {hub.token}"})
        assert answer.status_code == status, body[:200]
        assert answer.json()["error"]
    assert api.model_info(repo).sha == head


def test_a_large_file_must_be_what_it_claims(hub: HubServer, repo: str) -> None:
    session = get_session()
    headers = {"Authorization": f"Bearer {hub.token}"}
    oid = hashlib.sha256(b"right").hexdigest()
    url = f"{hub.endpoint}/{repo}.git/info/lfs/objects/batch"
    batch = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": 5}]}
    actions = session.post(url, json=batch, headers=headers).json()["objects"][0]["actions"]
    href = actions["upload"]["href"]
    assert session.put(href, content=b"wrong").status_code == 400
    assert session.put(href, content=b"right and more").status_code == 400
    assert session.put(href.replace("signature=", "signature=1"), content=b"right").status_code == 403
    assert session.put(href, content=b"right").status_code == 200
    verified = session.post(actions["verify"]["href"], json={"oid": oid, "size": 5}, headers=headers)
    assert verified.status_code == 200
    assert "actions" not in session.post(url, json=batch, headers=headers).json()["objects"][0]


@pytest.mark.usefixtures("without_xet")
def test_large_files_in_several_parts(api: Any, repo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = np.random.default_rng(3).bytes(1 << 20) * 70
    api.create_commit(repo, [add("big.bin", content)], commit_message="big")
    assert Path(api.hf_hub_download(repo, "big.bin")).read_bytes() == content
