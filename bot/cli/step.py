"""`bot step`: one step on any file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def step(
    name: Annotated[
        str, typer.Argument(metavar="STEP", help="The step's name; a wrong one lists those that there are.")
    ],
    source: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The file to read.")],
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The file to write.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A parameter of the step; the value is YAML: keep=[Softmax, Add]."
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FEEDS.npz", help="One array per graph input, for steps that look at data."),
    ] = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Run one build step on any ONNX file, in the isolated worker.

    Example: bot step float16 model.onnx model-fp16.onnx --set keep=[Softmax]
    """
    from bot.cli.console import reporting
    from bot.cli.report import print_step
    from bot.pipeline.single import run_single_step
    from bot.worker import Worker

    with reporting() as reporter:
        answer = run_single_step(
            Worker(require_isolation=require_isolation),
            reporter,
            name,
            source,
            output,
            settings=settings or [],
            samples=samples,
        )
    print_step(name, output, answer, as_json=as_json)
