"""A number typed into a template is found; a name with a digit is none."""

from __future__ import annotations

import pytest

from bot.card.environment import templates_folder
from bot.card.lint import check_template, lint_template
from bot.errors import RecipeError


@pytest.mark.parametrize(
    "text",
    [
        "fp16, fp32 and bf16",
        "INT8, int8, UINT8, float32",
        "a DINOv3 ViT-L/16 and a ViT-S/14",
        "its sha256",
        "x0, y0, x1, y1",
        "{{ figures | first | significant(3) }}",
        "{% if verdicts | count > 2 %}many{% endif %}",
        "{# 42 #}",
    ],
)
def test_sound(text: str) -> None:
    assert lint_template(text) == []


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("it is 2.6 times as fast", 1, "2.6"),
        ("one\ntwo\nfp16 is 0.012", 3, "0.012"),
        ("{{ x }}\n\nfp166", 3, "fp166"),
        ("1. first", 1, "1."),
        ("ViT-L/16x", 1, "ViT-L/16x"),
        ("Arabic ٣ too", 1, "٣"),
        ("v2", 1, "v2"),
        ("{% raw %}7{% endraw %}", 1, "7"),
    ],
)
def test_typed(text: str, line: int, word: str) -> None:
    assert lint_template(text) == [(line, word)]


def test_the_error_says_where() -> None:
    with pytest.raises(RecipeError) as caught:
        check_template("a\nb 3 c", "recipes/x/card.md.j2")
    assert caught.value.where == "recipes/x/card.md.j2:2"


def test_a_broken_template_says_where() -> None:
    with pytest.raises(RecipeError) as caught:
        check_template("a\n{{ 'b", "recipes/x/card.md.j2")
    assert caught.value.where == "recipes/x/card.md.j2:2"


def test_the_shared_templates_are_sound() -> None:
    paths = sorted(templates_folder().glob("*.md.j2"))
    assert len(paths) >= 5
    for path in paths:
        check_template(path.read_text("utf-8"), path.name)
