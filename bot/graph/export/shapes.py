"""What the names and shapes of a checkpoint's tensors say of its network, where no configuration does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.errors import UpstreamError

MOST = 256
"""Layers, blocks or stages that a network may have."""


def shape_of(tensors: Mapping[str, Any], name: str, axes: int, where: str) -> tuple[int, ...]:
    """The shape of one tensor.

    Args:
        tensors: By name.
        name: Of the one.
        axes: How many axes it has to have.
        where: Name of the file, for errors.

    Raises:
        UpstreamError: It is not there, or has another number of axes, or an empty one.
    """
    if name not in tensors:
        raise UpstreamError(f"lacks {name}, which every checkpoint of this architecture has", where=where)
    shape = tuple(int(size) for size in tensors[name].shape)
    if len(shape) != axes or 0 in shape:
        raise UpstreamError(
            f"{name} has shape {list(shape)}; {axes} axes were expected, none of them empty", where=where
        )
    return shape


def count(tensors: Mapping[str, Any], prefix: str, first: int = 0) -> int:
    """How many modules of a list there are: those whose tensors begin with the prefix, a number and a point.

    They are counted up to the first that is missing, so that a number beyond all reason asks for nothing.

    Args:
        tensors: By name.
        prefix: Of the list.
        first: The number of the first module that has tensors.
    """
    numbers = {name.removeprefix(prefix).partition(".")[0] for name in tensors if name.startswith(prefix)}
    found = 0
    while str(first + found) in numbers and found < MOST:
        found += 1
    return found
