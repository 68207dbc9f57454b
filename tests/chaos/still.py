"""A publish with nothing to do: how many calls it makes, and that it sends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.chaos.faulty import Scene, begin
from tests.chaos.oracle import Oracle
from tests.chaos.place import Place
from tests.chaos.table import Result

MACHINES = ("machine that published it", "fresh machine")
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


def whole_command(place: Place, where: str) -> Result:
    """`bot publish` as a person types it, from upstream on, when its pull request is open and nothing has changed."""
    from tests.hub.hub_cases import watched
    from tests.world import TARGET, make_world

    name, group = f"still/whole command, {where}", "nothing changed | the whole command"
    world = make_world(place.scratch())
    try:
        world.publish()
        before = Oracle(world.hub.endpoint, world.hub.token).snapshot(TARGET)
        if where == "fresh machine":
            world.work.rename(world.folder / "elsewhere")
        with watched(world.hub.endpoint) as proxy:
            done = replace(world, hub=replace(world.hub, endpoint=proxy.endpoint)).publish()
            calls, sent = len(proxy.seen), sum(size for _, path, size in proxy.seen if "/paths-info/" not in path)
            writes = proxy.writes()
        after = Oracle(world.hub.endpoint, world.hub.token).snapshot(TARGET)
    finally:
        world.hub.kill()
    fact = f"Nothing changed, `bot publish` on a {where}: {calls} calls, those to the upstream included; "
    fact += f"{sent} bytes uploaded."
    problem = ""
    if writes or sent or after != before or done["publication"]["kind"] != "nothing":
        problem = f"it sent {sent} bytes in {writes}, or changed something: {done['publication']['kind']}"
    return Result(name, group, problem, f"{calls} calls", facts=(fact,))


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
