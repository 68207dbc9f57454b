"""Whether a model is what its record says of it: its inputs and outputs, its versions, what its graph consists of.

The run that publishes a hand-over opens no model and takes this on trust, so whoever verifies has to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bot.errors import VerificationError
from bot.pipeline.context import Context
from bot.pipeline.sources import inspect
from bot.records import Artifact, Inspection, Release

_FACTS = ("inputs", "outputs", "opsets", "ir_version", "external_files")
"""What stands in the file itself. The rest of a signature is the bot's own conclusion, which a later bot may change."""


def require_described(context: Context, release: Release, artifact: Artifact, path: Path, where: str) -> None:
    """Looks at a downloaded model and compares it with its record.

    Args:
        context: The surroundings.
        release: The record.
        artifact: What it says of this model.
        path: The model.
        where: What to name in the error.

    Raises:
        VerificationError: They differ.
    """
    different = list(_differences(release, artifact, inspect(context, path)))
    if different:
        raise VerificationError(
            f"is not what its record says: {'; '.join(different)}.",
            where=where,
            remedy="Do not use it. Whoever built the release has described another model.",
        )


def _differences(release: Release, artifact: Artifact, found: Inspection) -> Iterator[str]:
    for name in _FACTS:
        is_there, recorded = getattr(found.signature, name), getattr(artifact.signature, name)
        if is_there != recorded:
            yield f"{name} of its signature"
    if found.census != artifact.census:
        yield f"its census, of {found.census.nodes} nodes where {artifact.census.nodes} are recorded"
    if found.random_weights and not release.random_weights:
        yield "it says that its weights are random, and the record does not"
