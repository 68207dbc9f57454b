"""The due recipes as a matrix for GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bot.records import Due

LARGEST = 256
"""Jobs that a matrix may have."""


def oldest_first(due: Iterable[Due]) -> list[Due]:
    """By the date of what makes it due; those without a date come first, since nobody knows how long they wait."""
    return sorted(due, key=lambda each: (each.since, each.recipe))


def matrix(due: Iterable[Due]) -> dict[str, Any]:
    """The matrix: the oldest recipes, as many as fit. Every value is a recipe author's or one of the fixed reasons."""
    rows = [
        {"recipe": each.recipe, "target": each.target, "runner": each.runner, "reason": ", ".join(each.reasons)}
        for each in oldest_first(due)
    ]
    return {"include": rows[:LARGEST]}
