"""Measures an embedded Hub against the limits of the machine that it runs on, in one run.

    python benchmarks/localhub/throughput.py

The limits are measured here too, before and after: bytes a second through loopback between two processes, bytes a
second written to the disk and waited for, and small files a second written, waited for and renamed. Commits are sent by
one client, and by fifty at once. A large file goes up and comes down through Git LFS and through Xet, with the stock
client. The server's memory is the peak of what the kernel counts as resident, during each step. Others may be using the
machine: ratios of one run say more than the figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import secrets
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from common import machine, versions, write
from hub_server import HubServer, start_hub

MB = 1_000_000
PIECE = bytes(1 << 18)


# ------------------------------------------------------------------------------------------------------ the machine


def _send(port: int, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(count // len(PIECE)):
            connection.sendall(PIECE)


def loopback(size: int) -> float:
    """Return megabytes a second from one process to another through loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = multiprocessing.Process(target=_send, args=(listening.getsockname()[1], size))
        sender.start()
        connection, _ = listening.accept()
        began, received = time.perf_counter(), 0
        with connection:
            while piece := connection.recv(1 << 18):
                received += len(piece)
        taken = time.perf_counter() - began
        sender.join()
    return received / MB / taken


def disk(folder: Path, size: int) -> float:
    """Return megabytes a second written to a file and waited for."""
    path = folder / "disk"
    began = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(size // len(PIECE)):
            file.write(PIECE)
        file.flush()
        os.fsync(file.fileno())
    taken = time.perf_counter() - began
    path.unlink()
    return size / MB / taken


def small_files(folder: Path, count: int) -> float:
    """Return small files a second, each written, waited for, renamed, and its folder waited for."""
    from bot.localhub import durable

    began = time.perf_counter()
    for number in range(count):
        durable.write_bytes(folder / "small" / str(number), b"x" * 100)
    return count / (time.perf_counter() - began)


def limits(folder: Path) -> dict[str, float]:
    """Return what the machine does now."""
    return {
        "loopback_mb_per_s": round(loopback(1000 * MB)),
        "disk_write_mb_per_s": round(disk(folder, 500 * MB)),
        "durable_small_files_per_s": round(small_files(folder, 100), 1),
    }


# ------------------------------------------------------------------------------------------------------ the server


class Memory:
    """The resident memory of a process, in megabytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def start(self) -> None:
        """Forget the peak so far."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def peak(self) -> float:
        """Return the peak since."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) * 1024 / MB, 1)


def commit(client: httpx2.Client, repo_id: str, path: str) -> float:
    """Commit one small file and return the seconds that it took."""
    lines = [
        {"key": "header", "value": {"summary": path}},
        {"key": "file", "value": {"path": path, "content": path * 20}},
    ]
    began = time.perf_counter()
    answer = client.post(f"/api/models/{repo_id}/commit/main", content="\n".join(map(json.dumps, lines)).encode())
    answer.raise_for_status()
    return time.perf_counter() - began


def client_of(hub: HubServer) -> httpx2.Client:
    """Return a plain HTTP client with the local user's token."""
    return httpx2.Client(base_url=hub.endpoint, headers={"Authorization": f"Bearer {hub.token}"}, timeout=300)


def commits_by_one(hub: HubServer, count: int) -> dict[str, float]:
    """Measure commits of one client, one after the other."""
    hub.api().create_repo("bench/one")
    with client_of(hub) as client:
        began = time.perf_counter()
        times = [commit(client, "bench/one", f"{number}.txt") for number in range(count)]
        taken = time.perf_counter() - began
    return {"commits": count, "commits_per_s": round(count / taken, 1), **_spread(times)}


def commits_by_many(hub: HubServer, clients: int, each: int, repositories: int) -> dict[str, float]:
    """Measure commits of many clients at once, spread over some repositories."""
    names = [f"bench/many-{repositories}-{number}" for number in range(repositories)]
    for name in names:
        hub.api().create_repo(name)
    times: list[float] = []
    failures: list[str] = []

    def work(number: int) -> None:
        try:
            with client_of(hub) as client:
                for turn in range(each):
                    times.append(commit(client, names[number % repositories], f"{number}/{turn}.txt"))
        except httpx2.HTTPError as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - began
    done = {"clients": clients, "repositories": repositories, "commits": len(times), "failures": len(failures)}
    with client_of(hub) as client:
        found = sum(
            len(client.get(f"/api/models/{name}/commits/main", params={"limit": 1000}).json()) - 1 for name in names
        )
    assert found == clients * each == len(times), (found, len(times), failures[:3])
    return {**done, "commits_per_s": round(len(times) / taken, 1), **_spread(times)}


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median_ms": round(statistics.median(ordered) * 1000, 1),
        "p95_ms": round(ordered[int(len(ordered) * 0.95) - 1] * 1000, 1),
    }


# ------------------------------------------------------------------------------------------------------ large files


def make_file(path: Path, size: int) -> str:
    """Write a file that neither compresses nor repeats, and return its sha256."""
    digest, block = hashlib.sha256(), bytearray(secrets.token_bytes(1 << 20))
    with path.open("wb") as file:
        for number in range(-(-size // len(block))):
            # Each block is the one before with other bytes here and there, so that no chunk is met twice.
            block[number % 4096 :: 4096] = secrets.token_bytes(len(block[number % 4096 :: 4096]))
            piece = bytes(block[: size - number * len(block)])
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _client_step(queue: Any, endpoint: str, token: str, xet: bool, what: str, path: str, folder: str) -> None:
    """Upload or download one file with the stock client; in a process of its own, which starts with empty caches."""
    os.environ.update(
        HF_HOME=folder, HF_HUB_DISABLE_XET="0" if xet else "1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_XET_CACHE=folder
    )
    from huggingface_hub import HfApi

    api, name = HfApi(endpoint=endpoint, token=token), "xet.bin" if xet else "lfs.bin"
    began = time.perf_counter()
    if what == "upload":
        api.upload_file(path_or_fileobj=path, path_in_repo=name, repo_id="bench/large")
        queue.put((time.perf_counter() - began, ""))
    else:
        got = api.hf_hub_download("bench/large", name, cache_dir=folder)
        taken = time.perf_counter() - began
        with Path(got).open("rb") as file:
            queue.put((taken, hashlib.file_digest(file, "sha256").hexdigest()))


def large_file(hub: HubServer, memory: Memory, folder: Path, size: int, xet: bool) -> dict[str, Any]:
    """Measure a large file on its way up and down, with the stock client."""
    path = folder / "large"
    digest = make_file(path, size)
    found: dict[str, Any] = {"bytes": size, "through": "Xet" if xet else "Git LFS"}
    context = multiprocessing.get_context("spawn")
    for what in ("upload", "download"):
        place, queue = folder / f"client-{what}", context.Queue()
        memory.start()
        before = memory.peak()
        values = (queue, hub.endpoint, hub.token, xet, what, str(path), str(place))
        step = context.Process(target=_client_step, args=values)
        step.start()
        taken, got = queue.get(timeout=1800)
        step.join()
        assert got in ("", digest), "another content came back"
        found[what] = {
            "mb_per_s": round(size / MB / taken, 1),
            "server_memory_before_mb": before,
            "server_memory_peak_mb": memory.peak(),
        }
        shutil.rmtree(place, ignore_errors=True)
    path.unlink()
    return found


def plain_download(hub: HubServer, name: str) -> float:
    """Return megabytes a second of a plain HTTP download that is thrown away."""
    with client_of(hub) as client:
        began, size = time.perf_counter(), 0
        with client.stream("GET", f"/bench/large/resolve/main/{name}") as answer:
            for piece in answer.iter_bytes(1 << 20):
                size += len(piece)
        return round(size / MB / (time.perf_counter() - began), 1)


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", type=int, default=2_000_000_000, help="bytes that go through Git LFS")
    parser.add_argument("--xet", type=int, default=500_000_000, help="bytes that go through Xet")
    given = parser.parse_args()
    described = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {"limits_before": limits(folder)}
        hub = start_hub(folder / "hub")
        memory = Memory(hub.process.pid)
        steps: dict[str, Callable[[], Any]] = {
            "one_client": lambda: commits_by_one(hub, 200),
            "fifty_clients_one_repository": lambda: commits_by_many(hub, 50, 6, 1),
            "fifty_clients_fifty_repositories": lambda: commits_by_many(hub, 50, 6, 50),
        }
        for step, measure in steps.items():
            memory.start()
            found[step] = {**measure(), "server_memory_peak_mb": memory.peak()}
        hub.api().create_repo("bench/large")
        found["git_lfs"] = large_file(hub, memory, folder, given.large, xet=False)
        found["git_lfs"]["plain_http_download_mb_per_s"] = plain_download(hub, "lfs.bin")
        found["xet"] = large_file(hub, memory, folder, given.xet, xet=True)
        hub.stop()
        found["limits_after"] = limits(folder)
    command = "python benchmarks/localhub/throughput.py"
    what = "an embedded Hub against the limits of its machine, in one run; the machine was busy with other work"
    write(
        "localhub_throughput.json",
        {"what": what, "command": command, "machine": described, "versions": versions(), **found},
    )


if __name__ == "__main__":
    main()
