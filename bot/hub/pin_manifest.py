"""A consumer's manifest of pins: any JSON file, in which the pins are found, and changed without touching the rest.

The file is a consumer's own. What the bot changes in it are the texts of single strings: every other byte, white space,
key order, line ends, a byte order mark, stays as it was.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.canonical import write_atomically
from bot.errors import RecipeError
from bot.hub.pins import Pin

FIELDS = ("repo", "revision", "file", "sha256")
"""An object with all of these is a pin."""

LARGEST_MANIFEST = 16 * 1024 * 1024
"""Bytes."""

_DEEPEST = 200
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^,\]}\s]+")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_BOM = "\ufeff"
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Text:
    """A string value in the file: its value, and where its literal begins and ends (quotes included)."""

    value: str
    begin: int
    end: int


@dataclass(frozen=True)
class PlacedPin:
    """A pin, and where it stands.

    Attributes:
        pin: What it says. Its sha256 is in lower case.
        key: Where in the document: `models.faceage[0]`; `the top level` for the document itself.
        line: Of its first character, from 1.
        fields: Its strings by name, with their places.
        lines: The line of each.
        group: Pins of one list, the graph first, have the same number; every other pin has one of its own.
    """

    pin: Pin
    key: str
    line: int
    fields: Mapping[str, Text]
    lines: Mapping[str, int]
    group: int

    def where(self, path: Path, name: str = "") -> str:
        """File, line and key, for an error about the pin or about one of its strings."""
        line = self.lines.get(name, self.line)
        key = f"{self.key}.{name}" if name and self.key != _TOP else name or self.key
        return f"{path}:{line}: {key}"


@dataclass(frozen=True)
class PinManifest:
    """A manifest as it was read.

    Attributes:
        path: The file.
        data: Its bytes.
        pins: In the order of the file.
        incomplete: Objects that look like a pin and lack something, as sentences with line and key.
    """

    path: Path
    data: bytes
    pins: tuple[PlacedPin, ...]
    incomplete: tuple[str, ...] = ()

    def groups(self) -> list[list[PlacedPin]]:
        """The pins that belong together, the graph first."""
        found: dict[int, list[PlacedPin]] = {}
        for placed in self.pins:
            found.setdefault(placed.group, []).append(placed)
        return list(found.values())

    def with_changes(self, changes: Mapping[Text, str]) -> bytes:
        """The file's bytes with other values in place of some strings."""
        text = self.data.decode("utf-8")
        ascii_only = text.isascii()
        for place, value in sorted(changes.items(), key=lambda change: change[0].begin, reverse=True):
            text = text[: place.begin] + json.dumps(value, ensure_ascii=ascii_only) + text[place.end :]
        return text.encode("utf-8")

    def write(self, changes: Mapping[Text, str]) -> None:
        """Changes the file in one step: a reader sees the old bytes or the new.

        Raises:
            RecipeError: Somebody changed it since it was read, or it cannot be written.
        """
        target = self.path.resolve()  # a link stays a link
        try:
            if target.read_bytes() != self.data:
                raise RecipeError(
                    "was changed by somebody else in the meantime; it was left as it is.",
                    where=str(self.path),
                    remedy="Run the command again.",
                )
            write_atomically(target, self.with_changes(changes), mode=target.stat().st_mode & 0o777)
        except OSError as error:
            raise RecipeError(f"cannot be written: {error.strerror}.", where=str(self.path)) from error


def read_manifest(path: Path) -> PinManifest:
    """Finds the pins in a JSON file: every object with `repo`, `revision`, `file` and `sha256`, wherever it stands.

    Raises:
        RecipeError: The file cannot be read, is not JSON, holds no pin, or holds one that makes no sense; with file,
            line and key.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_MANIFEST + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}.", where=str(path)) from error
    if len(data) > LARGEST_MANIFEST:
        raise RecipeError(f"is larger than {LARGEST_MANIFEST} bytes.", where=str(path))
    text = _decoded(path, data)
    finder = _Finder(path, text)
    finder.read()
    if not finder.pins:
        hint = f" {finder.incomplete[0]}" if finder.incomplete else ""
        raise RecipeError(
            f"holds no pin.{hint}",
            where=str(path),
            remedy=f"A pin is an object with the strings {', '.join(FIELDS)}; `bot pins show` prints one to paste.",
        )
    return PinManifest(path, data, tuple(finder.pins), tuple(finder.incomplete))


def _decoded(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RecipeError("is not UTF-8.", where=f"{path}:{line}") from error
    try:
        json.loads(text.removeprefix(_BOM))
    except json.JSONDecodeError as error:
        raise RecipeError(f"is not JSON: {error.msg}, column {error.colno}.", where=f"{path}:{error.lineno}") from error
    except RecursionError as error:
        raise RecipeError("is nested too deeply.", where=str(path)) from error
    return text


_TOP = "the top level"


@dataclass
class _Finder:
    """Walks through a text that is known to be JSON, remembering where its strings stand."""

    path: Path
    text: str
    pins: list[PlacedPin] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    _groups: int = 0

    def read(self) -> None:
        """Reads the whole document."""
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self._value(self._space(1 if self.text.startswith(_BOM) else 0), (), 0)

    def _line(self, position: int) -> int:
        return bisect_right(self._starts, position)

    def _space(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def _value(self, begin: int, key: tuple[str | int, ...], depth: int) -> tuple[Any, int]:
        """Reads one value: a `Text`, a list of pins, or something that does not matter here; and where it ends."""
        if depth > _DEEPEST:
            raise RecipeError("is nested too deeply.", where=f"{self.path}:{self._line(begin)}: {_dotted(key)}")
        first = self.text[begin]
        if first == '"':
            value, end = _DECODER.raw_decode(self.text, begin)
            return Text(value, begin, end), end
        if first == "{":
            return self._object(begin, key, depth)
        if first == "[":
            return self._list(begin, key, depth)
        match = _SCALAR.match(self.text, begin)
        return json.loads(match[0]) if match else None, match.end() if match else begin + 1

    def _object(self, begin: int, key: tuple[str | int, ...], depth: int) -> tuple[Any, int]:
        found: dict[str, Any] = {}
        places: dict[str, int] = {}
        twice = ""
        position = self._space(begin + 1)
        while self.text[position] != "}":
            name, position = _DECODER.raw_decode(self.text, position)
            position = self._space(self._space(position) + 1)  # the colon
            twice = name if name in found else twice
            places[name] = self._line(position)
            found[name], position = self._value(position, (*key, name), depth + 1)
            position = self._space(position)
            if self.text[position] == ",":
                position = self._space(position + 1)
        if twice in FIELDS and sum(name in found for name in FIELDS) >= 3:
            raise RecipeError(
                "stands twice in one object.", where=f"{self.path}:{places[twice]}: {_dotted((*key, twice))}"
            )
        return self._pin(begin, key, found, places), position + 1

    def _list(self, begin: int, key: tuple[str | int, ...], depth: int) -> tuple[Any, int]:
        items: list[Any] = []
        position = self._space(begin + 1)
        while self.text[position] != "]":
            item, position = self._value(position, (*key, len(items)), depth + 1)
            items.append(item)
            position = self._space(position)
            if self.text[position] == ",":
                position = self._space(position + 1)
        if items and all(isinstance(item, PlacedPin) for item in items) and _belong_together(items):
            self._join(items)
        return items, position + 1

    def _pin(self, begin: int, key: tuple[str | int, ...], found: dict[str, Any], places: dict[str, int]) -> Any:
        named = [name for name in FIELDS if name in found]
        where = f"{self.path}:{self._line(begin)}: {_dotted(key)}"
        if len(named) < len(FIELDS):
            if len(named) == len(FIELDS) - 1 and "repo" in named:
                lacking = next(name for name in FIELDS if name not in found)
                self.incomplete.append(f"{where} has {', '.join(named)} and no {lacking}, so it is no pin.")
            return found
        for problem in _problems(found):
            raise RecipeError(problem[1], where=f"{self.path}:{places[problem[0]]}: {_dotted((*key, problem[0]))}")
        values = {name: found[name].value for name in FIELDS}
        values["sha256"] = values["sha256"].lower()
        not_on = tuple(item.value for item in found.get("not_on", ()))
        fields = {name: found[name] for name in FIELDS}
        placed = PlacedPin(
            Pin(**values, not_on=not_on), _dotted(key), self._line(begin), fields, places, self._next_group()
        )
        self.pins.append(placed)
        return placed

    def _next_group(self) -> int:
        self._groups += 1
        return self._groups

    def _join(self, items: list[PlacedPin]) -> None:
        group, begins = items[0].group, {item.fields["repo"].begin for item in items}
        for index, placed in enumerate(self.pins):
            if placed.fields["repo"].begin in begins:
                self.pins[index] = PlacedPin(placed.pin, placed.key, placed.line, placed.fields, placed.lines, group)


def _belong_together(items: list[PlacedPin]) -> bool:
    """Whether a list is one export, the graph first and its weights after it, and no list of independent exports."""
    pins = [item.pin for item in items]
    one_place = len({(pin.repo, pin.revision) for pin in pins}) == 1
    return one_place and not any(pin.file.endswith(".onnx") for pin in pins[1:])


def _problems(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What makes no sense in a pin: the key, and a sentence."""
    for name in FIELDS:
        if not isinstance(found[name], Text):
            yield name, "should be a string."
        elif not found[name].value.strip() or not found[name].value.isprintable():
            yield name, "is empty, or holds characters that cannot be printed."
    if isinstance(found["repo"], Text) and not _REPO.fullmatch(found["repo"].value):
        yield "repo", f"should be written OWNER/NAME, found {found['repo'].value!r}."
    if isinstance(found["sha256"], Text) and not _SHA256.fullmatch(found["sha256"].value):
        yield "sha256", "should be 64 hexadecimal digits."
    not_on = found.get("not_on", [])
    if not isinstance(not_on, list) or not all(isinstance(item, Text) for item in not_on):
        yield "not_on", "should be a list of providers."


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or _TOP
