"""The licence that a model card declares, read from its front matter as plain data.

The card is someone else's. Its YAML is walked as a stream of events and never turned into objects, so neither a tag nor
a chain of aliases in it can do anything; only scalars at the top level are looked at.
"""

from __future__ import annotations

import re

LARGEST = 64 * 1024
"""Characters of front matter that are looked at."""

_FENCE = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)


def front_matter(card: bytes) -> str:
    """The YAML between the two `---` lines at the head of a card; empty if there is none."""
    text = card[: 4 * LARGEST].decode("utf-8", errors="replace")
    match = _FENCE.match(text)
    return match[1] if match and len(match[1]) <= LARGEST else ""


def declared_license(card: bytes) -> str | None:
    """The licence id in a card's front matter, in lower case; of a list, all of them, joined by a comma.

    Returns:
        None if the card declares none, or if its front matter cannot be read.
    """
    text = front_matter(card)
    values = [value.strip().lower() for value in _top_level(text).get("license", []) if value.strip()]
    return ", ".join(values) or None


def _top_level(text: str) -> dict[str, list[str]]:
    """The scalars, and the lists of scalars, under each key at the top level of a YAML mapping."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent, MappingStartEvent, ScalarEvent

    found: dict[str, list[str]] = {}
    inside: list[str] = []  # the collections that the walk is inside of: "map" or "list"
    key: str | None = None
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, CollectionStartEvent):
                inside.append("map" if isinstance(event, MappingStartEvent) else "list")
            elif isinstance(event, CollectionEndEvent):
                inside.pop()
                key = None if inside == ["map"] else key
            elif isinstance(event, ScalarEvent) and inside == ["map"]:
                if key is not None:
                    found.setdefault(key, []).append(event.value)
                key = event.value if key is None else None
            elif isinstance(event, ScalarEvent) and inside == ["map", "list"] and key is not None:
                found.setdefault(key, []).append(event.value)
            elif inside == ["map"]:
                key = None  # an alias in the place of a value
    except (YAMLError, ValueError, RecursionError):
        return {}
    return found
