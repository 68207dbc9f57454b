"""The command `bot`: one thin module per command, which parses, calls and prints."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; a failure that the bot understands becomes a message and its exit code."""
    from bot.cli import actions
    from bot.cli.app import app
    from bot.errors import BotError

    actions.guard_log()

    try:
        app(standalone_mode=True)
    except BotError as error:
        from bot.cli.console import print_error

        print_error(error)
        actions.report_failure(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again and it goes on from here", file=sys.stderr)  # noqa: T201
        sys.exit(130)
