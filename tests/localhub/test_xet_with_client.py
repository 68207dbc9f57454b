"""Uploads through Xet, with the stock client and no setting; and the formats by themselves."""

from __future__ import annotations

import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from hub_server import HubServer, start_hub
from huggingface_hub import CommitOperationAdd
from hypothesis import given
from hypothesis import strategies as st

from bot.localhub.errors import HubError
from bot.localhub.xet import hash_text, read_chunks, read_shard, ungroup, unpack


def contents() -> dict[str, bytes]:
    """Files that make hf_xet use each of its ways of packing."""
    random = np.random.default_rng(1)
    return {
        "noise.bin": random.bytes(3_000_000),
        "floats.onnx": random.normal(size=500_000).astype("<f4").tobytes(),
        "text.bin": b"the same words again and again, " * 40_000,
        "odd.bin": random.normal(size=10_001).astype("<f4").tobytes() + b"abc",
        "one.bin": b"x",
    }


def test_the_stock_client_uploads_and_downloads(api: Any, hub: HubServer, repo: str) -> None:
    files = contents()
    api.create_commit(repo, [CommitOperationAdd(*pair) for pair in files.items()], commit_message="files")
    found = {item.path: item.lfs.sha256 for item in api.list_repo_tree(repo) if item.lfs}
    assert found == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for name, content in files.items():
        assert Path(api.hf_hub_download(repo, name)).read_bytes() == content
    folder = hub.folder / "xorbs"
    assert any(folder.rglob("*")), "the upload did not go through Xet"
    schemes = set()
    for path in folder.glob("*/*"):
        with path.open("rb") as file:
            schemes |= {chunk.scheme for chunk in read_chunks(file)}
    assert schemes >= {0, 1, 2}


def test_downloads_go_through_xet_too(api: Any, hub: HubServer, repo: str, tmp_path: Path) -> None:
    files = {**contents(), "same.bin": b"\x41" * 1_000_000}
    api.create_commit(repo, [CommitOperationAdd(*pair) for pair in files.items()], commit_message="files")
    assert {item.xet_hash is None for item in api.list_repo_tree(repo) if item.lfs} == {False}
    # Plain downloads of large files fail, so that only Xet can bring them.
    hub.fault("status", f"/{repo}/resolve/*.bin", "GET", status=500, times=0)
    try:
        for name, content in files.items():
            assert Path(api.hf_hub_download(repo, name)).read_bytes() == content
        snapshot = Path(api.snapshot_download(repo, cache_dir=tmp_path / "another"))
        assert all((snapshot / name).read_bytes() == content for name, content in files.items())
    finally:
        hub.clear_faults()


@pytest.mark.usefixtures("without_xet")
def test_what_came_through_lfs_is_downloaded_plainly(api: Any, repo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = contents()["odd.bin"]
    api.create_commit(repo, [CommitOperationAdd("odd.bin", content)], commit_message="file")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    assert next(item.xet_hash for item in api.list_repo_tree(repo) if item.lfs) is None
    assert Path(api.hf_hub_download(repo, "odd.bin")).read_bytes() == content


def test_a_hub_with_plain_downloads_offers_no_xet(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "hub", "--plain-downloads")
    try:
        api = hub.api()
        api.create_repo("o/m")
        api.create_commit("o/m", [CommitOperationAdd("m.onnx", b"x" * 100_000)], commit_message="model")
        assert next(item.xet_hash for item in api.list_repo_tree("o/m") if item.lfs) is None
        head = httpx2.head(f"{hub.endpoint}/o/m/resolve/main/m.onnx")
        assert "x-xet-hash" not in head.headers and head.headers["content-length"] == "100000"
    finally:
        hub.stop()


def reconstruct(hub: HubServer, repo: str, name: str, version: int, wanted: str = "") -> bytes:
    """Download a file, or a range of it, as the documentation of the protocol says."""
    head = httpx2.head(f"{hub.endpoint}/{repo}/resolve/main/{name}")
    facts = httpx2.get(head.links["xet-auth"]["url"]).json()
    headers = {"Authorization": f"Bearer {facts['accessToken']}"} | ({"Range": wanted} if wanted else {})
    url = f"{facts['casUrl']}/v{version}/reconstructions/{head.headers['x-xet-hash']}"
    answer = httpx2.get(url, headers=headers)
    answer.raise_for_status()
    found, plain = answer.json(), b""
    for term in found["terms"]:
        if version == 1:
            sources = [(s["range"], s["url"], s["url_range"]) for s in found["fetch_info"][term["hash"]]]
        else:
            links = found["xorbs"][term["hash"]]
            sources = [(run["chunks"], link["url"], run["bytes"]) for link in links for run in link["ranges"]]
        chunks, link, place = next(
            s for s in sources if s[0]["start"] <= term["range"]["start"] and term["range"]["end"] <= s[0]["end"]
        )
        got = httpx2.get(link, headers={"Range": f"bytes={place['start']}-{place['end']}"})
        assert got.status_code == 206 and len(got.content) == place["end"] - place["start"] + 1
        packed = read_chunks(io.BytesIO(got.content))
        assert len(packed) == chunks["end"] - chunks["start"]
        first = term["range"]["start"] - chunks["start"]
        inside = packed[first : first + term["range"]["end"] - term["range"]["start"]]
        part = b"".join(unpack(got.content[c.offset : c.offset + c.packed], c.scheme, c.length) for c in inside)
        assert len(part) == term["unpacked_length"]
        plain += part
    return plain[found["offset_into_first_range"] :]


@pytest.mark.parametrize("version", [1, 2])
def test_any_range_is_put_together_from_the_chunks(api: Any, hub: HubServer, repo: str, version: int) -> None:
    noise = np.random.default_rng(5).bytes(700_000)
    content = noise + b"\x41" * 600_000 + noise[:400_000]
    api.create_commit(repo, [CommitOperationAdd("m.bin", content)], commit_message="model")
    assert reconstruct(hub, repo, "m.bin", version) == content
    for first, last in ((0, 0), (1, 99), (650_000, 1_350_000), (1_299_999, 1_300_000), (1_600_000, 9_999_999)):
        got = reconstruct(hub, repo, "m.bin", version, f"bytes={first}-{last}")
        assert got[: last + 1 - first] == content[first : last + 1]
        assert len(got) < last + 1 - first + 300_000, "far more than was asked for"
    with pytest.raises(httpx2.HTTPStatusError, match="416"):
        reconstruct(hub, repo, "m.bin", version, f"bytes={len(content)}-")


def test_a_read_token_neither_writes_nor_reads_elsewhere(api: Any, hub: HubServer, repo: str) -> None:
    other = f"{repo}-other"
    api.create_repo(other, private=True)
    for name, content in ((repo, b"a" * 100_000), (other, b"b" * 100_000)):
        api.create_commit(name, [CommitOperationAdd("m.onnx", content)], commit_message="model")
    url = f"{hub.endpoint}/api/models/{repo}/xet-read-token/main"
    facts = httpx2.get(url).json()
    good = {"Authorization": f"Bearer {facts['accessToken']}"}
    secret = next(item.xet_hash for item in api.list_repo_tree(other) if item.lfs)
    for version in (1, 2):
        assert httpx2.get(f"{facts['casUrl']}/v{version}/reconstructions/{secret}", headers=good).status_code == 404
    assert httpx2.post(f"{facts['casUrl']}/v1/xorbs/default/{'0' * 64}", content=b"x", headers=good).status_code == 403
    assert httpx2.get(f"{facts['casUrl']}/xorbs/{'0' * 64}?signature=1-0").status_code == 403
    assert httpx2.get(url.replace(repo, other)).status_code == 404
    assert httpx2.get(url.replace("main", "nowhere")).status_code == 404


def test_a_xorb_that_downloads_rely_on_is_not_replaced(api: Any, hub: HubServer, repo: str) -> None:
    content = np.random.default_rng(6).bytes(200_000)
    api.create_commit(repo, [CommitOperationAdd("m.onnx", content)], commit_message="model")
    headers = {"Authorization": f"Bearer {hub.token}"}
    facts = httpx2.get(f"{hub.endpoint}/api/models/{repo}/xet-write-token/main", headers=headers).json()
    good = {"Authorization": f"Bearer {facts['accessToken']}"}
    for path in (hub.folder / "xorbs").glob("*/*"):
        harmful = b"\0\1\0\0\0\1\0\0x"
        if not path.stat().st_mode & 0o200:
            httpx2.post(f"{facts['casUrl']}/v1/xorbs/default/{path.name}", content=harmful, headers=good)
            assert path.read_bytes() != harmful
    assert Path(api.hf_hub_download(repo, "m.onnx")).read_bytes() == content


def test_a_pull_request_with_large_files(api: Any, repo: str) -> None:
    content = contents()["floats.onnx"][::-1]
    made = api.create_commit(repo, [CommitOperationAdd("m.onnx", content)], commit_message="model", create_pr=True)
    assert Path(api.hf_hub_download(repo, "m.onnx", revision=made.pr_revision)).read_bytes() == content


def test_the_same_content_again_in_another_repository(api: Any, repo: str) -> None:
    content = np.random.default_rng(2).bytes(400_000)
    for name in (repo, f"{repo}-2"):
        api.create_repo(name, exist_ok=True)
        api.create_commit(name, [CommitOperationAdd("m.onnx", content)], commit_message="model")
        assert Path(api.hf_hub_download(name, "m.onnx")).read_bytes() == content


def test_a_new_hub_at_an_old_address_is_sent_everything(tmp_path: Path) -> None:
    content = np.random.default_rng(3).bytes(400_000)
    port = 0
    for name in ("first", "second"):
        hub = start_hub(tmp_path / name, port=port)
        port = int(hub.endpoint.rpartition(":")[2])
        try:
            api = hub.api()
            api.create_repo("o/m")
            api.create_commit("o/m", [CommitOperationAdd("m.onnx", content)], commit_message="model")
            assert Path(api.hf_hub_download("o/m", "m.onnx", cache_dir=tmp_path / f"c{name}")).read_bytes() == content
        finally:
            hub.stop()


def test_folders_upload_through_the_pipeline(api: Any, repo: str, tmp_path: Path) -> None:
    folder = tmp_path / "up"
    folder.mkdir()
    for name, content in contents().items():
        (folder / name).write_bytes(content)
    api.upload_folder(repo_id=repo, folder_path=folder)
    snapshot = Path(api.snapshot_download(repo))
    for name, content in contents().items():
        assert (snapshot / name).read_bytes() == content


def test_only_this_hubs_storage_tokens_are_taken(hub: HubServer, repo: str) -> None:
    headers = {"Authorization": f"Bearer {hub.token}"}
    facts = httpx2.get(f"{hub.endpoint}/api/models/{repo}/xet-write-token/main", headers=headers).json()
    url, name = f"{facts['casUrl']}/v1/xorbs/default/{'0' * 64}", b"\0\1\0\0\0\1\0\0x"
    assert httpx2.post(url, content=name, headers=headers).status_code == 401
    good = {"Authorization": f"Bearer {facts['accessToken']}"}
    assert httpx2.post(url, content=b"nonsense", headers=good).status_code == 400
    assert httpx2.post(url, content=name, headers=good).json() == {"was_inserted": True}
    assert httpx2.post(url.replace("/cas/", "/cas/0"), content=name, headers=good).status_code == 404
    shard = b"\0" * 32 + struct.pack("<QQ", 2, 0) + b"\1" * 32 + struct.pack("<II8x", 1 << 30, 1)
    shard += b"\0" * 32 + struct.pack("<IIII", 0, 1, 0, 1) + b"\2" * 32 + b"\0" * 16 + b"\xff" * 32 + b"\0" * 16
    answer = httpx2.post(f"{facts['casUrl']}/v1/shards", content=shard, headers=good)
    assert answer.status_code == 400 and "sha256" in answer.json()["error"]
    assert httpx2.get(f"{hub.endpoint}/api/models/{repo}/xet-write-token/main").status_code == 401


def group(plain: bytes) -> bytes:
    return b"".join(plain[place::4] for place in range(4))


@given(st.binary(max_size=2000))
def test_bytes_are_ungrouped_as_they_were_grouped(plain: bytes) -> None:
    assert ungroup(group(plain)) == plain


@given(st.binary(min_size=1, max_size=2000), st.sampled_from([0, 1, 2]))
def test_chunks_are_unpacked_as_they_were_packed(plain: bytes, scheme: int) -> None:
    import lz4.frame

    packed = plain if scheme == 0 else lz4.frame.compress(group(plain) if scheme == 2 else plain)
    assert unpack(packed, scheme, len(plain)) == plain
    with pytest.raises(HubError):
        unpack(packed, scheme, len(plain) - 1)


def test_hashes_are_written_word_by_word() -> None:
    assert hash_text(bytes(range(32))) == "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918"


@given(st.binary(max_size=300))
def test_malformed_xorbs_and_shards_are_refused_in_words(content: bytes) -> None:
    for read in (lambda: read_shard(content), lambda: read_chunks(io.BytesIO(content))):
        try:
            read()
        except HubError as error:
            assert error.status == 400
