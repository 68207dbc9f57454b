"""What the bot finds on systems that allow less than this one: each is made here, with the kernel's own means."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import HOSTILE

import bot
from bot.isolation import kernel

ROOT = Path(bot.__file__).parent.parent

_REPORT = """
import json
from bot.errors import StepError
from bot.worker import Worker, isolation
found = isolation()
tasks = {"echo": "hostile:echo"}
answer = Worker(tasks=tasks).call("echo", {"a": 1}, extra_path=[EXTRA])
try:
    Worker(tasks=tasks, require_isolation=True).call("echo", {}, extra_path=[EXTRA])
    error = ""
except StepError as refusal:
    error = str(refusal)
print(json.dumps([found.kind, found.fresh_proc, found.reason, answer, error]))
"""


def _report(*before: str, path: str = os.environ["PATH"], script: str = "") -> tuple[str, bool, str, str]:
    """Return kind, own /proc, reason and the refusal of a bot that demands isolation, on a system made less able."""
    code = f"{script}\nfrom pathlib import Path\nEXTRA = Path({str(HOSTILE)!r})\n{_REPORT}"
    variables = {"PATH": path, "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    command = [*before, sys.executable, "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kind, fresh_proc, reason, answer, error = json.loads(done.stdout)
    assert answer == {"a": 1}
    return kind, fresh_proc, reason, error


@pytest.fixture
def nested() -> list[str]:
    """Return a command that starts another in a user namespace, where a test may change the rules."""
    unshare = shutil.which("unshare")
    command = [unshare or "", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
    if unshare is None or subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system allows no user namespaces")
    return command


def test_bubblewrap_comes_first(nested: list[str]) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assert _report() == ("bubblewrap", True, "bubblewrap is installed", "")
    assert _report(*nested)[:2] == ("bubblewrap", True)


def test_namespaces_of_our_own_come_second(nested: list[str]) -> None:
    expected = ("namespaces", True, "the kernel allows user namespaces", "")
    assert _report(path="/nonexistent") == expected
    assert _report(*nested, path="/nonexistent") == expected


def test_a_covered_proc_means_a_room_without_one(nested: list[str]) -> None:
    """As in most containers: the kernel then lets nobody mount a new /proc."""
    cover = ["sh", "-c", 'mount -t tmpfs none /proc/driver && exec "$@"', "sh"]
    kind, fresh_proc, reason, error = _report(*nested, *cover, path="/usr/bin:/bin")
    assert kind in ("bubblewrap", "namespaces") and not fresh_proc and not error
    assert "no /proc of its own" in reason


def test_landlock_comes_last(nested: list[str]) -> None:
    if kernel.landlock_version() < 3:
        pytest.skip("this kernel has no Landlock, or an old one")
    forbid = ["sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    kind, _, reason, error = _report(*nested, *forbid)
    assert (kind, error) == ("landlock", "")
    assert reason.startswith("the kernel has Landlock; ")
    assert "namespaces: unshare: No space left on device" in reason


_FORBID = """
import os
from bot.isolation import kernel, seccomp
del seccomp._DENIED[os.uname().machine]["socket"]
seccomp._DENIED_EVERYWHERE["landlock_create_ruleset"] = 444
kernel.gain_no_privileges()
seccomp.install()
"""


def test_where_nothing_is_allowed_the_reasons_are_given_and_a_plain_child_runs() -> None:
    kind, _, reason, error = _report(script=_FORBID)
    assert kind == "none"
    assert "namespaces: unshare: Operation not permitted" in reason
    assert "landlock: Landlock: version 3 is needed and the kernel has 0" in reason
    assert ("bubblewrap: bwrap: " in reason) == (shutil.which("bwrap") is not None)
    assert error.startswith("echo: Isolation is required, and this system allows none (")
    assert reason in error and "Install bubblewrap" in error


def test_a_bot_without_a_network_isolates_all_the_same(nested: list[str]) -> None:
    assert _report(*nested, "unshare", "--net")[0] in ("bubblewrap", "namespaces")
