"""What a watcher finds of recipes that settle, follow a tag, read an address, or whose repositories are edited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.errors import HubError, UpstreamError
from bot.hub.client import Hub
from bot.pipeline.identity import Digests, identity, recipe_id
from bot.recipe import load_recipe
from bot.records import Release
from bot.watch.findings import Row
from tests.watch.conftest import FleetWorld
from tests.watch.fleet_world import Member, target_files


@pytest.fixture
def member(small: FleetWorld, request: pytest.FixtureRequest) -> Iterator[Member]:
    """A recipe of the fleet for each test, put back to what is published afterwards."""
    index = sorted(item.name for item in request.session.items if item.module is request.module).index(
        request.node.name
    )
    chosen = small.members[index % len(small.members)]
    recipe = small.recipes / chosen.name / "recipe.yaml"
    text = recipe.read_text()
    yield chosen
    recipe.write_text(text)
    small.change(chosen, f"the weights of {chosen.name}")
    small.release(chosen, f"the weights of {chosen.name}")


def _edit(small: FleetWorld, member: Member, old: str, new: str) -> None:
    path = small.recipes / member.name / "recipe.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _row(small: FleetWorld, member: Member, at: datetime | None = None) -> Row:
    watcher = small.watcher()
    if at is not None:
        watcher = replace(watcher, now=lambda: at)
    (row,) = watcher.poll([member.name])
    return row


def _commit_date(small: FleetWorld, member: Member) -> datetime:
    newest: datetime = small.hub.api().list_repo_commits(member.upstream)[0].created_at
    return newest.astimezone(UTC)


def test_an_upstream_commit_settles_before_it_is_acted_on(small: FleetWorld, member: Member) -> None:
    _edit(small, member, "{repo: a", "{cooldown: 6h, repo: a")
    assert _row(small, member).state == "current"  # The cooldown is no part of what is published.
    small.change(member, "other weights")
    pushed = _commit_date(small, member)
    row = _row(small, member, pushed + timedelta(hours=5, minutes=59))
    assert row.state == "cooling down" and row.finding.until == pushed + timedelta(hours=6)
    assert row.finding.reasons == ("upstream files",) and row.due() is None
    assert _row(small, member, pushed + timedelta(hours=6)).state == "due"
    small.change(member, "yet other weights")
    again = _commit_date(small, member)
    row = _row(small, member, max(again, pushed + timedelta(hours=6)))
    assert row.finding.until == again + timedelta(hours=6)


def test_a_recipe_that_changes_waits_for_no_upstream(small: FleetWorld, member: Member) -> None:
    _edit(small, member, "{repo: a", "{cooldown: 2d, repo: a")
    _edit(small, member, "tags: [onnx]", "tags: [onnx, fp16]")
    small.upload(member.upstream, {"README.md": b"---\nlicense: mit\n---\nOther words\n"})
    row = _row(small, member)
    assert row.state == "due" and row.finding.reasons == ("recipe",)


def test_a_tag_is_followed_and_main_is_not(small: FleetWorld, member: Member) -> None:
    api = small.hub.api()
    api.create_tag(member.upstream, tag="v1")
    _edit(small, member, "{repo: a", "{follow: v1, repo: a")
    assert _row(small, member).finding.reasons == ("recipe",)
    small.release(member, f"the weights of {member.name}")
    assert _row(small, member).state == "current"
    small.change(member, "other weights")
    assert _row(small, member).state == "current"
    api.delete_tag(member.upstream, tag="v1")
    api.create_tag(member.upstream, tag="v1")
    assert _row(small, member).finding.reasons == ("upstream files",)
    api.delete_tag(member.upstream, tag="v1")
    row = _row(small, member)
    assert row.state == "unavailable" and isinstance(row.error, UpstreamError)


def test_a_file_at_an_address_never_changes(small: FleetWorld, member: Member) -> None:
    address = "url: https://example.org/model.onnx, sha256: " + "ab" * 32
    _edit(small, member, f"repo: {member.upstream}", address)
    _edit(small, member, ", copies: [config.json]", "")
    recipe = load_recipe(small.recipes / member.name)
    digests = Digests({"network": "ab" * 32}, {}, small.samples)
    hub = Hub(small.hub.endpoint, small.hub.token)
    old = Release.from_json(hub.read_bytes(member.target, "main", "release.json"))
    source = old.source.model_copy(update={"repo": "", "url": "https://example.org/model.onnx", "commit": "ab" * 32})
    ids = {"identity": identity(recipe, digests), "recipe_id": recipe_id(recipe), "source": source}
    assert _row(small, member).state == "due"
    small.upload(member.target, target_files(old.model_copy(update=ids)))
    row = _row(small, member)
    assert row.state == "current" and row.upstream == "https://example.org/model.onnx"


@pytest.mark.filterwarnings("ignore:Warnings while validating metadata")
@pytest.mark.parametrize("card", ["# Our own words\n", "---\nlicense: mit\n---\n# Without its keys\n", ""])
def test_a_card_that_a_person_wrote_anew_hides_no_release(small: FleetWorld, member: Member, card: str) -> None:
    small.upload(member.target, {"README.md": (card or " ").encode()})
    row = _row(small, member)
    assert row.state == "current" and len(row.published) == 40


def test_a_branch_of_the_data_set_is_followed(small: FleetWorld, member: Member) -> None:
    _edit(small, member, f", revision: {small.samples_commit}", "")
    assert _row(small, member).finding.reasons == ("recipe",)
    small.release(member, f"the weights of {member.name}")
    assert _row(small, member).state == "current"
    from huggingface_hub import CommitOperationAdd

    operation = CommitOperationAdd("metadata.jsonl", b'{"file_name": "images/1.png"}\n')
    small.hub.api().create_commit("data/pictures", [operation], commit_message="Other", repo_type="dataset")
    try:
        assert _row(small, member).finding.reasons == ("samples",)
    finally:
        operation = CommitOperationAdd("metadata.jsonl", b'{"file_name": "images/0.png"}\n')
        small.hub.api().create_commit("data/pictures", [operation], commit_message="Back", repo_type="dataset")
    assert _row(small, member).state == "current"


def test_a_private_upstream_of_somebody_else_is_not_there(small: FleetWorld, member: Member, tmp_path: Path) -> None:
    api = small.hub.api()
    api.update_repo_settings(member.upstream, visibility="private")
    try:
        stranger = replace(small.watcher(), hub=Hub(small.hub.endpoint))
        (row,) = stranger.poll([member.name])
        assert row.state == "unavailable" and isinstance(row.error, UpstreamError | HubError)
        assert _row(small, member).state == "current"
    finally:
        api.update_repo_settings(member.upstream, visibility="public")


def test_an_upstream_without_a_card_has_a_commit_all_the_same(small: FleetWorld) -> None:
    member = small.members[-1]  # Asked by a HEAD of its card.
    small.hub.api().delete_file("README.md", member.upstream)
    assert _row(small, member).state == "current"
    small.change(member, "other weights")
    assert _row(small, member).finding.reasons == ("upstream files",)


def test_who_publishes_must_be_known(small: FleetWorld) -> None:
    with pytest.raises(HubError, match="token"):
        replace(small.watcher(), hub=Hub(small.hub.endpoint), account=None).poll()
