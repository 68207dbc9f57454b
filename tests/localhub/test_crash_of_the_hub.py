"""A Hub that is killed under writes: what it accepted is there, what it did not finish is not, and it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hub_server import start_hub
from huggingface_hub import CommitOperationAdd

from bot.localhub import discussions, durable
from bot.localhub.repository import Repository
from bot.localhub.store import Store


def fsck(folder: Path) -> None:
    command = ["git", "-C", str(folder), "fsck", "--full", "--strict", "--no-dangling"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def check_whole(repository: Repository) -> None:
    """Every pull request has a record and a reference; every record's commits exist; the branch is readable."""
    folder = repository.folder
    records = {int(path.stem): json.loads(path.read_text()) for path in (folder / "hub/discussions").glob("*.json")}
    head = repository.resolve("main")
    assert sorted(int(name) for name in repository.references("refs/pr/")) == sorted(records)
    for number, record in records.items():
        oids = [event["data"]["oid"] for event in record["events"] if event["type"] == "commit"]
        assert oids[-1] == repository.reference(f"refs/pr/{number}")
        if record["status"] == "merged":
            assert record["mergeCommitId"] in {str(commit.id) for commit in repository.history(head)}
    merged = [commit for commit in repository.history(head) if "(#" in commit.message]
    assert len(merged) == sum(record["status"] == "merged" for record in records.values())
    assert not list(folder.rglob("*.lock")) and not (folder / "hub/journal.json").exists()
    fsck(folder)


def write_until_it_dies(endpoint: str, token: str, name: str, accepted: list[str]) -> None:
    """Commit, open and merge pull requests without pause; plain HTTP, since the client would wait and try again."""
    with httpx2.Client(base_url=f"{endpoint}/api/models/o/m", headers={"Authorization": f"Bearer {token}"}) as client:
        for n in range(10_000):
            lines = [
                {"key": "header", "value": {"summary": f"{name} {n}"}},
                {"key": "file", "value": {"path": f"{name}/{n}.txt", "content": f"{name} {n}"}},
            ]
            body = "\n".join(map(json.dumps, lines)).encode()
            try:
                answer = client.post(f"/commit/main{'?create_pr=1' if n % 2 == 0 else ''}", content=body)
                accepted.append(answer.json()["commitOid"])
                if n % 4 == 0:
                    number = answer.json()["pullRequestUrl"].rpartition("/")[2]
                    client.post(f"/discussions/{number}/merge", content=b"")
            except httpx2.HTTPError:
                return


@pytest.mark.parametrize("enough", [2, 9, 20])
def test_sigkill_under_writes(tmp_path: Path, enough: int) -> None:
    hub = start_hub(tmp_path / "hub")
    hub.api().create_repo("o/m")
    accepted: list[str] = []
    writers = [
        threading.Thread(target=write_until_it_dies, args=(hub.endpoint, hub.token, f"w{n}", accepted))
        for n in range(3)
    ]
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + 30
    while len(accepted) < enough and time.monotonic() < deadline:
        time.sleep(0.003)
    hub.kill()
    for writer in writers:
        writer.join(30)
    assert len(accepted) >= enough
    store = Store(tmp_path / "hub")
    repository = store.repository("models", "o/m")
    check_whole(repository)
    for oid in accepted:
        assert repository.resolve(oid) == oid
    heads = repository.references("refs/").values()
    reachable = {str(commit.id) for head in heads for commit in repository.history(head)}
    assert set(accepted) <= reachable
    store.close()
    again = start_hub(tmp_path / "hub")
    try:
        made = again.api().create_commit("o/m", [CommitOperationAdd("after", b"x")], commit_message="a", create_pr=True)
        assert made.pr_num == len(repository.references("refs/pr/"))
    finally:
        again.stop()


def test_a_journal_that_was_accepted_is_carried_out_at_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    repository = store.create("models", "o/m", store.local_user.person, store.clock.now())
    head = repository.resolve("main")
    record = {"num": 1, "title": "t"}
    journal = {"refs": {"refs/pr/1": head, "refs/heads/gone": None}, "files": {"discussions/1.json": record}}
    (repository.folder / "hub" / "journal.json").write_text(json.dumps(journal))
    repository.git.references.create("refs/heads/gone", head)
    (repository.folder / "refs/heads/main.lock").write_text("")
    (repository.folder / "hub/.journal.json.0123.tmp").write_text("{half")
    store.close()
    reopened = Store(tmp_path)
    repository = reopened.repository("models", "o/m")
    assert repository.references("refs/") == {"heads/main": head, "pr/1": head}
    assert json.loads((repository.folder / "hub/discussions/1.json").read_text()) == record
    assert sorted(path.name for path in (repository.folder / "hub").iterdir()) == ["discussions", "settings.json"]
    assert not list(repository.folder.rglob("*.lock"))
    reopened.close()


def test_a_write_that_failed_half_way_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    repository = store.create("models", "o/m", store.local_user.person, store.clock.now())
    head = repository.resolve("main")
    write_json = durable.write_json

    def full_disk(path: Path, *rest: Any, **more: Any) -> None:
        if path.parent.name == "discussions":
            raise OSError(28, "No space left on device")
        write_json(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_json", full_disk)
        with pytest.raises(OSError, match="No space"):
            discussions.create(repository, "one", "", store.local_user.person, store.clock.now(), head=head)
    discussions.create(repository, "two", "", store.local_user.person, store.clock.now(), head=head)
    assert [record["title"] for record in discussions.listing(repository)] == ["two", "one"]
    assert repository.references("refs/pr/") == {"1": head, "2": head}
    store.close()


def test_a_folder_is_open_in_one_process_only(tmp_path: Path) -> None:
    hub = start_hub(tmp_path / "hub")
    try:
        with pytest.raises(RuntimeError, match="exit code 2"):
            start_hub(tmp_path / "hub")
    finally:
        hub.stop()


def test_tokens_and_content_outlive_the_process(tmp_path: Path) -> None:
    first = start_hub(tmp_path / "hub")
    first.api().create_repo("o/m")
    assert (first.folder / "tokens.json").stat().st_mode & 0o777 == 0o600
    first.stop()
    second = start_hub(tmp_path / "hub")
    try:
        assert second.tokens == first.tokens and second.api().repo_exists("o/m")
    finally:
        second.stop()


def test_killed_again_and_again_it_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of ``benchmarks/localhub/kill.py``; EMBEDDED_HUB_KILLS asks for more."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks" / "localhub"))
    from kill import run

    kills = int(os.environ.get("EMBEDDED_HUB_KILLS", "4"))
    found = run(tmp_path / "hub", commits=6 * kills, kills=kills, look_every=2)
    assert found["acknowledged_commits"] >= 6 * kills and found["kills"] == kills + 1
