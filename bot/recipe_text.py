"""Reads the text of a recipe that came with a release: somebody else's YAML, so this runs in the worker.

What comes out is plain data. It is checked against the same models as a recipe of one's own, and it can name steps that
are built in, never bring code. YAML lets a short text stand for a huge one; that is refused before it is unfolded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bot.errors import RecipeError
from bot.records import Json

LONGEST = 1024 * 1024
"""Characters of a recipe's text."""

DEEPEST = 32
MOST_ALIASES = 16
"""Every alias can at most double what the text stands for."""

MOST_NODES = 20_000


def parse(arguments: dict[str, Any], progress: Callable[[int, int, str], None]) -> Json:
    """Parses a recipe's text.

    Args:
        arguments: `file` (the text) and `where` (what to call it in errors).
        progress: Not told anything: it takes a moment.

    Returns:
        `plan`: what stands in it, as plain data.

    Raises:
        RecipeError: It is no YAML, or more than a recipe can be.
    """
    from bot.recipe import parse_yaml

    where = str(arguments["where"])
    text = Path(arguments["file"]).read_bytes().decode("utf-8", errors="replace")
    if len(text) > LONGEST:
        raise RecipeError(f"has {len(text)} characters, which no recipe has.", where=where)
    _check_size(text, where)
    data, _ = parse_yaml(text, Path(where))
    return {"plan": data}


def _check_size(text: str, where: str) -> None:
    """Looks at the events that the text consists of, without building anything from them.

    Raises:
        RecipeError: There are too many, or it is no YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    depth = nodes = aliases = 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            nodes += isinstance(event, NodeEvent)
            aliases += isinstance(event, AliasEvent)
            if depth > DEEPEST or nodes > MOST_NODES or aliases > MOST_ALIASES:
                raise RecipeError("is deeper, longer or more repetitive than a recipe can be.", where=where)
    except (YAMLError, ValueError, RecursionError, AttributeError, IndexError, TypeError) as error:
        first = (str(getattr(error, "problem", "") or error).splitlines() or [""])[0]
        raise RecipeError(f"not valid YAML: {first}", where=where) from None
