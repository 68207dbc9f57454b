"""Finds numbers that a person typed into a template."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import Environment
from jinja2.exceptions import TemplateSyntaxError

from bot.card.numbers import has_digit, without_marked
from bot.errors import RecipeError

NAMES = (
    r"(?:fp|bf|FP|BF)(?:8|16|32|64)",
    r"[Uu]?(?:[Ii]nt|INT)(?:4|8|16|32|64)",
    r"(?:float|double)(?:16|32|64)",
    r"DINOv[123]",
    r"ViT-[A-Za-z]/\d{1,2}",
    r"YOLOv?\d{1,2}[a-z]?",
    r"(?:sha|SHA-)256",
    r"UTF-8",
    r"[xy][01]",
)
"""Names that have a digit in them, as regular expressions. A figure is none of them."""

CODE_IDIOMS = (
    "transpose(2, 0, 1)",
    "sys.argv[1]",
    "1 / (1 + np.exp(-",
    "axis=-1",
    "[..., ::-1]",
    "max(left - dx, 0), max(top - dy, 0)",
)
"""Fixed turns of Python in usage snippets whose digits say nothing about a model."""

_NAME = re.compile(
    r"(?<![A-Za-z0-9])(?:" + "|".join(NAMES) + r")(?![A-Za-z0-9])|" + "|".join(map(re.escape, CODE_IDIOMS))
)


def loose_digits(text: str) -> Iterator[tuple[int, str]]:
    """The digits in a text that belong to no name.

    Args:
        text: Marked pieces in it, if any, are passed over.

    Yields:
        Line, from 1, and the word that the digit stands in.
    """
    bare = _NAME.sub("", without_marked(text))
    for number, line in enumerate(bare.split("\n"), start=1):
        for word in line.split():
            if has_digit(word):
                yield number, word


def lint_template(text: str) -> list[tuple[int, str]]:
    """The digits in a template's own words.

    Args:
        text: A Jinja template.

    Returns:
        Line and word of each; empty if the template is sound.

    Raises:
        TemplateSyntaxError: It is no template.
    """
    found = []
    for line, token, data in Environment().lex(text):  # noqa: S701 - nothing is rendered here
        if token == "data":  # noqa: S105
            found += [(line + offset - 1, word) for offset, word in loose_digits(data)]
    return found


def check_template(text: str, name: str) -> None:
    """Refuses a template with typed numbers.

    Raises:
        RecipeError: It has one, or it is no template; says the line.
    """
    try:
        found = lint_template(text)
    except TemplateSyntaxError as error:
        raise RecipeError(f"{error.message}", where=f"{name}:{error.lineno}") from None
    if found:
        line, word = found[0]
        raise RecipeError(
            f"the number in {word!r} is typed by hand",
            where=f"{name}:{line}",
            remedy="Print the field of the record that it comes from; a name with a digit goes into NAMES in "
            "bot/card/lint.py.",
        )
