"""Makes text from elsewhere inert in Markdown: it reads as it was written, and does nothing."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

WORD_JOINER = "\u2060"
"""Invisible and without width. Between `@` and a name it keeps a site from seeing a mention."""

REPLACEMENT = "\ufffd"
"""Stands where a character was that a reader must not be fooled by."""

_JOINERS_IN_SCRIPTS = {"\u200c", "\u200d"}
_SPECIAL = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_BLOCK_START = re.compile(r"^(?:[#+=:-]|(?P<number>\d+)(?=[.)](?:\s|$)))")


def plain_text(text: str) -> str:
    """One line of text without characters that hide, reorder or control anything.

    White space becomes a space. Control, bidirectional, private and unassigned characters become U+FFFD, so that a
    reader sees that something was there; the joiners that scripts and emoji need stay.
    """
    return "".join(_visible(char) for char in " ".join(text.split()))


def visible_lines(text: str) -> str:
    """Text of several lines without characters that hide, reorder or control anything; its spaces stay."""
    return "\n".join("".join(_visible(char) for char in line.expandtabs(4)) for line in text.splitlines())


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category in {"Cc", "Cs", "Co", "Cn"}:
        return REPLACEMENT
    if category == "Cf" and char not in _JOINERS_IN_SCRIPTS:
        return REPLACEMENT
    return char


def escape_markdown(text: str) -> str:
    """Text as Markdown that shows exactly this text: no emphasis, link, HTML, table cell, mention or address.

    It holds anywhere that inline text may stand, the beginning of a line included, and in a cell of a table.
    """
    text = plain_text(text)
    text = "".join(_ENTITIES.get(char, char) for char in text)
    text = _SPECIAL.sub(lambda match: "\\" + match[0], text)
    text = _defuse_addresses(text)
    return _BLOCK_START.sub(_escape_block_start, text)


def _escape_block_start(match: re.Match[str]) -> str:
    # A number before a dot would begin a list; so would a hyphen, and a hash a heading.
    return match["number"] + WORD_JOINER if match["number"] else "\\" + match[0]


def _defuse_addresses(text: str) -> str:
    """Keeps sites from linking what looks like a mention, a reference to an issue, a commit, or an address."""
    text = re.sub(r"[@#](?=\w)", lambda match: match[0] + WORD_JOINER, text)
    text = re.sub(r"(?i)\b(https?|ftp|mailto|xmpp):", lambda match: f"{match[1]}{WORD_JOINER}:", text)
    return re.sub(r"(?i)\bwww\.", lambda match: f"{match[0][:-1]}{WORD_JOINER}.", text)


def code_span(text: str) -> str:
    """Text as a code span; as escaped text where a code span could not hold it in every place."""
    shown = plain_text(text)
    if not shown or REPLACEMENT in shown or set(shown) & set("`|") or re.search(r"@\w", shown):
        return escape_markdown(text)
    return f"`{shown}`"


def url_path(text: str) -> str:
    """A path for the inside of a link: percent-encoded, so that nothing can end the link."""
    return quote(text, safe="/-._~")
