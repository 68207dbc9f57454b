"""`bot inspect`: what a model file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def inspect(
    model: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to look at.")],
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Show a model file's signature and census, without running it.

    The signature is what a caller must know: inputs, outputs, opsets, the oldest runtime that reads it. The census is
    what the graph consists of: nodes by operator, casts, parameters by type.
    """
    from bot.cli.report import print_inspection
    from bot.pipeline.single import inspect_single
    from bot.worker import Worker

    print_inspection(model, inspect_single(Worker(require_isolation=require_isolation), model), as_json=as_json)
