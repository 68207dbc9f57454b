"""The discussion about a withheld release is closed by the next run, if the run that published could not close it."""

from __future__ import annotations

from bot.hub.client import Hub
from bot.hub.withheld import report_withheld
from bot.records import Release
from tests.world import TARGET, World


def test_a_discussion_about_an_older_release_is_closed_by_a_run_with_nothing_else_to_do(world: World) -> None:
    world.publish()
    hub = Hub(world.hub.endpoint, world.hub.token)
    release = Release.from_json(hub.read_bytes(TARGET, "refs/pr/1", "release.json"))
    report_withheld(hub, release.model_copy(update={"identity": "0" * 64}), title="Withheld", text="It failed.")
    assert world.publish()["publication"]["kind"] == "nothing"
    (notice,) = [each for each in world.api.get_repo_discussions(TARGET) if not each.is_pull_request]
    assert notice.status == "closed"
