"""Publishing that is killed, and publishing that happens twice at once: one right end state each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hub_cases import make_case
from hub_here import Here

from bot.hub.verify import require, verify

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pull-request", "commit"])
def test_a_kill_at_any_moment_and_a_second_run_end_in_one_release(here: Here, mode: str) -> None:
    command = [sys.executable, str(FOLDER / "kill_points.py"), here.server.endpoint, here.server.token]
    result = subprocess.run([*command, str(here.folder), mode], capture_output=True, text=True, timeout=580)
    assert result.returncode == 0, result.stderr[-3000:]
    moments = [json.loads(line) for line in result.stdout.splitlines()]
    assert sum(moment["killed"] for moment in moments) >= 12 and not moments[-1]["killed"]
    api, hub = here.api(), here.hub()
    for moment in moments:
        assert moment["again"] == 0, (moment, result.stderr[-3000:])
        target = moment["target"]
        items = api.get_repo_discussions(target, discussion_type="pull_request")
        states = sorted((item.num, item.status) for item in items)
        if mode == "pull-request":
            assert states == [(1, "closed"), (2, "open")], moment
        else:
            assert states == [], moment
            assert sum("Release-Id" in commit.message for commit in api.list_repo_commits(target)) == 2, moment
        revision = "refs/pr/2" if mode == "pull-request" else "main"
        require(verify(hub, target, revision, here.cache()))


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from hub_cases import QUICK, make_case
from bot.hub.client import Hub
from bot.hub.publish import publish
endpoint, token, folder, target, mode = sys.argv[3:]
case = make_case(Path(folder), target)
hub = Hub(endpoint, token, policy=QUICK)
hub.account
print("ready", flush=True)
sys.stdin.readline()
done = publish(hub, **case.arguments(mode))
print(done.kind, done.number, flush=True)
"""


@pytest.mark.parametrize("mode", ["pull-request", "commit"])
@pytest.mark.parametrize("round_", range(2))
def test_two_bots_at_once_end_with_one_release(here: Here, round_: int, mode: str) -> None:
    def start(name: str) -> subprocess.Popen[str]:
        arguments = [here.server.endpoint, here.server.token, str(here.folder / name), here.target, mode]
        command = [sys.executable, "-c", SCRIPT, str(ROOT), str(FOLDER), *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    bots = [start("a"), start("b")]
    for bot in bots:
        assert bot.stdout is not None and bot.stdout.readline() == "ready\n"
    ends = []
    for bot in bots:
        assert bot.stdin is not None
        bot.stdin.write("go\n")
        bot.stdin.flush()
    for bot in bots:
        out, error = bot.communicate(timeout=60)
        assert bot.returncode == 0, error
        ends.append(out.split())
    # Whoever comes next finds one, whatever the two of them saw of each other.
    case = make_case(here.folder / "c", here.target)
    here.publish(case, mode)
    if mode == "pull-request":
        assert [status for _, status in here.pull_requests()].count("open") == 1
        assert dict(here.pull_requests())[1] == "open"
        assert ends == [["pull-request", "1"], ["pull-request", "1"]]
    else:
        assert here.pull_requests() == []
        commits = here.api().list_repo_commits(here.target)
        assert sum("Release-Id" in commit.message for commit in commits) == 1
        assert sorted(end[0] for end in ends) in (["commit", "nothing"], ["commit", "commit"])
