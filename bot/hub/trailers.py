"""The lines at the end of a commit message, a description or a comment by which the bot knows its own work again."""

from __future__ import annotations

import re

from bot.records import Release

IDENTITY = Release.TRAILER
RECIPE = "Recipe"
CLOSED = "Closed-By-Bot"
STOPPED = "Stopped-For"
"""With the recipe's side of an identity: nothing is published of this recipe, whatever its files are, until somebody
has changed it."""

_LINE = re.compile(rf"^({IDENTITY}|{RECIPE}|{CLOSED}|{STOPPED}): ([^\s].*?)\s*$", re.MULTILINE)


def with_trailers(text: str, trailers: dict[str, str]) -> str:
    """The text with trailers after it, as a paragraph of their own."""
    lines = "\n".join(f"{name}: {value}" for name, value in trailers.items())
    return f"{text.rstrip()}\n\n{lines}" if text.strip() else lines


def trailers_of(text: str) -> dict[str, str]:
    """The bot's trailers in a text; of several of one name the last counts, since what is quoted stands before it."""
    return dict(_LINE.findall(text))
