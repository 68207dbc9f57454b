"""What the worker does with a stranger's model card. JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bot.records import Json


def declared(arguments: dict[str, Any], progress: Callable[[int, int, str], None]) -> Json:
    """Reads what a card declares of licence and origin; see `front_matter.declared`.

    Args:
        arguments: `card` (the file).
        progress: Not told anything: it takes a moment.

    Returns:
        A `Declared` as plain JSON data.
    """
    from bot.licenses.front_matter import LARGEST_CARD, declared

    with Path(arguments["card"]).open("rb") as card:
        return declared(card.read(LARGEST_CARD)).to_plain()
