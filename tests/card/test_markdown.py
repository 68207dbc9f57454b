"""Text from elsewhere reads as it was written and does nothing, wherever it stands."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.card.markdown import REPLACEMENT, WORD_JOINER, code_span, escape_markdown, plain_text, url_path

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

HOSTILE = [
    "**bold** _em_ ~~gone~~ `code`",
    "[click](javascript:alert(1)) ![x](https://evil.example/t.png)",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "&lt;b&gt; &#64;",
    "a | b | c",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "12) item",
    "> quote",
    "===",
    "---",
    "```",
    "~~~",
    "    indented",
    "line one\n\n# line two",
    "{{ config }} {% raw %}",
    "@octocat and #12 and owner/name#12",
    "https://evil.example www.evil.example mailto:a@b.example a@b.example",
    "$$x^2$$ \\(y\\)",
    "[ref]: https://evil.example",
    "a\\",
    "trailing two spaces  ",
    "| a | b |\n|---|---|",
    "\u202egnp.exe\u202c",
    "zero\u200bwidth\u2066iso\u2069",
    "bell\x07nul\x00",
    "\ue000\U000f0000private\ue001",
]
text_of_any_kind = st.one_of(st.text(max_size=60), st.text(alphabet="*_`[]()<>|~$&#+-=.\\!1a @:\n", max_size=30))


def shown(tokens: list[Token]) -> str:
    """What a reader sees of one paragraph; fails if there is anything but text in it."""
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special"}, [child.type for child in children]
    return "".join(child.content for child in children)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_nothing_else(text: str) -> None:
    escaped = escape_markdown(text)
    assert shown(MARKDOWN.parse(escaped)).replace(WORD_JOINER, "") == plain_text(text)
    assert not re.search(r"[@#]\w|https?:|www\.", escaped)


@given(text_of_any_kind)
def test_any_text_is_shown_and_nothing_else(text: str) -> None:
    escaped = escape_markdown(text)
    if plain_text(text):
        # The character itself is taken out of the comparison: it may have been in the text, replaced, or put in.
        seen = shown(MARKDOWN.parse(escaped)).replace(WORD_JOINER, "")
        assert seen == plain_text(text).replace(WORD_JOINER, "")
    assert "\n" not in escaped


@given(text_of_any_kind)
def test_any_text_stays_in_its_cell(text: str) -> None:
    for cell in (escape_markdown(text), code_span(text)):
        tokens = MARKDOWN.parse(f"| left | right |\n|---|---|\n| {cell} | end |\n")
        assert [token.type for token in tokens].count("td_open") == 2
        assert tokens[-1].type == "table_close"


@given(st.text(max_size=40))
def test_nothing_hides_or_reorders(text: str) -> None:
    for char in plain_text(text):
        assert unicodedata.category(char) not in {"Cc", "Co", "Cs", "Cn", "Zl", "Zp"}
        assert unicodedata.bidirectional(char) not in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_what_was_hidden_is_seen_to_be_gone() -> None:
    assert plain_text("a\u202eb\x07") == f"a{REPLACEMENT}b{REPLACEMENT}"


def test_ordinary_names_stay_readable() -> None:
    for name in ("faceage_dino_fp32.onnx", "TrungTran/faceage_ClientScan", "1.22.0", "ViT-L/16", "onnxruntime 1.29.0"):
        assert escape_markdown(name) == name
    assert code_span("age_logits") == "`age_logits`"


@given(st.text(max_size=40))
def test_a_code_span_is_code_or_inert(text: str) -> None:
    tokens = MARKDOWN.parse(f"x{code_span(text)}x")
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special", "code_inline"}


@given(st.text(max_size=40))
def test_nothing_ends_a_link(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9/._~%-]*", url_path(text))
