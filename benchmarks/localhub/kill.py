"""Kills an embedded Hub under write load, again and again, and looks for what it lost.

    python benchmarks/localhub/kill.py --commits 1000 --kills 200

Several writers commit without pause to several repositories: small files, large files through Git LFS, pull requests
that are opened and merged. The server is killed (SIGKILL) at a random moment and started anew on the same folder. Every
commit that it acknowledged must be there, every reference must be readable, each pull request must have both its record
and its reference, and ``git fsck --full --strict`` must find nothing. A SIGKILL takes the process, not the machine:
what the kernel holds survives it, so that this does not show what a power cut does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
from common import machine, versions, write
from hub_server import HubServer, start_hub

REPOSITORIES = ("org/one", "org/two")
WRITERS = 4


class Writer(threading.Thread):
    """Writes to one repository until the server dies.

    Args:
        hub: The server.
        repo_id: The repository.
        name: Part of all paths, so that writers do not contradict each other.
        first: Number of its first write; what a write does depends on its number.
    """

    def __init__(self, hub: HubServer, repo_id: str, name: str, first: int = 0) -> None:
        super().__init__(name=name, daemon=True)
        self._repo_id = repo_id
        self._first = first
        self._url = hub.endpoint
        self._headers = {"Authorization": f"Bearer {hub.token}"}
        self.acknowledged: list[str] = []
        self.merged: list[str] = []
        self.problem = ""

    def run(self) -> None:
        """Write without pause."""
        with httpx2.Client(base_url=self._url, headers=self._headers, timeout=60) as client:
            try:
                for number in range(self._first, 1_000_000):
                    self._one(client, number)
            except httpx2.TransportError:
                return
            except Exception as error:
                self.problem = repr(error)

    def _one(self, client: httpx2.Client, number: int) -> None:
        path = f"{self.name}/{number}"
        if number % 5 == 1:
            line = self._large_file(client, path)
        else:
            line = {"key": "file", "value": {"path": f"{path}.txt", "content": path * 40}}
        lines = [{"key": "header", "value": {"summary": path}}, line]
        query = "?create_pr=1" if number % 3 == 2 else ""
        body = "\n".join(map(json.dumps, lines)).encode()
        answer = client.post(f"/api/models/{self._repo_id}/commit/main{query}", content=body)
        answer.raise_for_status()
        self.acknowledged.append(answer.json()["commitOid"])
        if query and number % 4 != 0:
            pull_request = answer.json()["pullRequestUrl"].rpartition("/")[2]
            merged = client.post(f"/api/models/{self._repo_id}/discussions/{pull_request}/merge", content=b"")
            merged.raise_for_status()
            self.merged.append(merged.json()["mergeCommitId"])

    def _large_file(self, client: httpx2.Client, path: str) -> dict[str, Any]:
        content = random.Random(path).randbytes(200_000)  # noqa: S311  (no secret)
        item = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
        asked = {"operation": "upload", "transfers": ["basic"], "objects": [item], "hash_algo": "sha256"}
        answer = client.post(f"/{self._repo_id}.git/info/lfs/objects/batch", json=asked)
        answer.raise_for_status()
        actions = answer.json()["objects"][0].get("actions")
        if actions:
            client.put(actions["upload"]["href"], content=content, headers={"Authorization": ""}).raise_for_status()
        return {"key": "lfsFile", "value": {"path": f"{path}.bin", "algo": "sha256", **item}}


def check(folder: Path, acknowledged: dict[str, list[str]]) -> dict[str, int]:
    """Check all repositories of a Hub that does not run, after its own recovery.

    Raises:
        AssertionError: Something was lost, or is not whole.
    """
    from bot.localhub.store import Store

    store = Store(folder)
    counts = {"commits": 0, "pull_requests": 0, "merged": 0, "large_files": 0}
    for repo_id in REPOSITORIES:
        repository = store.repository("models", repo_id)
        references = repository.references("refs/")
        there = {str(commit.id) for head in references.values() for commit in repository.history(head)}
        lost = set(acknowledged[repo_id]) - there
        assert not lost, f"{repo_id} lost {sorted(lost)}"
        records = {
            int(path.stem): json.loads(path.read_text())
            for path in (repository.folder / "hub/discussions").glob("*.json")
        }
        assert sorted(int(name.removeprefix("pr/")) for name in references if name.startswith("pr/")) == sorted(records)
        for record in records.values():
            assert record["status"] != "merged" or record["mergeCommitId"] in there
        for head in references.values():
            for entry in repository.files(head):
                if entry.pointer:
                    content = repository.large_file(entry.pointer.sha256).read_bytes()
                    assert hashlib.sha256(content).hexdigest() == entry.pointer.sha256
                    counts["large_files"] += head == references["heads/main"]
        fsck(repository.folder)
        counts["commits"] += len(there)
        counts["pull_requests"] += len(records)
        counts["merged"] += sum(record["status"] == "merged" for record in records.values())
    store.close()
    return counts


def fsck(folder: Path) -> None:
    """Have git look at a repository; unreachable objects of unfinished commits are no damage."""
    command = ["git", "-C", str(folder), "fsck", "--full", "--strict", "--no-dangling"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def run(folder: Path, commits: int, kills: int, seed: int = 1, look_every: int = 25) -> dict[str, Any]:
    """Kill a Hub ``kills`` times while it takes at least ``commits`` commits, and return what was found."""
    moment = random.Random(seed)  # noqa: S311  (no secret)
    hub = start_hub(folder)
    for repo_id in REPOSITORIES:
        hub.api().create_repo(repo_id)
    acknowledged: dict[str, list[str]] = {repo_id: [] for repo_id in REPOSITORIES}
    starts: list[float] = []
    began = time.monotonic()
    for life in range(kills):
        places = [REPOSITORIES[n % len(REPOSITORIES)] for n in range(WRITERS)]
        writers = [Writer(hub, place, f"life{life}-{n}", life + n) for n, place in enumerate(places)]
        for writer in writers:
            writer.start()
        enough = moment.randint(1, max(2, 2 * commits // kills))
        deadline = time.monotonic() + 60
        while sum(len(writer.acknowledged) for writer in writers) < enough and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(moment.uniform(0, 0.03))
        hub.kill()
        for number, writer in enumerate(writers):
            writer.join(60)
            assert not writer.problem, writer.problem
            acknowledged[REPOSITORIES[number % len(REPOSITORIES)]] += [*writer.acknowledged, *writer.merged]
        if life % look_every == look_every - 1:
            check(folder, acknowledged)
        started = time.monotonic()
        hub = start_hub(folder)
        starts.append(time.monotonic() - started)
    taken = time.monotonic() - began
    last = Writer(hub, REPOSITORIES[0], "last")
    last.start()
    while sum(map(len, acknowledged.values())) + len(last.acknowledged) < commits:
        time.sleep(0.01)
    hub.kill()
    last.join(60)
    acknowledged[REPOSITORIES[0]] += [*last.acknowledged, *last.merged]
    return {
        "kills": kills + 1,
        "acknowledged_commits": sum(map(len, acknowledged.values())),
        "lost": 0,
        "git_fsck": "clean",
        "found": check(folder, acknowledged),
        "seconds": round(taken, 1),
        "median_seconds_to_start_again": round(sorted(starts)[len(starts) // 2], 2),
    }


def main() -> None:
    """Run as asked and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    given = parser.parse_args()
    described = machine()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder) / "hub", given.commits, given.kills)
    what = "an embedded Hub killed (SIGKILL) under write load by four writers, and started again"
    command = f"python benchmarks/localhub/kill.py --commits {given.commits} --kills {given.kills}"
    write(
        "localhub_kill.json", {"what": what, "command": command, "machine": described, "versions": versions(), **found}
    )


if __name__ == "__main__":
    main()
