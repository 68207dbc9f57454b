"""The layout of finished Markdown: one blank line between blocks, paragraphs wrapped."""

from __future__ import annotations

import re

WIDTH = 100

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"(?:`[^`]+`|\S)+")
"""A code span stays whole."""

_ITEM = re.compile(r"(- |> )?(.*)")
_BLOCK = re.compile(r"[-+*=_]+$|#{1,6}$|\d+[.)]$|[>|<]|~~~|```")
"""A word that would begin a block of its own at the start of a line."""


def tidy(text: str) -> str:
    """Takes out what only the templates' layout put in: blank lines in a row, spaces at the ends of lines.

    Code blocks stay as they are but for such spaces.
    """
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    parts = _FENCED.split(text)
    parts[::2] = [re.sub(r"\n{3,}", "\n\n", part) for part in parts[::2]]
    return "".join(parts).strip() + "\n"


def wrap(text: str, width: int = WIDTH) -> str:
    """Wraps paragraphs, list items and quotations; leaves headings, tables and code blocks alone.

    A line never begins with something that would turn it into another kind of block.

    Args:
        text: Tidy Markdown.
        width: In characters; words that are longer stay whole.
    """
    parts = _FENCED.split(text)
    parts[::2] = ["\n\n".join(_wrap_block(block, width) for block in part.split("\n\n")) for part in parts[::2]]
    return "".join(parts)


def _wrap_block(block: str, width: int) -> str:
    before = block[: len(block) - len(block.lstrip("\n"))]
    after = block[len(block.rstrip("\n")) :] if block.strip("\n") else ""
    lines = block.strip("\n").split("\n")
    if lines[0].startswith(("#", "|")) or not lines[0]:
        return block
    items: list[list[str]] = []
    for line in lines:
        starts_item = line.startswith("- ")
        if starts_item or not items:
            items.append([])
        items[-1].append(line.removeprefix("> ") if len(items[-1]) and block.startswith("> ") else line)
    return before + "\n".join(_wrap_item(" ".join(line.strip() for line in item), width) for item in items) + after


def _wrap_item(text: str, width: int) -> str:
    match = _ITEM.fullmatch(text)
    marker, content = (match[1] or "", match[2]) if match else ("", text)
    indent = "> " if marker == "> " else " " * len(marker)
    lines = [marker]
    for word in _WORD.findall(content):
        line = lines[-1]
        fits = len(line) + 1 + len(word) <= width
        if line in {marker, indent} or fits or _BLOCK.match(word):
            lines[-1] += word if line in {marker, indent} else f" {word}"
        else:
            lines.append(indent + word)
    return "\n".join(lines)
