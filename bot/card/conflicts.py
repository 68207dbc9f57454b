"""What became of a person's edits of the published card, in Markdown: for the pull request and the comment on it."""

from __future__ import annotations

import re

from bot.card.markdown import visible_lines
from bot.card.merge import Conflict, Merged

_CONFLICTS = 10
_LINES = 40
"""How many conflicts, and how many lines of each side, are shown; the pull request's own diff has them all."""


def conflicts_markdown(merged: Merged | None) -> str:
    """A section on the card's edits; empty if a person made none.

    Args:
        merged: The card, merged with what a person had made of the last one; None if nobody had touched it.
    """
    if merged is None or not (merged.conflicts or merged.kept):
        return ""
    parts = ["### README.md was edited by a person"]
    if merged.kept:
        places = "one place" if merged.kept == 1 else f"{merged.kept} places"
        parts.append(f"The edits in {places} were carried over into the new card.")
    if merged.conflicts:
        several = len(merged.conflicts) > 1
        parts.append(
            f"**{'These lines were' if several else 'This was'} changed by a person, and this release would change "
            f"{'them' if several else 'it'} too.** README.md keeps the person's words (`-`), figures in them included. "
            "To take the new ones (`+`), edit README.md in this pull request."
        )
        parts += [_block(conflict) for conflict in merged.conflicts[:_CONFLICTS]]
        if len(merged.conflicts) > _CONFLICTS:
            parts.append(f"And {len(merged.conflicts) - _CONFLICTS} more.")
    return "\n\n".join(parts) + "\n"


def _block(conflict: Conflict) -> str:
    """Both sides as a code block, in which nothing can act, with a fence that they cannot end."""
    lines = [*_side("-", conflict.theirs), *_side("+", conflict.new)]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}diff", *lines, fence])


def _side(sign: str, text: str) -> list[str]:
    lines = visible_lines(text).split("\n")
    shown = [f"{sign} {line}".rstrip() for line in lines[:_LINES]]
    return shown if len(lines) <= _LINES else [*shown, f"{sign} … {len(lines) - _LINES} more lines"]
