"""The commands, in the order in which --help lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import (
    build,
    card,
    hub,
    inspect,
    licenses,
    list_,
    lock,
    pins,
    publish,
    review,
    status,
    step,
    tune,
    verify,
    watch,
)

app = typer.Typer(
    name="bot",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help=(
        "Converts models, proves that they still answer as their source does, and publishes them on the Hugging Face "
        "Hub with a card on which no number was typed.\n\n"
        "Try it without an account: bot publish NAME --hub local"
    ),
    epilog=(
        "Exit codes: 0 done or nothing to do, 2 recipe or usage, 3 upstream unavailable, 4 a step failed, 5 withheld "
        "by a gate, 6 refused to overwrite, 7 Hub failure after retries, 8 verification mismatch, 9 a licence changed."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        import bot

        typer.echo(f"bot {bot.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("list")(list_.list_recipes)
app.command("watch")(watch.watch)
app.command("status")(status.status)
app.command("publish")(publish.publish)
app.command("build")(build.build)
app.command("card")(card.card)
app.command("review")(review.review)
app.command("licenses")(licenses.licenses)
app.command("lock")(lock.lock)
app.command("tune")(tune.tune)
app.command("step")(step.step)
app.command("inspect")(inspect.inspect)
app.command("verify")(verify.verify)
app.add_typer(pins.app, name="pins")
app.add_typer(hub.app, name="hub")
