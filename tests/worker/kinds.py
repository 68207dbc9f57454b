"""The kinds of isolation that the machine under test allows, and a worker of each."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

from bot.worker import Isolation, Limits, Worker, why_not

HOSTILE = Path(__file__).parent

ROOMS = {
    "bubblewrap": Isolation("bubblewrap", "asked for by a test"),
    "bubblewrap without proc": Isolation("bubblewrap", "asked for by a test", fresh_proc=False),
    "namespaces": Isolation("namespaces", "asked for by a test"),
    "namespaces without proc": Isolation("namespaces", "asked for by a test", fresh_proc=False),
}
ISOLATED = {**ROOMS, "landlock": Isolation("landlock", "asked for by a test")}
NONE = Isolation("none", "asked for by a test")
ALL = {**ISOLATED, "none": NONE}

_TASKS = (
    "echo count surroundings steal attack_processes reach read write write_everywhere link leave fail "
    "fail_with_subclass divide leave_early die hog spin stay answer_long answer_raw answer_what_is_no_json "
    "print_much fill fill_quietly grow become_root set_user_id threads run_model open_model where exist"
)
TASKS = {name: f"hostile:{name}" for name in _TASKS.split()}


@functools.cache
def _refusal(name: str) -> str:
    wanted = ALL[name]
    if wanted.kind == "none":
        return ""
    if wanted.kind == "bubblewrap" and shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return why_not(wanted)


def worker(name: str, *, limits: Limits | None = None) -> Worker:
    """Return a worker of this kind, or skip the test where the system does not allow it."""
    if refusal := _refusal(name):
        import pytest  # not at the top: a bot of another user, with another Python, imports this module too

        pytest.skip(f"{name}: {refusal}")
    limits = limits or Limits(memory_bytes=4 << 30, seconds=120)
    return Worker(limits=limits, tasks=TASKS, isolation=ALL[name])
