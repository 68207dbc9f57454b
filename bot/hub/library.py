"""The Hub's client library, set up once; what every module that moves files needs of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bot.errors import StepError


def library() -> Any:
    """The client library, set up once for the whole process: no telemetry, no token of its own, our session."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("HF_XET_TELEMETRY_ENABLED", "0")
    import huggingface_hub
    import huggingface_hub.constants as constants
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from bot.hub import session

    if not getattr(huggingface_hub, "_bot_session", False):
        # The library may have been imported before, with the variables unset.
        constants.HF_HUB_DISABLE_TELEMETRY = True
        constants.HF_HUB_DISABLE_IMPLICIT_TOKEN = True
        disable_progress_bars()
        huggingface_hub.set_client_factory(session.new_client)
        huggingface_hub._bot_session = True
    return huggingface_hub


def disk_full(place: str | Path) -> StepError:
    """The error for a full disk."""
    return StepError(
        "the disk is full.",
        where=str(place),
        remedy="Free some space there, or choose another work folder; what is complete is not fetched again.",
    )
