"""`bot inspect`: what a model file is, and how large its tensors become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot.cli import options

if TYPE_CHECKING:
    from bot.worker import Worker


def inspect(
    model: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to look at.")],
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Run it over --samples and show which tensors leave fp16's range.")
    ] = False,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FEEDS.npz", help="One array per graph input, first axis the sample."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many tensors --ranges shows.")] = 10,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="How many samples are run at most, evenly spread; 0 for all.")
    ] = 32,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Show a model file's signature and census; with --ranges, how large and how small its tensors become.

    The signature is what a caller must know: inputs, outputs, opsets, the oldest runtime that reads it. The census is
    what the graph consists of: nodes by operator, casts, parameters by type. The ranges say what fp16 cannot hold,
    which channel carries a massive activation, and which power of two brings the residual stream into range.

    Example: bot inspect model.onnx --ranges --samples feeds.npz
    """
    from bot.pipeline.single import inspect_single
    from bot.worker import Worker

    worker = Worker(require_isolation=require_isolation)
    if ranges or samples:
        _ranges(worker, model, samples, top=top, limit=limit, as_json=as_json)
        return
    from bot.cli.report import print_inspection

    print_inspection(model, inspect_single(worker, model), as_json=as_json)


def _ranges(worker: Worker, model: Path, samples: Path | None, *, top: int, limit: int, as_json: bool) -> None:
    from bot.cli.console import reporting
    from bot.cli.range_report import print_ranges
    from bot.errors import RecipeError
    from bot.pipeline.single import ranges_of_single

    if samples is None:
        raise RecipeError(
            "--ranges runs the model, and there are no samples",
            where=str(model),
            remedy="Give --samples FEEDS.npz, as numpy.savez writes it: one array per input of the graph.",
        )
    with reporting() as reporter:
        answer = ranges_of_single(worker, reporter, model, samples, top=top, limit=limit)
    print_ranges(model, answer, as_json=as_json)
