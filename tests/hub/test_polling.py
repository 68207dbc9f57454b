"""Polling very many repositories: which way is taken, when a long listing ends, and what is never taken on trust."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.errors import HubError
from bot.hub.budget import Budget
from bot.hub.client import Garbled, NotFound
from bot.hub.memory import Memory
from bot.hub.polling import Poller, Seen, Want
from bot.hub.retry import HubUnavailable

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PAGE = 10


def sha(text: str) -> str:
    """A commit by a name."""
    return text.encode().hex().rjust(40, "0")[-40:]


@dataclass
class FakeHub:
    """Repositories with their newest commit and its date, listed newest first, ten a page."""

    repos: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    cards: dict[str, Any] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    failure: HubError | None = None

    def push(self, repo: str, name: str, date: datetime) -> None:
        """A commit."""
        self.repos[repo] = (sha(name), date)

    def models_of(self, author: str, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """The listing of an owner."""
        rows = [
            {"id": repo, "sha": head, "lastModified": f"{date:%Y-%m-%dT%H:%M:%S}.000Z"}
            | ({"cardData": self.cards.get(repo)} if "cardData" in fields else {})
            for repo, (head, date) in self.repos.items()
            if repo.lower().startswith(f"{author.lower()}/") and repo not in self.unlisted
        ]
        rows.sort(key=lambda row: str(row["lastModified"]), reverse=True)
        for start in range(0, max(len(rows), 1), PAGE):
            self.calls.append(f"list {author}")
            if self.failure:
                raise self.failure
            yield rows[start : start + PAGE]

    def commit_of(self, repo: str, revision: str, *, repo_type: str = "model") -> str:
        """A HEAD."""
        self.calls.append(f"head {repo}@{revision}")
        if repo not in self.repos:
            raise NotFound("there is no such repository.", where=repo)
        return self.repos[repo][0]


def fleet(count: int, owner: str = "owner") -> FakeHub:
    """An owner's repositories, the first the newest, an hour apart."""
    hub = FakeHub()
    for index in range(count):
        hub.push(f"{owner}/m{index}", f"a{index}", NOW - timedelta(hours=index))
    return hub


def poll(hub: FakeHub, wants: list[Want], memory: Memory | None = None, now: datetime = NOW) -> dict[Want, Any]:
    """One poll; the calls that it made are in `hub.calls`."""
    hub.calls.clear()
    fake: Any = hub
    return dict(Poller(fake, memory or Memory(), Budget(), now=lambda: now).poll(wants))


def test_many_of_one_owner_take_one_listing_and_few_a_head_each() -> None:
    hub = fleet(9)
    hub.push("lone/model", "x", NOW)
    wants = [*(Want(f"owner/m{index}") for index in range(9)), Want("lone/model")]
    found = poll(hub, wants)
    assert hub.calls == ["list owner", "head lone/model@main"]
    assert found[Want("owner/m3")] == Seen(sha("a3"), "2026-11-30T09:00:00.000Z")
    assert found[Want("lone/model")] == Seen(sha("x"))


@pytest.mark.parametrize(("count", "calls"), [(4, 4), (5, 1), (6, 1)])
def test_the_way_that_uses_up_the_smaller_share_of_its_quota_is_taken(count: int, calls: int) -> None:
    hub = fleet(count)
    poll(hub, [Want(f"owner/m{index}") for index in range(count)])
    assert len(hub.calls) == calls  # Documented: five times as many HEADs as API calls.


def test_another_branch_and_a_data_set_are_asked_by_name() -> None:
    hub = fleet(6)
    wants = [Want("owner/m1", "v2"), Want("owner/m2", "main", "dataset")]
    poll(hub, wants)
    assert hub.calls == ["head owner/m1@v2", "head owner/m2@main"]


def test_a_long_listing_ends_at_what_was_seen_before() -> None:
    hub, memory = fleet(100), Memory()
    wants = [Want(f"owner/m{index}") for index in range(0, 100, 2)]
    first = poll(hub, wants, memory)
    assert hub.calls == ["list owner"] * 10
    assert poll(hub, wants, memory) == first and hub.calls == ["list owner"]
    hub.push("owner/m98", "b98", NOW + timedelta(minutes=1))
    found = poll(hub, wants, memory)
    assert hub.calls == ["list owner"] and found[Want("owner/m98")].sha == sha("b98")
    assert {want: seen for want, seen in found.items() if seen != first[want]}.keys() == {Want("owner/m98")}


def test_more_changes_than_a_page_holds_are_all_seen() -> None:
    hub, memory = fleet(100), Memory()
    wants = [Want(f"owner/m{index}") for index in range(100)]
    poll(hub, wants, memory)
    for index in range(60, 85):
        hub.push(f"owner/m{index}", f"b{index}", NOW + timedelta(minutes=index))
    found = poll(hub, wants, memory)
    assert [found[Want(f"owner/m{index}")].sha for index in range(60, 85)] == [sha(f"b{n}") for n in range(60, 85)]
    assert len(hub.calls) == 3


def test_a_push_of_the_very_moment_of_the_last_reading_is_seen() -> None:
    hub, memory = fleet(40), Memory()
    wants = [Want(f"owner/m{index}") for index in range(40)]
    poll(hub, wants, memory)
    hub.push("owner/m30", "b30", NOW)  # As old as the newest change that was seen.
    assert poll(hub, wants, memory)[Want("owner/m30")].sha == sha("b30")
    hub.push("owner/m31", "b31", NOW - timedelta(minutes=9))  # Told late, or by another clock.
    assert poll(hub, wants, memory)[Want("owner/m31")].sha == sha("b31")
    for index in range(8):
        hub.push(f"owner/m{index + 20}", f"b{index}", NOW + timedelta(minutes=index))
    poll(hub, wants, memory)
    mark = NOW + timedelta(minutes=7)
    for index in range(8):
        hub.push(f"owner/m{index + 20}", f"c{index}", mark + timedelta(minutes=index))
    hub.push("owner/m37", "c37", mark - timedelta(minutes=4))
    hub.push("owner/m38", "c38", mark - timedelta(minutes=5))
    hub.push("owner/m39", "c39", mark - timedelta(minutes=6))  # The first of the second page.
    assert poll(hub, wants, memory)[Want("owner/m39")].sha == sha("c39")


def test_a_history_that_was_put_back_is_seen_at_the_latest_after_a_day() -> None:
    hub, memory = fleet(100), Memory()
    wants = [Want(f"owner/m{index}") for index in range(100)]
    poll(hub, wants, memory)
    hub.push("owner/m0", "old", NOW - timedelta(days=300))
    poll(hub, wants, memory)
    later = poll(hub, wants, memory, NOW + timedelta(days=1))
    assert later[Want("owner/m0")].sha == sha("old") and len(hub.calls) == 10
    short, small = fleet(8), Memory()
    mine = [Want(f"owner/m{index}") for index in range(8)]
    poll(short, mine, small)
    short.push("owner/m0", "old", NOW - timedelta(days=300))
    assert poll(short, mine, small)[Want("owner/m0")].sha == sha("old")  # One page is always read whole: at once.


def test_a_hub_that_lists_in_another_order_is_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, memory = fleet(100), Memory()
    wants = [Want(f"owner/m{index}") for index in range(100)]
    poll(hub, wants, memory)
    whole = hub.models_of

    def oldest_first(author: str, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        rows = [row for page in whole(author, fields) for row in page][::-1]
        hub.calls.clear()
        for start in range(0, len(rows), PAGE):
            hub.calls.append(f"list {author}")
            yield rows[start : start + PAGE]

    monkeypatch.setattr(hub, "models_of", oldest_first)
    hub.push("owner/m98", "b98", NOW + timedelta(minutes=1))
    assert poll(hub, wants, memory)[Want("owner/m98")].sha == sha("b98")
    assert hub.calls == ["list owner"] * 10


def test_a_recipe_that_came_later_is_not_taken_from_a_memory_that_does_not_know_it() -> None:
    hub, memory = fleet(100), Memory()
    poll(hub, [Want(f"owner/m{index}") for index in range(20)], memory)
    wants = [*(Want(f"owner/m{index}") for index in range(20)), Want("owner/m99")]
    assert poll(hub, wants, memory)[Want("owner/m99")].sha == sha("a99")
    assert hub.calls == ["list owner", "head owner/m99@main"]
    hub.unlisted.add("owner/m99")  # A private one would never be told of.
    hub.push("owner/m99", "b99", NOW + timedelta(minutes=1))
    assert poll(hub, wants, memory)[Want("owner/m99")].sha == sha("b99")
    hub.unlisted.clear()
    everything = [Want(f"owner/m{index}") for index in range(100)]
    assert len(poll(hub, everything, memory)) == 100  # So many are cheaper by reading the listing to its end.
    assert hub.calls == ["list owner"] * 10


def test_a_repository_that_is_upstream_and_target_takes_no_call_more() -> None:
    hub = fleet(6)
    wants = [Want(f"owner/m{index}", card=card) for index in range(6) for card in (False, True)]
    assert len(poll(hub, wants)) == 12 and hub.calls == ["list owner"]


def test_what_a_listing_does_not_tell_of_is_asked_by_name_and_may_be_gone() -> None:
    hub = fleet(8)
    hub.unlisted = {"owner/m1"}
    del hub.repos["owner/m2"]
    found = poll(hub, [Want(f"owner/m{index}") for index in range(8)])
    assert hub.calls == ["list owner", "head owner/m1@main", "head owner/m2@main"]
    assert found[Want("owner/m1")].sha == sha("a1") and isinstance(found[Want("owner/m2")], NotFound)


def test_the_card_of_a_target_tells_its_release_if_it_is_one() -> None:
    hub = fleet(6)
    hub.cards = {
        "owner/m0": {"release_id": "a" * 64, "source_commit": "b" * 40, "recipe_id": "c" * 64, "license": "mit"},
        "owner/m1": {"release_id": "${{ secrets }}", "source_commit": ["x"], "recipe_id": "C" * 64},
        "owner/m2": ["not", "a mapping"],
        "owner/m3": None,
    }
    found = poll(hub, [Want(f"owner/m{index}", card=True) for index in range(6)])
    assert found[Want("owner/m0", card=True)].card == {
        "release_id": "a" * 64,
        "source_commit": "b" * 40,
        "recipe_id": "c" * 64,
    }
    assert [found[Want(f"owner/m{index}", card=True)].card for index in range(1, 6)] == [{}] * 5


@pytest.mark.parametrize("row", [{"id": 7}, {"id": "owner/m0"}, {"id": "owner/m0", "sha": "; rm -rf /"}, {}])
def test_a_row_that_makes_no_sense_is_asked_by_name(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hub = fleet(6)
    whole = hub.models_of
    monkeypatch.setattr(
        hub,
        "models_of",
        lambda *a: ([row, *page[1:]] if page and page[0]["id"] == "owner/m0" else page for page in whole(*a)),
    )
    found = poll(hub, [Want(f"owner/m{index}") for index in range(6)])
    assert found[Want("owner/m0")] == Seen(sha("a0")) and "head owner/m0@main" in hub.calls


def test_one_owners_trouble_is_its_own_and_silence_is_everybodys() -> None:
    hub = fleet(6)
    hub.push("lone/model", "x", NOW)
    hub.failure = Garbled("makes no sense", where="owner")
    wants = [*(Want(f"owner/m{index}") for index in range(6)), Want("lone/model")]
    found = poll(hub, wants)
    assert isinstance(found[Want("owner/m0")], Garbled) and found[Want("lone/model")].sha == sha("x")
    hub.failure = HubUnavailable("no answer")
    with pytest.raises(HubUnavailable):
        poll(hub, wants)


def test_ten_thousand_over_three_hundred_owners_fit_into_a_third_of_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PAGE", 1000)
    owners = {f"author-{index}": FakeHub() for index in range(300)} | {"fleet": FakeHub()}
    hub = FakeHub()
    for index in range(10_000):
        date = NOW - timedelta(minutes=index)
        owners[f"author-{index % 300}"].push(f"author-{index % 300}/m{index}", f"a{index}", date)
        owners["fleet"].push(f"fleet/m{index}", f"b{index}", date)

    def models_of(author: str, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        for page in owners[author].models_of(author, fields):
            hub.calls.append(author)
            yield page

    monkeypatch.setattr(hub, "models_of", models_of)
    names = [f"author-{index % 300}/m{index}" for index in range(10_000)]
    wants = [Want(name) for name in names] + [Want(f"fleet/m{index}", card=True) for index in range(10_000)]
    memory = Memory()
    first = poll(hub, wants, memory)
    assert len(first) == 20_000 and len(hub.calls) == 300 + 10  # A page each, and ten of the fleet's own.
    changed = [names[index] for index in range(7, 10_000, 1_000)]
    for name in changed:
        owners[name.partition("/")[0]].push(name, f"c{name}", NOW + timedelta(minutes=1))
    second = poll(hub, wants, memory)
    assert len(hub.calls) == 300 + 1
    assert [want.repo for want in wants if second[want] != first[want]] == changed
    assert poll(hub, wants, Memory()) == second


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_a_memory_that_was_damaged_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    memory = Memory(path)
    memory.put("kind", "key", {"fact": 1})
    memory.save()
    assert Memory(path).get("kind", "key") == {"fact": 1}
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        assert Memory(path).get("kind", "key") is None
    for text in (b"", whole[:-1], b"{}", b"null\n", whole[65:]):
        path.write_bytes(text)
        assert Memory(path).get("kind", "key") is None
    path.unlink()
    path.mkdir()
    broken = Memory(path)
    broken.put("kind", "key", 1)
    broken.save()  # That it cannot be written is no failure.


def test_a_sweep_keeps_what_was_asked_for_since_the_last(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.json")
    memory.put("kind", "old", 1)
    memory.put("kind", "kept", 2)
    memory.sweep()
    assert memory.get("kind", "kept") == 2
    memory.put("kind", "new", 3)
    memory.sweep()
    memory.save()
    again = Memory(tmp_path / "memory.json")
    assert [again.get("kind", key) for key in ("old", "kept", "new")] == [None, 2, 3]
