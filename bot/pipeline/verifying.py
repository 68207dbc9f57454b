"""`bot verify`: a release held against its record, from the Hub alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from bot.pipeline.context import Context

if TYPE_CHECKING:
    from bot.hub.verify import Verification


def verify_release(context: Context, repository: str, revision: str) -> Verification:
    """Downloads a release into a fresh folder, compares every file with the record, and opens every model.

    Raises:
        UpstreamError: There is no such repository or revision.
        VerificationError: It holds no record that can be read.
    """
    from bot.hub import verify as verifying

    context.work.clean()
    folder = context.work.temporary(context.work.root / "verify")
    context.reporter.stage("verify", f"{repository}@{revision}")
    try:
        verification = verifying.verify(
            context.hub, repository, revision, cache=folder, progress=context.reporter.update
        )
        for artifact in verification.release.published:
            path = verification.folder / artifact.file
            if path.is_file() and not verification.differs(artifact.file):
                context.call("graph.check", {"model": str(path)}, reads=[path.parent])
                context.reporter.note(f"{artifact.file} is a valid model")
        return verification
    finally:
        shutil.rmtree(folder, ignore_errors=True)
