"""Prints how large and how small a model's tensors become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer


def print_ranges(model: Path, found: dict[str, Any], *, as_json: bool) -> None:
    """Prints what the task `graph.ranges` found.

    Args:
        model: The file.
        found: Its answer.
        as_json: As one JSON document.
    """
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    typer.echo(f"{model}: {found['samples']} of {found['samples_available']} samples on {found['runtime']}")
    _print_table(found["tensors"])
    for line in range_lines(found):
        typer.echo(line)


def _print_table(tensors: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("tensor", "operator"):
        table.add_column(name, overflow="fold")
    for name in ("largest", "channel", "typical", "smallest", "beyond", "below"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in tensors:
        channel = "" if each["channel"] is None else str(each["channel"])
        sizes = [_short(each[key]) for key in ("largest", "typical", "smallest")]
        counts = [f"{each['beyond']:,}", f"{each['subnormal'] + each['vanished']:,}"]
        table.add_row(each["tensor"], each["op"], sizes[0], channel, *sizes[1:], *counts)
    Console(markup=False, highlight=False).print(table)


def range_lines(found: dict[str, Any]) -> list[str]:
    """What follows from the figures, in sentences."""
    lines = [
        "beyond: values that would be infinite in fp16; below: that would be subnormal or zero",
        f"{found['beyond_float16']} of {found['measured']} measured tensors leave fp16's range",
    ]
    massive, residual = found["massive_activation"], found["residual_stream"]
    if massive:
        size, typical = _short(massive["size"]), _short(massive["typical"])
        lines.append(f"massive activation: {size} on channel {massive['channel']} of {massive['tensor']}; half of the")
        lines[-1] += f" channels stay below {typical}"
    if residual:
        head = f"residual stream of {residual['additions']} additions: up to {_short(residual['peak'])}, "
        scale = residual["scale"]
        lines.append(head + ("within fp16's range" if scale == 1 else f"in fp16's range at 1/{round(1 / scale)} of it"))
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in found["not_measured"].items())
    if left_out:
        lines.append(f"not measured: {left_out}")
    if found["random_weights"]:
        lines.append("its weights are random, as the file itself says")
    return lines


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if 1000 <= number < 1e9 else f"{number:.4g}"
