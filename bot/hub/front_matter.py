"""The licence that a model card declares, read from its front matter as plain data.

The card is someone else's, and its front matter may be large and odd. Only the lines of the one key are parsed, as a
stream of events that is never turned into objects: no tag, no chain of aliases and no depth in it can do anything.
"""

from __future__ import annotations

import re

LARGEST_CARD = 4 * 1024 * 1024
"""Bytes of a card that are looked at."""

_LARGEST_VALUE = 512
_FENCE = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_LICENSE = re.compile(
    r"""^(?:license|"license"|'license')[ \t]*:  # the key, at the top level
        (?:[^\n]*\n|[^\n]+\Z)                    # the rest of its line
        (?:(?:[ \t][^\n]*|-[ \t][^\n]*|\#[^\n]*|\r?)(?:\n|\Z))*?  # indented lines, items of a list, comments
        (?=^[^\s\#-]|\Z)                         # up to the next key
    """,
    re.MULTILINE | re.VERBOSE,
)


def front_matter(card: bytes) -> str:
    """The YAML between the two `---` lines at the head of a card; empty if there is none."""
    match = _FENCE.match(card[:LARGEST_CARD].decode("utf-8", errors="replace"))
    return match[1] if match else ""


def declared_license(card: bytes) -> str | None:
    """The licence id in a card's front matter, in lower case; of a list, all of them, joined by a comma.

    Returns:
        None if the card declares none, or if it cannot be read.
    """
    match = _LICENSE.search(front_matter(card))
    if match is None or len(match[0]) > _LARGEST_VALUE:
        return None
    values = [value.strip().lower() for value in _scalars(match[0]) if value.strip()]
    return ", ".join(values) or None


def _scalars(text: str) -> list[str]:
    """The scalar, or the scalars of the list, that is the value of a mapping's one key; none if it is anything else."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import MappingStartEvent, NodeEvent, ScalarEvent, SequenceStartEvent

    try:
        events = [event for event in YAML(typ="safe", pure=True).parse(text) if isinstance(event, NodeEvent)]
    except (YAMLError, ValueError, RecursionError):
        return []
    if len(events) < 3 or not isinstance(events[0], MappingStartEvent):
        return []
    values = events[3:] if isinstance(events[2], SequenceStartEvent) else events[2:3]
    if any(getattr(event, "tag", None) for event in events):
        return []
    scalars = [str(event.value) for event in values if isinstance(event, ScalarEvent)]
    return scalars if len(scalars) == len(values) else []
