"""The embedded Hub's clock and its way of writing dates."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from bot.localhub.errors import bad_request


class Clock:
    """Tells the time.

    Args:
        distinct: Give every write a second of its own, ahead of the real time if need be. git keeps whole seconds, so
            that without this a fast script makes histories whose entries all carry the same date.
    """

    def __init__(self, distinct: bool = False) -> None:
        self._distinct = distinct
        self._last = datetime.fromtimestamp(0, UTC)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the time of a write, in UTC, in whole seconds."""
        with self._lock:
            moment = datetime.now(UTC).replace(microsecond=0)
            if self._distinct and moment <= self._last:
                moment = self._last + timedelta(seconds=1)
            self._last = max(self._last, moment)
            return moment


def iso(moment: datetime | float) -> str:
    """Return a date as the Hub writes it: ``YYYY-MM-DDTHH:MM:SS.mmmZ``.

    Args:
        moment: A date with a zone, or seconds since 1970.
    """
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def parse(text: str) -> datetime:
    """Return the date that an ISO 8601 text names; without a zone it is UTC.

    Raises:
        HubError: 400 for anything else.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise bad_request(f"Not an ISO 8601 date: {text!r}") from error
    if moment.timestamp() < 0:
        raise bad_request(f"A commit cannot be older than 1970: {text!r}")
    return moment
