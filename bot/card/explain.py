"""Where each number of a card comes from: the field of the record, what kind of statement it is, and how it was had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.card.numbers import Kind, NumberOnCard
from bot.card.views import measurement_path
from bot.records import Measurement, Release

CARD = "README.md"

_HOW: dict[Kind, str] = {
    "measured": "measured by the bot",
    "declared": "declared in the recipe",
    "reported": "said by the source's own card, not measured here",
    "recorded": "counted or recorded while the release was made",
    "constant": "a constant of the number format",
}


@dataclass(frozen=True)
class Explained:
    """One number.

    Attributes:
        place: The file that it stands in: the card, or one of its pictures.
        text: As it stands there.
        field: The place in the release record, or the formula over such places.
        kind: Measured, declared, reported, recorded, or a constant.
        method: How it was had: the method of each measurement that went into it, or what kind of statement it is.
        samples: How many samples were measured; None where no sample was.
        samples_digest: Digest of the list of samples.
    """

    place: str
    text: str
    field: str
    kind: Kind
    method: str
    samples: int | None
    samples_digest: str

    def to_plain(self) -> dict[str, Any]:
        """As plain JSON data."""
        return dict(self.__dict__)


def explain(release: Release, numbers: dict[str, tuple[NumberOnCard, ...]]) -> list[Explained]:
    """Explains every number, in the order in which it stands there.

    Args:
        release: The record.
        numbers: By file, the numbers that rendering it gave.
    """
    known = {measurement_path(measurement): measurement for measurement in release.measurements}
    return [_explain(place, number, known) for place, listed in numbers.items() for number in listed]


def _explain(place: str, number: NumberOnCard, known: dict[str, Measurement]) -> Explained:
    found = [measurement for path, measurement in known.items() if path in number.field]
    methods = list(dict.fromkeys(measurement.method for measurement in found))
    samples = [measurement.samples for measurement in found if measurement.samples]
    digests = [measurement.samples_digest for measurement in found if measurement.samples_digest]
    return Explained(
        place=place,
        text=" ".join(number.text.split()),
        field=number.field,
        kind=number.kind,
        method="; ".join(methods) or _HOW[number.kind],
        samples=samples[0] if samples else None,
        samples_digest=digests[0] if digests else "",
    )
