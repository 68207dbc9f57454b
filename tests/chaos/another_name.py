"""A Hub that shows the bot's work under another name than it gives to the bot.

It happens where an account was renamed, or where a publisher that holds no token of its own commits as a system user.
"""

from __future__ import annotations

from tests.chaos.faulty import Scene, begin
from tests.chaos.place import Place, unclear
from tests.chaos.table import Result

NAME = "somebody-else"


def carry_out(place: Place, mode: str) -> Result:
    """One run that cannot know its own work again: it may open one pull request, or make one commit, and no more."""
    name, group = f"another-name/{mode}", "the Hub shows the bot under another name | at most one"
    repo, case, before = begin(place, Scene(mode, "lfs", "fresh"))
    answer = f'{{"type": "user", "name": "{NAME}", "fullname": "{NAME}"}}'
    place.server.fault("status", "/api/whoami-v2", "GET", status=200, body=answer, times=0)
    try:
        ran = place.run(case, mode)
    finally:
        place.server.clear_faults()
    now = place.oracle.snapshot(repo)
    opened, made = len(now.conversations) - len(before.conversations), len(now.history) - max(len(before.history), 1)
    note = f"{opened} opened" if mode == "pull-request" else f"{made} committed"
    if opened + made > 1:
        return Result(name, group, f"one run opened {opened} pull requests and made {made} commits", note)
    problem = unclear(ran.error)
    return Result(name, group, f"the run {problem}" if problem else "", note, str(ran.error or ""))
