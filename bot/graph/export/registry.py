"""The architectures that a recipe can name. To add one: a module beside this one that defines `ARCHITECTURE`, and its
line here."""

from __future__ import annotations

import difflib
import importlib

from bot.graph.export.interface import Architecture

ARCHITECTURES: dict[str, str] = {
    "bert": "bot.graph.export.bert",
    "dinov2": "bot.graph.export.dinov2",
    "emotieffnet": "bot.graph.export.emotieffnet",
    "emotion2vec": "bot.graph.export.emotion2vec",
    "farl": "bot.graph.export.farl",
    "linmult": "bot.graph.export.linmult",
    "modernbert": "bot.graph.export.modernbert",
    "wavlm": "bot.graph.export.wavlm",
    "xlm_roberta": "bot.graph.export.xlm_roberta",
}
"""Name to module. A module imports no torch until its `load` is called."""


def find_architecture(name: str) -> Architecture:
    """A built-in architecture.

    Raises:
        ValueError: There is none of that name. The text is for the recipe's author.
    """
    if name not in ARCHITECTURES:
        near = difflib.get_close_matches(name, ARCHITECTURES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no architecture {name!r}: there are {', '.join(sorted(ARCHITECTURES))}{hint}")
    found: Architecture = importlib.import_module(ARCHITECTURES[name]).ARCHITECTURE
    return found
