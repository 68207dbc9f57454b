"""A card as HTML, with what changed since the published one marked in it, as <ins> and <del>."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby

from markupsafe import Markup

from bot.card.markdown import visible_lines

_TOKEN = re.compile(r"<[^>]*>|\s+|[^<\s]+")
_NO_WORDS = frozenset(["table", "thead", "tbody", "tr", "ul", "ol", ""])
"""Elements that hold elements only: a word directly in one of them would be misplaced."""

_LARGEST = 20_000
"""Pieces of one block that are compared word by word; a larger block is marked as a whole."""


def card_html(card: str, before: str = "", pictures: Mapping[str, str] | None = None) -> Markup:
    """A card as HTML. HTML in the card is shown as text; nothing in it can fetch anything.

    Args:
        card: Markdown, with or without front matter.
        before: The card to compare it with; empty to mark nothing.
        pictures: Addresses (`data:`) of the card's own pictures, by path. Others become their description.
    """
    now = _blocks(card, pictures or {})
    if not before:
        return _joined(html for _, html in now)
    old = _blocks(before, pictures or {})
    out = []
    matcher = SequenceMatcher(None, [key for key, _ in old], [key for key, _ in now], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            out += [html for _, html in now[k:m]]
        else:
            out += _changed([html for _, html in old[i:j]], [html for _, html in now[k:m]])
    return _joined(out)


def _joined(blocks: Iterator[str] | Sequence[str]) -> Markup:
    return Markup("\n".join(blocks))  # noqa: S704 - made by the parser, which escapes what it does not make itself


def _blocks(card: str, pictures: Mapping[str, str]) -> list[tuple[str, str]]:
    """The blocks of a card: what each is compared by, and its HTML."""
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    card = visible_lines(card)  # A person's edits of it are nobody's that one could rely on.
    has_front_matter = card.startswith("---\n") and card.count("---\n") > 1
    _, front_matter, body = card.split("---\n", 2) if has_front_matter else ("", "", card)
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table")
    blocks: list[tuple[str, str]] = []
    if front_matter:
        html = str(Markup("<pre><code>{}</code></pre>").format(front_matter))
        blocks.append((html, html))
    group: list[Token] = []
    depth = 0
    for token in markdown.parse(body):
        for child in token.children or ():
            _make_safe(child, pictures)
        group.append(token)
        depth += token.nesting
        if depth == 0:
            html = str(markdown.renderer.render(group, markdown.options, {})).strip()
            blocks.append((html, html))
            group = []
    return blocks


def _make_safe(token: object, pictures: Mapping[str, str]) -> None:
    from markdown_it.token import Token

    assert isinstance(token, Token)  # noqa: S101 - children of tokens are tokens
    if token.type == "link_open" and not str(token.attrGet("href")).startswith("https://"):
        token.attrs = {"title": "a file of the repository"}  # A neighbouring file leads nowhere from this page.
    if token.type == "image":
        address = pictures.get(str(token.attrGet("src")), "")
        if address.startswith("data:"):
            token.attrs = {"src": address, "alt": ""}
        else:
            token.type, token.tag, token.content, token.children = "text", "", f"[picture: {token.content}]", None


def _changed(old: list[str], new: list[str]) -> Iterator[str]:
    """Blocks in place of others: those of the same kind are compared word by word."""
    while old and new and _kind(old[0]) == _kind(new[0]):
        before, now = old.pop(0), new.pop(0)
        marked = _marked(before, now)
        yield f'<div class="changed">{marked}</div>'
    for html in old:
        yield f'<div class="gone" role="group" aria-label="removed">{html}</div>'
    for html in new:
        yield f'<div class="new" role="group" aria-label="added">{html}</div>'


def _kind(html: str) -> str:
    match = re.match(r"<(\w+)", html)
    return match[1] if match else ""


_TABLE = re.compile(r"(.*?<tbody>\s*)(.*?)(\s*</tbody>.*)", re.DOTALL)


def _marked(before: str, now: str) -> str:
    """The new HTML of a block, with the words that came and went marked in it; of a table, row by row."""
    old, new = _TABLE.fullmatch(before), _TABLE.fullmatch(now)
    if old is None or new is None:
        return _marked_words(before, now)
    rows, new_rows = (re.findall(r"<tr>.*?</tr>", table[2], re.DOTALL) for table in (old, new))
    out = []
    for tag, i, j, k, m in SequenceMatcher(None, rows, new_rows, autojunk=False).get_opcodes():
        if tag == "equal":
            out += new_rows[k:m]
            continue
        pairs = min(j - i, m - k)
        both = zip(rows[i : i + pairs], new_rows[k : k + pairs], strict=True)
        out += [_marked_words(one, other) for one, other in both]
        out += [_all_words(row, "del") for row in rows[i + pairs : j]]
        out += [_all_words(row, "ins") for row in new_rows[k + pairs : m]]
    return _marked_words(old[1], new[1]) + "\n".join(out) + new[3]


def _all_words(html: str, mark: str) -> str:
    """A row with every word in it marked."""
    return re.sub(r"(?<=>)([^<]*[^<\s][^<]*)", rf"<{mark}>\1</{mark}>", html)


def _marked_words(before: str, now: str) -> str:
    old, new = _TOKEN.findall(before), _TOKEN.findall(now)
    if max(len(old), len(new)) > _LARGEST:
        return now
    out: list[str] = []
    inside: list[str] = [""]
    held: list[str] = []  # Words that are gone, until there is a place that can hold words.

    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag in ("delete", "replace"):
            held += [token for token in old[i:j] if not token.startswith("<") and token.strip()]
            _flush(out, held, inside)
        for is_element, run in groupby(new[k:m], key=lambda token: token.startswith("<")):
            tokens = list(run)
            if is_element:
                _put_elements(tokens, out, held, inside)
                continue
            _flush(out, held, inside)
            text = "".join(tokens)
            out.append(text if tag == "equal" or not text.strip() else f"<ins>{text}</ins>")
    if held:
        out.append(f"<p><del>{' '.join(held)}</del></p>")
    return "".join(out)


def _put_elements(tokens: list[str], out: list[str], held: list[str], inside: list[str]) -> None:
    """Opens and closes elements; before one is closed, the words that are gone from it are put into it."""
    for token in tokens:
        if token.startswith("</"):
            _flush(out, held, inside)
        out.append(token)
        _follow(token, inside)


def _follow(token: str, inside: list[str]) -> None:
    """Keeps track of the element that is open."""
    match = re.match(r"<(/?)(\w+)", token)
    if match is None or match[2] in ("img", "br", "hr") or token.endswith("/>"):
        return
    if match[1]:
        if len(inside) > 1:
            inside.pop()
    else:
        inside.append(match[2])


def _flush(out: list[str], held: list[str], inside: list[str]) -> None:
    if held and inside[-1] not in _NO_WORDS:
        out.append(f"<del>{' '.join(held)}</del> ")
        held.clear()


def data_uri(svg: bytes) -> str:
    """An SVG as an address that holds it."""
    import base64

    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
