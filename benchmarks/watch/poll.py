"""What one poll costs, for a hundred, a thousand and ten thousand recipes, on an embedded Hub with the Hub's quotas.

    python benchmarks/watch/poll.py

Every recipe has an upstream repository and a target that holds its release; all are real repositories in the store of
an embedded Hub that announces and enforces what the Hub documents for a free account: 1,000 API calls, 5,000 resolver
calls and 200 pages in five minutes. Each poll runs in a process of its own. The first knows nothing; then ten upstreams
get another model, and the second poll, which remembers the first, has to find these ten and no other; the third has its
memory deleted and has to find the same. Each comes from an account of its own, whose window has just begun, as it would
have for polls a quarter of an hour apart.

For comparison, in the same run: the same knowledge by `model_info` of each upstream and each target, of a thousand
recipes at most, with quotas off, since with them it would take hours. How many windows all would need follows from the
number of calls, which is two for each recipe.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "localhub")]

from common import machine, write  # noqa: E402

from tests.hub_server import HubServer, start_hub  # noqa: E402
from tests.watch.fleet_world import Member, members, seed_fleet  # noqa: E402

QUOTAS = {"api": 1_000, "resolvers": 5_000, "pages": 200}
WINDOW = 300
CHANGED = 10
MOST_ASKED = 1_000
ACCOUNTS = ("first", "second", "third")


def _poll(queue: Any, endpoint: str, token: str, recipes: str, memory: str) -> None:
    """One poll, as `bot watch` does it."""
    from bot.hub.budget import Budget
    from bot.hub.client import Hub
    from bot.hub.memory import Memory
    from bot.pipeline.fleet import Fleet
    from bot.pipeline.watching import Watcher

    budget = Budget(0.5)
    began = time.perf_counter()
    fleet = Fleet(Path(recipes))
    remembered = Memory(Path(memory))
    fleet.load((), remembered)
    loaded = time.perf_counter()
    watcher = Watcher(Hub(endpoint, token), fleet, account="local-user", memory=remembered, budget=budget)
    rows = watcher.poll()
    ended = time.perf_counter()
    queue.put(
        {
            "api_calls": budget.buckets["api"].calls,
            "of_these_patrol": watcher.patrolled,
            "resolver_calls": budget.buckets["resolvers"].calls,
            "refused": sum(bucket.refused for bucket in budget.buckets.values()),
            "waited_for_a_window_s": round(sum(bucket.waited for bucket in budget.buckets.values()), 1),
            "seconds_to_load_the_recipes": round(loaded - began, 2),
            "seconds_to_poll": round(ended - loaded, 2),
            "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "states": dict(Counter(row.state for row in rows)),
            "due": sorted(row.recipe for row in rows if row.state == "due"),
        }
    )


def warm_up(hub: HubServer) -> None:
    """Lets the Hub look at all its repositories once, as it would have long ago if it were not just started."""
    request = urllib.request.Request(f"{hub.endpoint}/api/models?limit=1&expand=sha")
    request.add_header("Authorization", f"Bearer {hub.token}")
    with urllib.request.urlopen(request, timeout=900) as answer:
        answer.read()


def poll(hub: HubServer, user: str, folder: Path) -> dict[str, Any]:
    """One poll in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    values = (queue, hub.endpoint, hub.tokens[user], str(folder / "recipes"), str(folder / "memory.json"))
    step = context.Process(target=_poll, args=values)
    step.start()
    found: dict[str, Any] = queue.get(timeout=3600)
    step.join()
    return found


def change(hub: HubServer, fleet: list[Member]) -> list[str]:
    """Commits another model to ten upstreams, and returns the recipes."""
    from huggingface_hub import CommitOperationAdd

    api, chosen = hub.api(), random.Random(20).sample(fleet, min(CHANGED, len(fleet)))  # noqa: S311
    for member in chosen:
        operation = CommitOperationAdd("model.onnx", f"other weights of {member.name}".encode())
        api.create_commit(member.upstream, [operation], commit_message="Other weights")
    return sorted(member.name for member in chosen)


def one_by_one(folder: Path, fleet: list[Member]) -> dict[str, Any]:
    """The same knowledge by `model_info` of each repository, quotas off."""
    hub = start_hub(folder / "hub", timeout=900)
    asked = fleet[:MOST_ASKED]
    try:
        api = hub.api()
        began, calls = time.perf_counter(), 0
        for member in asked:
            api.model_info(member.upstream, expand=["sha", "lastModified"])
            api.model_info(member.target, expand=["sha", "lastModified", "cardData"])
            calls += 2
        taken = time.perf_counter() - began
    finally:
        hub.stop()
    needed = 2 * len(fleet)
    return {
        "api_calls_needed": needed,
        "windows_of_five_minutes_needed_with_the_whole_quota": -(-needed // QUOTAS["api"]),
        "recipes_asked": len(asked),
        "api_calls": calls,
        "seconds_without_quotas": round(taken, 1),
    }


def measure(folder: Path, count: int, owners: int) -> dict[str, Any]:
    """All polls of a fleet of one size."""
    fleet = members(count, owners)
    print(f"seeding {count}", flush=True)
    began = time.perf_counter()
    seed_fleet(folder / "hub", folder / "recipes", fleet)
    seeded = time.perf_counter() - began
    limits = [option for name, quota in QUOTAS.items() for option in ("--rate-limit", f"{name}={quota}/{WINDOW}")]
    users = [option for user in ACCOUNTS for option in ("--user", user)]
    hub = start_hub(folder / "hub", *limits, *users, timeout=900)
    try:
        found: dict[str, Any] = {"recipes": count, "owners": owners, "seconds_to_seed": round(seeded, 1)}
        warm_up(hub)
        print("polling", flush=True)
        found["first_poll"] = poll(hub, ACCOUNTS[0], folder)
        assert found["first_poll"]["states"] == {"current": count}, found["first_poll"]["states"]
        changed = change(hub, fleet)
        found["after_ten_changes"] = poll(hub, ACCOUNTS[1], folder)
        (folder / "memory.json").unlink()
        found["memory_deleted"] = poll(hub, ACCOUNTS[2], folder)
        for step in ("after_ten_changes", "memory_deleted"):
            assert found[step].pop("due") == changed, step
            found[step]["found"] = f"{len(changed)} of {len(changed)}, and no other"
        found["first_poll"].pop("due")
        assert all(found[step]["refused"] == 0 for step in ("first_poll", "after_ten_changes", "memory_deleted"))
    finally:
        hub.stop()
    found["one_by_one"] = one_by_one(folder, fleet)
    return found


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--owners", type=int, default=300, help="of the upstreams; at most a third of the recipes")
    parser.add_argument("--folder", type=Path, help="for the repositories; a temporary one if left out")
    given = parser.parse_args()
    described, sizes = machine(), []
    for count in given.recipes:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            sizes.append(measure(folder, count, min(given.owners, count // 3)))
            keep(given.recipes[: len(sizes)], described, sizes)
        finally:
            shutil.rmtree(folder)


def keep(counts: list[int], described: dict[str, Any], sizes: list[dict[str, Any]]) -> None:
    """Keep the result, after each size: the largest takes long."""
    names = ("huggingface_hub", "pygit2", "starlette", "uvicorn", "pydantic", "ruamel.yaml")
    write(
        "watch.json",
        {
            "what": "one poll of bot watch against the number of recipes; the machine was busy with other work",
            "command": "python benchmarks/watch/poll.py --recipes " + " ".join(map(str, counts)),
            "machine": described,
            "versions": {"python": sys.version.split()[0], **{name: metadata.version(name) for name in names}},
            "quotas": {**QUOTAS, "window_s": WINDOW, "share_that_a_poll_may_use": 0.5},
            "sizes": sizes,
        },
    )


if __name__ == "__main__":
    main()
