"""Cards as HTML that can do no harm: no HTML of the author's, no scripts, no requests to other hosts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

MAXIMUM_CHARACTERS = 1_000_000
_SCHEMES = ("http", "https", "mailto")
_COMMENT = re.compile(r"\s*<!--.*?-->\s*", re.DOTALL)
_ALIGNMENT = re.compile(r"text-align:(left|right|center)")
Address = Callable[[str], str]


def render(text: str, link: Address, image: Address) -> Markup:
    """Return Markdown as HTML.

    HTML in the text is shown as text. An image on another host becomes a link to it. A link with a scheme other than
    http, https and mailto loses its target.

    Args:
        text: CommonMark with tables and strike-through.
        link: Turns the path of a file in the repository into the address of its page.
        image: Turns the path of a file in the repository into the address of its content.
    """
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # every address is checked below
    if len(text) > MAXIMUM_CHARACTERS:
        text = text[:MAXIMUM_CHARACTERS] + "\n\n(cut off)"
    tokens = parser.parse(text)
    slugs: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _slug(tokens[index + 1].content, slugs))
        _make_safe(token, link, image)
    html: str = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return Markup(html)  # noqa: S704  (made safe above, token by token)


def _slug(text: str, known: dict[str, int]) -> str:
    slug = "card-" + re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:80]
    known[slug] = known.get(slug, -1) + 1
    return f"{slug}-{known[slug]}" if known[slug] else slug


def _make_safe(token: Token, link: Address, image: Address) -> None:
    if token.type in ("html_block", "html_inline"):
        token.content = "" if _COMMENT.fullmatch(token.content) else f"<code>{escape(token.content)}</code>"
    if token.type == "link_open":
        _set_link(token, link)
    style = token.attrs.pop("style", None)
    if style and (match := _ALIGNMENT.fullmatch(str(style))):
        token.attrSet("class", f"to-{match[1]}")
    if token.children:
        token.children = [_safe_image(child, image) for child in token.children]
        for child in token.children:
            _make_safe(child, link, image)


def _set_link(token: Token, link: Address) -> None:
    address = str(token.attrs.pop("href", ""))
    token.attrs.clear()
    scheme = _scheme(address)
    if scheme in _SCHEMES:
        token.attrSet("href", address)
        token.attrSet("rel", "nofollow noopener noreferrer")
    elif address.startswith("#"):
        token.attrSet("href", "#card-" + quote(unquote(address[1:]).lower()))
    elif scheme == "" and (path := repository_path(address)):
        token.attrSet("href", link(path))


def _safe_image(token: Token, image: Address) -> Token:
    """Return an image of the repository as it is, and any other as text that says where it would come from."""
    if token.type != "image":
        return token
    source = str(token.attrs.pop("src", ""))
    token.attrs = {name: value for name, value in token.attrs.items() if name in ("alt", "title")}
    path = repository_path(source) if _scheme(source) == "" else None
    if path:
        token.attrSet("src", image(path))
        token.attrSet("loading", "lazy")
        return token
    host = urlsplit(source).hostname if _scheme(source) in ("http", "https") else None
    shown = f"[image: {token.content or 'no description'}{f', on {host}, not loaded' if host else ''}]"
    return Token("text", "", 0, content=shown)


def _scheme(address: str) -> str:
    """Return the scheme of an address, empty for a relative one, and ``?`` for one that cannot be read."""
    cleaned = re.sub(r"[\s\x00-\x1f\x7f]", "", address)
    try:
        parts = urlsplit(cleaned)
    except ValueError:
        return "?"
    if parts.scheme:
        return parts.scheme.lower()
    return "?" if parts.netloc or cleaned.startswith(("//", "\\\\", "/\\", "\\/")) else ""


def repository_path(address: str) -> str | None:
    """Return the path in the repository that a relative address names, or None if it leads out of it."""
    path = unquote(address.partition("#")[0].partition("?")[0]).replace("\\", "/").lstrip("/")
    normal = posixpath.normpath(path) if path else ""
    if not normal or normal.startswith("..") or normal == "." or "\0" in normal:
        return None
    return normal


def badges(data: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the front matter of a card as pairs of name and value for display; long values are shortened."""
    found = []
    for name, value in data.items():
        if name == "model-index":
            continue
        items = value if isinstance(value, list) else [value]
        for item in items[:30]:
            text = item if isinstance(item, str) else repr(item)
            found.append((name, text if len(text) <= 120 else text[:119] + "…"))
    return found
