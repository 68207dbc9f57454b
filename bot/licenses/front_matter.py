"""What a model card declares of licence and origin, read from its front matter as plain data.

The card is someone else's, and its front matter may be large, odd or malicious: this runs in the worker. The YAML is
read as a stream of events that is never turned into objects, so no tag is constructed, no alias is expanded, and depth
costs nothing. Only four keys of the top level are looked at. Whatever could be read in two ways is not read at all, and
said: a merge key, a key that stands twice, an alias or a tag in the place of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bot.records import Record

if TYPE_CHECKING:
    from ruamel.yaml.events import Event, NodeEvent

LARGEST_CARD = 4 * 1024 * 1024
"""Bytes of a card that are looked at."""

LARGEST_FRONT_MATTER = 1024 * 1024
"""Characters of front matter; the largest that are in use, with hundreds of evaluation results, have a third of it."""

LONGEST_VALUE = 512
MOST_VALUES = 32
DEEPEST = 64
"""Levels of front matter. The time that a YAML scanner takes grows with the square of the depth."""

KEYS = ("license", "license_name", "license_link", "base_model")

_FENCE = re.compile(r"\A\ufeff?\s*---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_NOTHING = frozenset(["", "~", "null", "Null", "NULL"])

Value = str | tuple[str, ...] | None


class Declared(Record):
    """What a card declares.

    Attributes:
        license: The licence id, in lower case; of a list, all of them, joined by a comma; None if there is none.
        license_name: The licence's name, where the id is `other`.
        license_link: Where its text is: an address, or a path in the repository.
        base_models: What the model was made from, as the card says it.
        problem: Why none of it can be read, as what is wrong with the front matter; empty if it can.
    """

    license: str | None = Field(None, max_length=LONGEST_VALUE)
    license_name: str = Field("", max_length=LONGEST_VALUE)
    license_link: str = Field("", max_length=LONGEST_VALUE)
    base_models: tuple[str, ...] = Field((), max_length=MOST_VALUES)
    problem: str = Field("", max_length=LONGEST_VALUE)


def declared(card: bytes) -> Declared:
    """What a card's front matter declares; nothing if it has none.

    Args:
        card: README.md, or its beginning.
    """
    text = front_matter(card)
    if len(text) > LARGEST_FRONT_MATTER:
        return Declared(problem=f"more than {LARGEST_FRONT_MATTER} characters")
    try:
        values = dict(_values(text))
    except _Unclear as unclear:
        return Declared(problem=str(unclear)[:LONGEST_VALUE])
    license_ = _joined(values.get("license"))
    return Declared(
        license=license_.lower() or None,
        license_name=_joined(values.get("license_name")),
        license_link=_joined(values.get("license_link")),
        base_models=_listed(values.get("base_model")),
    )


def front_matter(card: bytes) -> str:
    """The YAML between the two `---` lines at the head of a card, its lines ended by `\\n`; empty if there is none."""
    text = card[:LARGEST_CARD].decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    match = _FENCE.match(text)
    return match[1] if match else ""


class _Unclear(Exception):
    """The front matter cannot be read, or not in one way only."""


def _values(text: str) -> Iterator[tuple[str, Value]]:
    """The values of the wanted keys.

    Raises:
        _Unclear: There is no telling what they are.
    """
    from ruamel.yaml.events import MappingStartEvent, NodeEvent, ScalarEvent

    events = _nodes(text)
    root = next(events, None)
    if root is None or (isinstance(root, ScalarEvent) and not root.tag and not _text(root)):
        return
    if not isinstance(root, MappingStartEvent):
        raise _Unclear("no mapping")
    seen: set[str] = set()
    for key in events:
        if not isinstance(key, NodeEvent):
            return  # the end of the mapping
        name = str(key.value) if isinstance(key, ScalarEvent) else ""
        if not isinstance(key, ScalarEvent):
            list(_rest_of(key, events))
        if name == "<<":
            raise _Unclear("another mapping is merged into it")
        value = [first := next(events), *_rest_of(first, events)]
        if name in KEYS:
            if name in seen:
                raise _Unclear(f"{name} stands twice")
            seen.add(name)
            yield name, _value(name, value)


def _nodes(text: str) -> Iterator[Event]:
    """The events of the first document, from its root node to the end of it.

    Raises:
        _Unclear: It is no YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import DocumentEndEvent, DocumentStartEvent, StreamEndEvent, StreamStartEvent

    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, DocumentEndEvent | StreamEndEvent):
                return
            if not isinstance(event, StreamStartEvent | DocumentStartEvent):
                yield event
    except (YAMLError, ValueError, RecursionError, AttributeError, IndexError, TypeError) as error:
        first = (str(getattr(error, "problem", "") or error).splitlines() or [""])[0]
        raise _Unclear(f"no valid YAML: {first}") from None


def _rest_of(start: Any, events: Iterator[Event]) -> Iterator[Event]:
    """The events that belong to a node after its first, up to the end of a mapping or sequence."""
    from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent

    depth = int(isinstance(start, MappingStartEvent | SequenceStartEvent))
    while depth:
        if depth > DEEPEST:
            raise _Unclear(f"more than {DEEPEST} levels deep")
        event = next(events)
        depth += isinstance(event, MappingStartEvent | SequenceStartEvent)
        depth -= isinstance(event, MappingEndEvent | SequenceEndEvent)
        yield event


def _value(name: str, events: list[Event]) -> Value:
    """A scalar, or the scalars of a list."""
    from ruamel.yaml.events import NodeEvent, ScalarEvent, SequenceStartEvent

    nodes: list[NodeEvent] = [event for event in events if isinstance(event, NodeEvent)]
    is_list = isinstance(nodes[0], SequenceStartEvent)
    scalars = nodes[1:] if is_list else nodes
    if any(getattr(node, "tag", None) for node in nodes) or not all(isinstance(node, ScalarEvent) for node in scalars):
        raise _Unclear(f"{name} is something else than text or a list of texts")
    texts = [text for node in scalars if (text := _text(node))]
    if any(len(text) > LONGEST_VALUE for text in texts) or len(texts) > MOST_VALUES:
        raise _Unclear(f"too much text for {name}")
    if is_list:
        return tuple(texts)
    return texts[0] if texts else None


def _text(node: Any) -> str:
    """A scalar's text without white space around it; empty for YAML's nothing."""
    text = " ".join(str(node.value).split())
    return "" if getattr(node, "style", None) is None and text in _NOTHING else text


def _joined(value: Value) -> str:
    return ", ".join(_listed(value))[:LONGEST_VALUE]


def _listed(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value
