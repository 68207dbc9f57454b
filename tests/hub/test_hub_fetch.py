"""Reading upstream: exactly these files, at one commit, checked, and not twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hub_cases import QUICK, sha256, watched
from hub_here import Here
from hub_stub import Handler, Stub, stub

from bot.errors import RecipeError, StepError, UpstreamError
from bot.hub.client import Hub
from bot.hub.fetch import fetch, fetch_url, folder_of, ledger_of, resolve_url
from bot.records import Source

BIG = bytes(range(256)) * 100_000
CARD = b"---\nlicense: apache-2.0\ntags: [a]\n---\n# hi\n"
FILES = {
    "model.onnx": BIG,
    "config.json": b"{}",
    "LICENSE": b"terms",
    "sub/LICENSE.txt": b"other terms",
    "README.md": CARD,
    "images/a.jpg": b"1",
    "images/b.jpg": b"2",
    "images/deep/c.jpg": b"3",
    "images/note.txt": b"4",
}


@pytest.fixture
def upstream(here: Here) -> Here:
    """A repository with some files."""
    here.hand_made(FILES)
    return here


def get(here: Here, hub: Hub | None = None, **more: Any) -> Source:
    arguments = {"revision": "main", "files": {"network": "model.onnx"}, "into": here.folder / "into"} | more
    return fetch(hub or here.hub(), here.target, **arguments)


def test_exactly_the_named_files_of_one_commit(upstream: Here) -> None:
    seen: list[tuple[int, int, str]] = []
    source = get(
        upstream,
        copies=["config.json"],
        license_files=["LICENSE*", "NOTICE*"],
        progress=lambda done, total, what: seen.append((done, total, what)),
    )
    folder = folder_of(upstream.folder / "into", source)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {"model.onnx", "config.json", "LICENSE"}
    assert (folder / "model.onnx").read_bytes() == BIG
    assert source.files["network"].sha256 == sha256(BIG) and source.files["network"].bytes == len(BIG)
    assert [item.path for item in source.copies] == ["config.json"]
    assert [item.path for item in source.license_texts] == ["LICENSE"]
    assert source.commit == upstream.api().model_info(upstream.target).sha
    assert source.committed_at.endswith("Z") and source.repo == upstream.target
    assert (len(BIG), len(BIG), "model.onnx") in seen


def test_a_second_call_downloads_nothing(upstream: Here) -> None:
    first = get(upstream)
    with watched(upstream.server.endpoint) as proxy:
        again = get(upstream, upstream.hub(endpoint=proxy.endpoint), revision=first.commit)
        assert [path for _, path, _ in proxy.seen if "model.onnx" in path and "resolve" in path] == []
    assert again == first


@pytest.mark.parametrize("damage", ["content", "size", "ledger", "gone"])
def test_what_was_damaged_here_is_fetched_again(upstream: Here, damage: str) -> None:
    source = get(upstream)
    folder = folder_of(upstream.folder / "into", source)
    if damage == "content":
        (folder / "model.onnx").write_bytes(bytes(len(BIG)))
    elif damage == "size":
        (folder / "model.onnx").write_bytes(b"x")
    elif damage == "ledger":
        ledger_of(folder).write_bytes(b"[1, 2")
    else:
        (folder / "model.onnx").unlink()
    assert get(upstream) == source
    assert (folder / "model.onnx").read_bytes() == BIG


def test_a_touched_file_is_read_and_not_downloaded(upstream: Here) -> None:
    source = get(upstream)
    (folder_of(upstream.folder / "into", source) / "model.onnx").touch()
    with watched(upstream.server.endpoint) as proxy:
        assert get(upstream, upstream.hub(endpoint=proxy.endpoint)) == source
        assert not [path for _, path, _ in proxy.seen if "resolve" in path and "model.onnx" in path]


def test_patterns_are_folders(upstream: Here) -> None:
    source = get(upstream, files={"images": "images/*.jpg"})
    assert sorted(source.files) == ["images/a.jpg", "images/b.jpg"]
    deep = get(upstream, files={"images": "images/**"})
    assert sorted(deep.files) == ["images/a.jpg", "images/b.jpg", "images/deep/c.jpg", "images/note.txt"]
    assert deep.files["images/deep/c.jpg"].path == "images/deep/c.jpg"


def test_data_sets(here: Here) -> None:
    from huggingface_hub import CommitOperationAdd

    api = here.api()
    api.create_repo(here.target, repo_type="dataset")
    operations = [CommitOperationAdd("data/x.txt", b"x"), CommitOperationAdd("README.md", CARD)]
    api.create_commit(here.target, operations, commit_message="Data", repo_type="dataset")
    source = get(here, repo_type="dataset", files={"data": "data/*"})
    assert source.repo_type == "dataset" and source.files["data/x.txt"].sha256 == sha256(b"x")


def test_a_branch_is_one_commit_and_an_old_commit_stays_readable(upstream: Here) -> None:
    old = get(upstream)
    upstream.hand_made({"config.json": b'{"new": 1}'})
    new = get(upstream, files={"config": "config.json"})
    assert new.commit != old.commit
    assert get(upstream, files={"config": "config.json"}, revision=old.commit).files["config"].sha256 == sha256(b"{}")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"revision": "nope"}, ["nope", "follow"]),
        ({"files": {"network": "modle.onnx"}}, ["modle.onnx", "Did you mean model.onnx"]),
        ({"files": {"network": "LICENSE.txt"}}, ["Did you mean sub/LICENSE.txt"]),
        ({"files": {"images": "images/*.png"}}, ["images/*.png", "no file matches"]),
        ({"files": {"images": "nowhere/*"}}, ["nowhere/*", "no file matches"]),
        ({"license_files": ["COPYING"]}, ["COPYING", "no such file"]),
    ],
)
def test_what_is_missing_is_named(upstream: Here, more: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UpstreamError) as caught:
        get(upstream, **more)
    assert caught.value.exit_code == 3
    for word in words:
        assert word in str(caught.value)


def test_a_missing_repository_is_upstreams_fault(here: Here) -> None:
    with pytest.raises(UpstreamError, match="no such repository"):
        get(here)


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "a\\b", "a//b", ".git/config", "con", "a\nb"])
def test_paths_that_leave_the_folder_are_refused(upstream: Here, path: str) -> None:
    with pytest.raises(RecipeError, match="cannot be a file's path"):
        get(upstream, files={"network": path})


def test_a_gated_repository_says_how_to_get_access(upstream: Here) -> None:
    headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}
    path = f"/{upstream.target}/resolve/*"
    upstream.server.fault("status", path, status=403, headers=headers, times=0)
    with pytest.raises(UpstreamError, match="gated") as caught:
        get(upstream)
    assert "browser" in caught.value.remedy


def test_no_network_is_upstreams_fault(here: Here) -> None:
    with stub() as server:
        endpoint = server.endpoint
    with pytest.raises(UpstreamError) as caught:
        get(here, Hub(endpoint, None, policy=QUICK))
    assert "network" in caught.value.remedy


@pytest.mark.parametrize("kind", ["truncate", "corrupt", "reset", "close", "status"])
def test_a_download_that_fails_once_is_repaired(upstream: Here, kind: str) -> None:
    upstream.server.fault(kind, f"/{upstream.target}/resolve/*/model.onnx", bytes=12_345_678)
    source = get(upstream)
    assert (folder_of(upstream.folder / "into", source) / "model.onnx").read_bytes() == BIG


def test_a_small_file_that_is_corrupted_once_is_repaired(upstream: Here) -> None:
    upstream.server.fault("corrupt", f"/{upstream.target}/resolve/*/config.json")
    assert get(upstream, files={"config": "config.json"}).files["config"].sha256 == sha256(b"{}")


def test_a_download_goes_on_where_it_broke_off(upstream: Here) -> None:
    upstream.server.fault("truncate", f"/{upstream.target}/resolve/*/model.onnx", bytes=20_000_000)
    seen: list[int] = []
    get(upstream, progress=lambda done, total, what: seen.append(done) if what == "model.onnx" else None)
    assert seen == sorted(seen) and seen[-1] == len(BIG), "it never began again"


def test_a_download_goes_on_in_another_process(upstream: Here) -> None:
    """What an earlier process left: a partial file, nothing else."""
    source = get(upstream)
    folder = folder_of(upstream.folder / "into", source)
    (folder / "model.onnx").unlink()
    ledger_of(folder).unlink()
    (folder / ".model.onnx.part").write_bytes(BIG[:20_000_000])
    seen: list[int] = []
    assert get(upstream, progress=lambda done, *_: seen.append(done)) == source
    assert min(seen) > 20_000_000 and (folder / "model.onnx").read_bytes() == BIG
    # A partial file of something else does no harm: it is thrown away.
    (folder / "model.onnx").unlink()
    (folder / ".model.onnx.part").write_bytes(b"other" * 1000)
    assert get(upstream) == source and (folder / "model.onnx").read_bytes() == BIG


def test_content_that_stays_wrong_is_refused_and_not_kept(upstream: Here) -> None:
    upstream.server.fault("corrupt", f"/{upstream.target}/resolve/*/model.onnx", times=0)
    with pytest.raises(UpstreamError, match=sha256(BIG)):
        get(upstream)
    assert not list((upstream.folder / "into").rglob("*model.onnx*"))


def test_a_full_disk_names_the_folder(upstream: Here) -> None:
    commit = upstream.api().model_info(upstream.target).sha
    folder = upstream.folder / "into" / upstream.target / commit
    folder.mkdir(parents=True)
    (folder / ".model.onnx.part").symlink_to("/dev/full")
    with pytest.raises(StepError, match="disk is full") as caught:
        get(upstream)
    assert str(folder) in caught.value.where


def test_a_folder_that_may_not_be_written_is_named(upstream: Here) -> None:
    (upstream.folder / "into").write_bytes(b"a file where a folder should be")
    with pytest.raises(StepError) as caught:
        get(upstream)
    assert str(upstream.folder / "into") in caught.value.where


def test_an_offline_library_is_said_as_such(upstream: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UpstreamError, match="offline") as caught:
        get(upstream)
    assert "HF_HUB_OFFLINE" in caught.value.remedy


def test_the_ledger_is_plain_json(upstream: Here) -> None:
    source = get(upstream)
    ledger = json.loads(ledger_of(folder_of(upstream.folder / "into", source)).read_bytes())
    assert ledger["model.onnx"]["sha256"] == sha256(BIG)


# -- addresses that are not on a Hub -----------------------------------------------------------------------------------


def serve(server: Stub, path: str, body: bytes) -> None:
    def answer(request: Handler) -> None:
        begin = int((request.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        if begin:
            request.reply(206, body[begin:], Content_Range=f"bytes {begin}-{len(body) - 1}/{len(body)}")
        else:
            request.reply(200, body)

    server.answers[path] = answer


def test_an_address_with_its_sha256(tmp_path: Path) -> None:
    with stub() as server:
        serve(server, "/files/model.onnx", b"model")
        server.answers["/moved"] = lambda request: request.reply(302, Location="/files/model.onnx")
        url = f"{server.endpoint}/moved"
        source, path = fetch_url(url, sha256=sha256(b"model"), key="network", name="m.onnx", into=tmp_path)
        assert path.read_bytes() == b"model" and path == folder_of(tmp_path, source) / "m.onnx"
        assert source.url == url and source.files["network"].sha256 == sha256(b"model") == source.commit
        count = len(server.seen)
        assert fetch_url(url, sha256=sha256(b"model"), key="network", name="m.onnx", into=tmp_path)[0] == source
        assert len(server.seen) == count
        assert all(seen.authorization is None for seen in server.seen)


def test_an_address_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    with stub() as server:
        serve(server, "/model.onnx", b"other")
        with pytest.raises(UpstreamError, match=sha256(b"other")):
            resolve_url(f"{server.endpoint}/model.onnx", sha256(b"model"), tmp_path, policy=QUICK)
        with pytest.raises(UpstreamError):
            resolve_url(f"{server.endpoint}/nothing", sha256(b"model"), tmp_path, policy=QUICK)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "where", ["http://192.0.2.1/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://u:p@127.0.0.1/x"]
)
def test_redirects_to_other_places_are_refused(tmp_path: Path, where: str) -> None:
    with stub() as server:
        server.answers["/"] = lambda request: request.reply(302, Location=where)
        with pytest.raises((UpstreamError, RecipeError)) as caught:
            resolve_url(f"{server.endpoint}/x", sha256(b"x"), tmp_path, policy=QUICK)
        assert "u:p" not in str(caught.value) and len(server.seen) == 1


def test_redirects_come_to_an_end(tmp_path: Path) -> None:
    with stub() as server:
        server.answers["/"] = lambda request: request.reply(302, Location=request.path + "x")
        with pytest.raises(UpstreamError, match="redirects more than"):
            resolve_url(f"{server.endpoint}/x", sha256(b"x"), tmp_path, policy=QUICK)
        assert len(server.seen) < 10


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "x", "https://"])
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UpstreamError, match="https only"):
        resolve_url(url, sha256(b"x"), tmp_path)
    with pytest.raises(RecipeError, match="sha256"):
        resolve_url("https://example.org/x", "abc", tmp_path)
