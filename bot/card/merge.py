"""A person's edits of a published card, merged with a new render of it: three ways, over the card as it was rendered.

What only one side changed is taken from that side. Where both changed the same lines, the words in them are merged if
most of them are still those of the base; else the person's lines stay, and the place is told as a conflict, for a
person to decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

LARGEST = 1_000_000
"""Characters. A larger card is kept as it is: comparing takes time that grows faster than its size."""

_ALIKE = 0.7
"""The share of the base's words that both sides must have kept, for a merge by words to make sense."""

_STATE = ("release_id", "source_commit", "recipe_id")
"""Keys of the front matter that tell which release this is. They are the bot's, whatever stands around them."""


@dataclass(frozen=True)
class Conflict:
    """A place that both sides changed differently: what stood there, a person's lines (kept), and the new ones."""

    base: str
    theirs: str
    new: str


@dataclass(frozen=True)
class Merged:
    """A merge.

    Attributes:
        text: The result.
        conflicts: The places where a person's lines were kept against new ones.
        kept: In how many places a person's changes were taken over without a conflict.
    """

    text: str
    conflicts: tuple[Conflict, ...] = ()
    kept: int = 0


def merge_card(base: str, theirs: str, new: str) -> Merged:
    """Merges a card.

    Args:
        base: The card as the last release rendered it.
        theirs: The card as it is published now.
        new: The card as this release renders it.

    Returns:
        The new card, with what a person changed in the published one. Which release it is of is always said as in the
        new one.
    """
    theirs = theirs.replace("\r\n", "\n")
    if max(len(base), len(theirs), len(new)) > LARGEST:
        return Merged(theirs, (Conflict(base, theirs, new),))
    for key in _STATE:
        line = re.search(rf"^{key}:.*$", _head(new), re.MULTILINE)
        if line is not None:
            base, theirs = (_with_line(text, key, line[0]) for text in (base, theirs))
    merged = merge(base, theirs, new)
    if _repeats_a_key(_head(merged.text)) and not _repeats_a_key(_head(theirs)):
        # Both sides added the same key: as YAML that means nothing, and a Hub refuses it.
        text = _head(theirs) + merged.text[len(_head(merged.text)) :]
        conflict = Conflict(_head(base), _head(theirs), _head(new))
        return Merged(text, (conflict, *merged.conflicts), merged.kept)
    return merged


def _head(card: str) -> str:
    """The front matter of a card, delimiters included; empty if it has none."""
    match = re.match(r"---\n.*?^---\n", card, re.DOTALL | re.MULTILINE)
    return match[0] if match else ""


def _with_line(card: str, key: str, line: str) -> str:
    head = _head(card)
    return re.sub(rf"^{key}:.*$", lambda _: line, head, flags=re.MULTILINE) + card[len(head) :]


def _repeats_a_key(head: str) -> bool:
    keys = re.findall(r"^([A-Za-z_][\w-]*):", head, re.MULTILINE)
    return len(set(keys)) < len(keys)


def merge(base: str, theirs: str, new: str, *, by_words: bool = True) -> Merged:
    """Merges two texts that come from one.

    Args:
        base: What both began with.
        theirs: One of them. In a conflict its lines stay.
        new: The other one.
        by_words: Merge the words of lines that both changed, where that makes sense.
    """
    out: list[str] = []
    conflicts: list[Conflict] = []
    kept = 0
    for old, one, other in _chunks(base.split("\n"), theirs.split("\n"), new.split("\n")):
        if old == one:
            out += other
        elif old == other or one == other:
            out += one
            kept += one != other
        else:
            texts = ["\n".join(lines) for lines in (old, one, other)]
            words = _merge_words(*texts) if by_words and old and one and other else None
            if words is None:
                conflicts.append(Conflict(*texts))
                out += one
            else:
                kept += 1
                out += words.split("\n")
    return Merged("\n".join(out), tuple(conflicts), kept)


def _merge_words(base: str, theirs: str, new: str) -> str | None:
    """Lines that both sides changed, merged word by word; None if they changed the same words, or too many."""
    old, one, other = (re.findall(r"\S+\s*|\s+", text) for text in (base, theirs, new))
    for side in (one, other):
        same = sum(block.size for block in _matches(old, side))
        if same < _ALIKE * max(len(old), len(side)):
            return None
    out: list[str] = []
    for before, mine, yours in _chunks(old, one, other):
        if before not in (mine, yours) and mine != yours:
            return None
        out += yours if before == mine else mine
    return "".join(out)


def _matches(old: Sequence[str], side: Sequence[str]) -> list[_Match]:
    blocks = SequenceMatcher(None, old, side, autojunk=False).get_matching_blocks()
    return [_Match(block.a, block.b, block.size) for block in blocks]


@dataclass(frozen=True)
class _Match:
    """A run that two sequences share: where it begins in each, and its length."""

    old: int
    side: int
    size: int


def _chunks(
    base: Sequence[str], theirs: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Cuts three sequences into pieces that belong together: what all three share lies between what any changed."""
    in_theirs, in_new = (
        {match.old + step: match.side + step for match in _matches(base, side) for step in range(match.size)}
        for side in (theirs, new)
    )
    i = j = k = 0
    for index in range(len(base)):
        if index not in in_theirs or index not in in_new:
            continue
        to_j, to_k = in_theirs[index], in_new[index]
        if (i, j, k) != (index, to_j, to_k):
            yield list(base[i:index]), list(theirs[j:to_j]), list(new[k:to_k])
        yield [base[index]], [theirs[to_j]], [new[to_k]]
        i, j, k = index + 1, to_j + 1, to_k + 1
    if (i, j, k) != (len(base), len(theirs), len(new)):
        yield list(base[i:]), list(theirs[j:]), list(new[k:])
