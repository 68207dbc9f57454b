"""Numbers and texts that know which field they come from, and the ledger of those that a card shows.

A template sees a `Release` only through these. Whatever it prints carries an invisible mark until the card is
finished; a digit without a mark has no origin, and fails the render.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any, Literal, NoReturn

from markupsafe import Markup

from bot.card.markdown import code_span, escape_markdown, plain_text

Kind = Literal["measured", "declared", "reported", "recorded", "constant"]
"""Measured by the bot; declared by the recipe; reported by the source; recorded while building; or a constant such as
the largest fp16 number."""

_FIRST_TAG = 0xF0000  # The first supplementary private use plane: one character names one entry of the ledger.
_LAST_TAG = 0xFFFFD
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARKED = re.compile(f"{_OPEN}([{chr(_FIRST_TAG)}-{chr(_LAST_TAG)}])(.*?){_CLOSE}", re.DOTALL)


@dataclass(frozen=True)
class NumberOnCard:
    """A figure, or a name or digest with digits in it, that stands on a card.

    Attributes:
        text: As the reader sees it.
        field: The place in the release record that it was rendered from, or the formula over such places.
        kind: What sort of statement it is.
    """

    text: str
    field: str
    kind: Kind


@dataclass
class Ledger:
    """What a render has printed so far.

    Attributes:
        escape: How text becomes inert in the format that is being written.
        code: How text becomes code in it.
        links: Whether names of repositories are linked to the Hub.
        decorate: What else is put around a printed value, given it and its origin; the HTML page shows the origin.
    """

    escape: Callable[[str], str] = escape_markdown
    code: Callable[[str], str] = code_span
    links: bool = True
    decorate: Callable[[str, NumberOnCard], str] = lambda text, origin: text
    entries: list[tuple[str, Kind]] = field(default_factory=list)
    _known: dict[tuple[str, Kind], int] = field(default_factory=dict)

    def mark(self, text: str, origin: str, kind: Kind) -> Markup:
        """Finished output with its origin."""
        origin = plain_text(origin)  # Keys of the record are data too.
        key = (origin, kind)
        if key not in self._known:
            self._known[key] = len(self.entries)
            self.entries.append(key)
        tag = chr(_FIRST_TAG + self._known[key])
        return Markup(f"{_OPEN}{tag}{self.decorate(text, NumberOnCard(text, origin, kind))}{_CLOSE}")  # noqa: S704

    def finish(self, text: str) -> tuple[str, tuple[NumberOnCard, ...]]:
        """Takes the marks out of a finished text.

        Returns:
            The text, and every marked piece with a number in it, in the order of the text.
        """
        numbers = []
        for match in _MARKED.finditer(text):
            origin, kind = self.entries[ord(match[1]) - _FIRST_TAG]
            if has_digit(match[2]) or is_count(origin):
                numbers.append(NumberOnCard(match[2], origin, kind))
        return _MARKED.sub(lambda match: match[2], text), tuple(numbers)


def is_count(origin: str) -> bool:
    """Whether an origin is that of a count, which may be written as a word."""
    return origin.startswith("count of ")


def without_marked(text: str) -> str:
    """What of a text carries no mark; marked pieces leave a character behind that belongs to no name."""
    return _MARKED.sub(_CLOSE, text)


def has_digit(text: str) -> bool:
    """Whether a text has a digit of any script."""
    return any(char.isdigit() for char in text)


@total_ordering
class Number:
    """A number with its origin. Arithmetic between such numbers gives one whose origin is the formula."""

    __slots__ = ("field", "kind", "ledger", "value")

    def __init__(self, value: int | float, origin: str, kind: Kind, ledger: Ledger) -> None:
        self.value = value
        self.field = origin
        self.kind = kind
        self.ledger = ledger

    def show(self, text: str) -> Markup:
        """The number, written as `text`."""
        return self.ledger.mark(text, self.field, self.kind)

    def __html__(self) -> Markup:
        if isinstance(self.value, int) or self.kind == "declared":
            return self.show(f"{self.value:.15g}")  # What was declared is shown as it was.
        return self.show(f"{self.value:.4g}")

    __str__ = __html__

    def __bool__(self) -> bool:
        return bool(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Number) else other))

    def __lt__(self, other: Number | int | float) -> bool:
        return self.value < (other.value if isinstance(other, Number) else other)

    def __add__(self, other: Number) -> Number:
        return self._combine(other, "+", lambda a, b: a + b)

    def __sub__(self, other: Number) -> Number:
        return self._combine(other, "-", lambda a, b: a - b)

    def __mul__(self, other: Number) -> Number:
        return self._combine(other, "*", lambda a, b: a * b)

    def __truediv__(self, other: Number) -> Number:
        return self._combine(other, "/", lambda a, b: a / b)

    def _combine(self, other: Number, sign: str, operation: Callable[[Any, Any], Any]) -> Number:
        if not isinstance(other, Number):
            return NotImplemented  # A number typed into a template has no origin.
        kind = stronger(self.kind, other.kind)
        return Number(operation(self.value, other.value), f"{self.field} {sign} {other.field}", kind, self.ledger)


def stronger(*kinds: Kind) -> Kind:
    """The kind of what is derived from several: measured if anything in it was measured, and so on."""
    order: tuple[Kind, ...] = ("measured", "reported", "declared", "recorded", "constant")
    return min(kinds, key=order.index)


@total_ordering
class Text:
    """A text with its origin. It is not a string: it reaches the output through the ledger's escape, or not at all."""

    __slots__ = ("field", "kind", "ledger", "raw")

    def __init__(self, raw: str, origin: str, kind: Kind, ledger: Ledger) -> None:
        self.raw = raw
        self.field = origin
        self.kind = kind
        self.ledger = ledger

    def show(self, text: str) -> Markup:
        """The text, written as the finished output `text`."""
        return self.ledger.mark(text, self.field, self.kind)

    def replace_raw(self, raw: str) -> Text:
        """A part of this text, of the same origin."""
        return Text(raw, self.field, self.kind, self.ledger)

    def __html__(self) -> Markup:
        return self.show(self.ledger.escape(self.raw))

    __str__ = __html__

    def startswith(self, prefix: str) -> bool:
        """Whether it begins with a literal."""
        return self.raw.startswith(prefix)

    def split(self, separator: str) -> list[Text]:
        """Its parts."""
        return [self.replace_raw(part) for part in self.raw.split(separator)]

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and part in self.raw

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError("a text is not a list")

    def __hash__(self) -> int:
        return hash(self.raw)

    def __eq__(self, other: object) -> bool:
        return self.raw == (other.raw if isinstance(other, Text) else other)

    def __lt__(self, other: Text | str) -> bool:
        return self.raw < (other.raw if isinstance(other, Text) else other)
