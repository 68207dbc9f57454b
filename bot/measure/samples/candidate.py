"""A picture, or a part of one, that could become a sample; and the order in which they are taken."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from bot.canonical import canonical_json, digest
from bot.measure.preprocess import Box
from bot.records import Json


@dataclass(frozen=True)
class Candidate:
    """One possible sample.

    Attributes:
        path: Of the picture within its data set, with forward slashes.
        box: Left, top, width, height; None is the whole picture.
        label: What the data set says of it.
    """

    path: str
    box: Box | None = None
    label: dict[str, Json] = field(default_factory=dict, compare=False, hash=False)

    @property
    def rank(self) -> str:
        """Its place in the order: the sha256 of path and box, so that no listing's order decides what is taken."""
        return digest([self.path, list(self.box) if self.box else None])

    @property
    def place(self) -> float:
        """Where its picture lies among all that there could be: 0 to 1, by the sha256 of the path alone."""
        return int(digest(self.path)[:12], 16) / 16**12

    def sample_digest(self, picture: bytes) -> str:
        """What a record calls the sample: the sha256 of the picture's bytes followed by the box as canonical JSON."""
        box = canonical_json([float(value) for value in self.box] if self.box else None)
        return hashlib.sha256(picture + box).hexdigest()


def in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates by rank, each only once."""
    return [candidate for _, candidate in sorted({item.rank: item for item in candidates}.items())]
