"""The machine that `bot publish --on` names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import RecipeError

if TYPE_CHECKING:
    from bot.pipeline.remote import Machine

TOKEN = "BOT_JOBS_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_FLAVOR = "cpu-basic"


def machine_of(on: str | None, scratch: str | None, token_file: Path | None, minutes: int) -> Machine | None:
    """The machine for a build; None for this one.

    Args:
        on: `hf-jobs` or `hf-jobs:FLAVOR`.
        scratch: The private repository for handing over.
        token_file: Holds a token that is good for it; `BOT_JOBS_TOKEN` if left out.
        minutes: How long a Job may take.

    Raises:
        RecipeError: Something is missing or malformed.
    """
    if on is None:
        return None
    from bot.hub.tokens import read_token_file
    from bot.pipeline.remote import Machine

    match = re.fullmatch(r"hf-jobs(?::([a-z0-9][a-z0-9-]*))?", on)
    if match is None:
        raise RecipeError(f"{on!r} is no machine", where="--on", remedy="Write hf-jobs, or hf-jobs:t4-small.")
    if not scratch or not re.fullmatch(r"[\w.-]+/[\w.-]+", scratch):
        remedy = "Create a private repository on the Hub, and name it OWNER/NAME."
        raise RecipeError("a Job needs a repository for handing over", where="--scratch", remedy=remedy)
    token = read_token_file(token_file) if token_file else os.environ.get(TOKEN, "").strip()
    if not token:
        remedy = f"Make a fine-grained token that may write to {scratch} and nothing else; give its file, or {TOKEN}."
        raise RecipeError("a Job needs a token of its own", where="--scratch-token", remedy=remedy)
    return Machine(match[1] or DEFAULT_FLAVOR, scratch, token, seconds=60 * minutes)
