"""The newest commit of very many repositories, for few requests.

All models of one owner are told by one listing, newest change first: a request for a page of up to a thousand. A
repository by itself is told by one HEAD, which counts in another, larger bucket. For each owner the way is taken that
uses up the smaller share of its bucket. What a listing told is remembered with the date of its newest change, so that
the next reading of a long one stops at the first page that is older.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.errors import HubError
from bot.hub.budget import API, RESOLVERS, Budget
from bot.hub.client import Hub, NotFound, RepoType
from bot.hub.memory import Memory
from bot.hub.retry import HubUnavailable

MAIN = "main"

SLACK = timedelta(minutes=10)
"""A reading goes on that much beyond the newest change of the last one: clocks differ, and pages shift while read."""

WHOLE = timedelta(days=1)
"""A long listing is read to its end at least that often: a history that was put back has an old date."""

_SHA = re.compile(r"[0-9a-f]{40}")
_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
CARD_KEYS = ("release_id", "source_commit", "recipe_id")
"""What the card of a target says of its release."""


@dataclass(frozen=True)
class Want:
    """A repository that somebody wants to know the newest commit of.

    Attributes:
        repo: `owner/name`.
        revision: Branch, tag or commit.
        repo_type: `model` or `dataset`.
        card: What its card says of a release is wanted too.
    """

    repo: str
    revision: str = MAIN
    repo_type: RepoType = "model"
    card: bool = False

    @property
    def owner(self) -> str:
        """The account or organisation that it belongs to, as listings are grouped."""
        return self.repo.partition("/")[0].lower()

    @property
    def is_listed(self) -> bool:
        """Whether a listing of its owner's models tells of it."""
        return self.repo_type == "model" and self.revision == MAIN and "/" in self.repo


@dataclass(frozen=True)
class Seen:
    """What is known of a repository.

    Attributes:
        sha: Its newest commit.
        modified: Date of its last change, ISO 8601; empty if nobody told.
        card: Of `CARD_KEYS`, those that its card has; None if nobody looked.
    """

    sha: str
    modified: str = ""
    card: Mapping[str, str] | None = None


Answer = Seen | HubError
"""What came of asking for one repository; a `NotFound` says that there is none that this account may see."""


class Poller:
    """Asks a Hub.

    Args:
        hub: The Hub.
        memory: Remembers listings.
        budget: What requests cost.
        now: The time of day.
        on_step: Told how many owners and single repositories were asked about, and of how many.
    """

    def __init__(
        self,
        hub: Hub,
        memory: Memory,
        budget: Budget,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_step: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._hub, self._memory, self._budget, self._now, self._on_step = hub, memory, budget, now, on_step

    def poll(self, wants: Iterable[Want]) -> dict[Want, Answer]:
        """The newest commit of each.

        Raises:
            HubUnavailable: The Hub gives no usable answer at all. What was learnt until then is remembered.
        """
        wanted = list(dict.fromkeys(wants))
        groups: dict[str, list[Want]] = {}
        for want in wanted:
            if want.is_listed:
                groups.setdefault(want.owner, []).append(want)
        listed = {owner: group for owner, group in groups.items() if self._listing_is_cheaper(owner, group)}
        found: dict[Want, Answer] = {}
        inside = sum(len(group) for group in listed.values())
        total, done = len(listed) + len(wanted) - inside, 0
        for owner, group in listed.items():
            found |= self._listing(owner, group)
            done += 1
            self._on_step(done, total)
        for want in wanted:
            if want in found:
                continue
            # Not in its owner's listing either, as far as it was read: new here, private, renamed, or gone. What is
            # asked by name is not remembered, since no listing may ever tell that it has changed.
            found[want] = self._single(want)
            done += want not in listed.get(want.owner, ())
            self._on_step(done, total)
        return found

    def _listing_is_cheaper(self, owner: str, group: list[Want]) -> bool:
        known = _Known.from_plain(self._memory.get("listing", owner))
        one_by_one = len(group) / self._budget.quota(RESOLVERS)
        return min(self._cost_of_whole(known), self._cost_of_new(known, group)) <= one_by_one

    def _cost_of_whole(self, known: _Known) -> float:
        """The share of its quota that reading a listing to its end takes."""
        return known.pages / self._budget.quota(API)

    def _cost_of_new(self, known: _Known, group: list[Want]) -> float:
        """The share that reading what is new takes, with a HEAD for each repository that was not known before."""
        if not known.mark or self._now() - known.whole >= WHOLE:
            return math.inf
        unknown = sum(want.repo.lower() not in known.repos for want in group)
        return 1 / self._budget.quota(API) + unknown / self._budget.quota(RESOLVERS)

    def _single(self, want: Want) -> Answer:
        try:
            return Seen(self._hub.commit_of(want.repo, want.revision, repo_type=want.repo_type))
        except HubUnavailable:
            raise
        except HubError as error:
            return error

    # -- listings ----------------------------------------------------------------------------------------------------

    def _listing(self, owner: str, group: list[Want]) -> dict[Want, Answer]:
        """What a listing of an owner tells of these repositories; those that it does not tell of are left out."""
        known = _Known.from_plain(self._memory.get("listing", owner))
        try:
            known = self._read(group, known)
        except HubUnavailable:
            raise
        except NotFound:
            return {}
        except HubError as error:
            return dict.fromkeys(group, error)
        self._memory.put("listing", owner, known.to_plain())
        return {want: known.repos[want.repo.lower()] for want in group if want.repo.lower() in known.repos}

    def _read(self, group: list[Want], known: _Known) -> _Known:
        """Reads a listing until it tells nothing new, and returns all that is known of the owner's repositories."""
        now = self._now()
        names, cards = {want.repo.lower() for want in group}, any(want.card for want in group)
        fresh: dict[str, Seen] = {}
        newest, pages = "", 0
        can_stop = self._cost_of_new(known, group) <= self._cost_of_whole(known)
        fields = ("sha", "lastModified", *(("cardData",) if cards else ()))
        for page in self._hub.models_of(group[0].repo.partition("/")[0], fields):
            pages += 1
            rows = [row for row in (_row(each, cards) for each in page) if row is not None]
            fresh |= {name: seen for name, seen in rows if name in names}
            dates = [seen.modified for _, seen in rows if seen.modified]
            newest = max([newest, *dates])
            # A listing in another order than was asked for tells nothing about what comes behind a page.
            can_stop = can_stop and dates == sorted(dates, reverse=True)
            if can_stop and dates and _date(min(dates)) < _date(known.mark) - SLACK:
                return _Known(max(newest, known.mark), known.whole, known.pages, {**known.repos, **fresh})
        return _Known(newest, now, max(pages, 1), fresh)


@dataclass(frozen=True)
class _Known:
    """What is remembered of an owner's listing.

    Attributes:
        mark: Date of the newest change that was seen.
        whole: When it was read to its end.
        pages: How many it had then.
        repos: What is known of those repositories that somebody wanted, by name in lower case.
    """

    mark: str
    whole: datetime
    pages: int
    repos: Mapping[str, Seen]

    def to_plain(self) -> dict[str, Any]:
        """As JSON data."""
        rows = {
            name: [seen.sha, seen.modified, dict(seen.card) if seen.card is not None else None]
            for name, seen in self.repos.items()
        }
        return {"mark": self.mark, "whole": self.whole.isoformat(), "pages": self.pages, "repos": rows}

    @classmethod
    def from_plain(cls, plain: Any) -> _Known:
        """From JSON data that `to_plain` made; nothing known if there is none."""
        if not plain:
            return cls("", datetime.fromtimestamp(0, UTC), 1, {})
        repos = {name: Seen(*row) for name, row in plain["repos"].items()}
        return cls(plain["mark"], datetime.fromisoformat(plain["whole"]), plain["pages"], repos)


def _row(row: Mapping[str, Any], cards: bool) -> tuple[str, Seen] | None:
    """One entry of a listing, by name in lower case; None if it is not one that anything can be decided from."""
    name, sha, modified = row.get("id"), row.get("sha"), row.get("lastModified")
    if not isinstance(name, str) or not isinstance(sha, str) or not _SHA.fullmatch(sha):
        return None
    card = row.get("cardData")
    said = {key: card.get(key) for key in CARD_KEYS} if isinstance(card, Mapping) else {}
    kept = {key: value for key, value in said.items() if isinstance(value, str) and _HEX.fullmatch(value)}
    date = modified if isinstance(modified, str) and _is_date(modified) else ""
    return name.lower(), Seen(sha, date, kept if cards else None)


def _is_date(text: str) -> bool:
    try:
        _date(text)
    except ValueError:
        return False
    return True


def _date(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
