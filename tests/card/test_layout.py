"""Wrapping changes where lines end, and nothing that a reader sees."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.card.layout import tidy, wrap

WORDS = st.sampled_from(
    ["word", "- dash", "# hash", "1. one", "`code with spaces`", "**bold**", "+ plus", "=", "|", "x" * 40]
)
BLOCK = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)


def rendered(text: str) -> str:
    return re.sub(r"\s+", " ", MarkdownIt("commonmark").enable("table").render(text))


@given(st.lists(st.tuples(st.sampled_from(["", "- ", "> "]), BLOCK), min_size=1, max_size=5))
def test_wrapping_changes_nothing(blocks: list[tuple[str, str]]) -> None:
    text = tidy("\n\n".join(marker + "start " + block for marker, block in blocks))
    assert rendered(wrap(text)) == rendered(text)


def test_lines_are_short_and_tables_whole() -> None:
    row = "| " + "cell " * 60 + "|"
    text = tidy("word " * 100 + f"\n\n| a |\n|---|\n{row}\n\n```\n" + "code " * 60 + "\n```\n")
    lines = wrap(text).splitlines()
    assert max(len(line) for line in lines if line.startswith("word")) <= 100
    assert row in lines
    assert any(line.startswith("code") and len(line) > 200 for line in lines)


def test_items_keep_their_indent() -> None:
    assert wrap("- " + "word " * 30).splitlines()[1].startswith("  word")


def test_blank_lines_are_tidied_but_not_in_code() -> None:
    assert tidy("a  \n\n\n\nb\n```\nx\n\n\n\ny\n```\n\n\n") == "a\n\nb\n```\nx\n\n\n\ny\n```\n"
