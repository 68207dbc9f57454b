"""A publish with nothing to do: how many calls it makes, and that it sends nothing."""

from __future__ import annotations

from typing import Any

from tests.chaos.faulty import Scene, begin
from tests.chaos.place import Place
from tests.chaos.table import Result

STATES = ("open pull request", "merged pull request", "commit", "pull request closed by a person")


def carry_out(place: Place, state: str, upload: str) -> Result:
    """Publishes, lets a person do something or not, and counts what the next run says to the Hub."""
    from tests.hub.hub_cases import watched

    name, group = f"still/{state}/{upload}", f"nothing changed | {state}"
    mode = "commit" if state == "commit" else "pull-request"
    repo, case, _ = begin(place, Scene(mode, upload, "fresh"))
    first = place.run(case, mode)
    if first.error is not None:
        return Result(name, group, f"the first run failed: {first.error}")
    api = place.server.api()
    if state == "merged pull request":
        api.merge_pull_request(repo, 1)
    if state == "pull request closed by a person":
        api.change_discussion_status(repo, 1, "closed")
    before = place.oracle.snapshot(repo)
    with watched(place.server.endpoint) as proxy:
        looked = _run(place, proxy, lambda: place.run(case, mode, endpoint=proxy.endpoint))
        asked = _run(place, proxy, lambda: _publish(place, case, mode, proxy.endpoint))
        writes = proxy.writes()
    fact = f"Nothing changed, {state}: {looked[0]} calls to see it, {asked[0]} if asked to publish all the same; "
    fact += f"{looked[1] + asked[1]} bytes uploaded."
    problem = ""
    if looked[2] or asked[2]:
        problem = f"a run failed: {looked[2] or asked[2]}"
    elif writes or looked[1] + asked[1]:
        problem = f"it sent {looked[1] + asked[1]} bytes: {writes}"
    elif place.oracle.snapshot(repo) != before:
        problem = "it changed something"
    return Result(name, group, problem, f"{looked[0]} calls", facts=(fact,))


def _run(place: Place, proxy: Any, work: Any) -> tuple[int, int, str]:
    """Calls, bytes of their bodies, and the error if there was one."""
    begin = len(proxy.seen)
    ran = work()
    seen = proxy.seen[begin:]
    return len(seen), sum(size for _, _, size in seen), str(ran.error) if ran.error else ""


def _publish(place: Place, case: Any, mode: str, endpoint: str) -> Any:
    from bot.hub.publish import publish
    from tests.chaos.place import Ran

    try:
        return Ran(publish(place.hub(endpoint), **case.arguments(mode)))
    except Exception as error:
        return Ran(error=error)
