"""Builds the artifacts of a published release again, from upstream, and compares them byte for byte.

The code that builds is the verifier's own: the steps of this very bot, and a recipe.py only out of the verifier's own
folder of recipes. Nothing that was downloaded is ever run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest

from bot.errors import RecipeError, StepError
from bot.pipeline.again import Again, Known
from bot.pipeline.building import Built, build_artifacts
from bot.pipeline.context import Context
from bot.pipeline.findings import Finding
from bot.pipeline.samples import load_calibration
from bot.records import Artifact, Release
from bot.work import WorkFolder

KIND = "rebuilt file"


def rebuild(context: Context, release: Release, known: Known, again: Again) -> list[Finding]:
    """Builds again what a release published, in a folder of its own so that no step is taken from an earlier run.

    Args:
        context: The surroundings.
        release: The record.
        known: Its recipe.
        again: Its upstream and samples.

    Returns:
        A finding for each file.

    Raises:
        RecipeError: The verifier has a copy of the recipe, and it is another one; the message names what differs.
    """
    why = known.why_not_built(release)
    if known.different:
        raise RecipeError(
            f"{why}.",
            where="bot verify --rebuild",
            remedy="Check out the recipe as it was for this release, and name its folder with --recipes.",
        )
    why = why or again.why_no_source
    if why:
        return [Finding(KIND, each.file, "not checked", each.sha256, reason=why) for each in release.published]
    folder = context.work.temporary(context.work.root / "rebuild")
    try:
        built = _build(replace(context, work=WorkFolder(folder)), again)
        return [finding for each in release.published for finding in _held(each, built.get(each.name))]
    except StepError as error:
        why = f"it could not be built: {error}" + (f"; {again.why_no_samples}" if again.why_no_samples else "")
        return [Finding(KIND, each.file, "not checked", each.sha256, reason=why) for each in release.published]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(context: Context, again: Again) -> dict[str, Built]:
    prepared, samples = again.prepared, again.samples
    calibration = load_calibration(context, prepared, samples) if samples is not None else None
    feeds = samples.feeds if samples is not None else {key: {} for key in prepared.models}
    return {each.artifact.name: each for each in build_artifacts(context, prepared, feeds, calibration=calibration)}


def _held(recorded: Artifact, built: Built | None) -> Iterator[Finding]:
    """One artifact's files held against the record."""
    if recorded.taken_over:
        why = "it was there before the recipe, which only measures it (frozen: <sha256>)"
        yield Finding(KIND, recorded.file, "not checked", recorded.sha256, reason=why)
        return
    if built is None:
        yield Finding(KIND, recorded.file, "differs", recorded.sha256, "nothing", "its recipe does not build it")
        return
    reason = _tools(recorded, built.artifact)
    for path, one, other in zip_longest(_places(recorded), _digests(recorded), _digests(built.artifact)):
        same = one == other
        yield Finding(
            KIND,
            path or recorded.file,
            "ok" if same else "differs",
            one or "nothing",
            other or "nothing",
            reason * (not same),
        )


def _places(artifact: Artifact) -> list[str]:
    """Where an artifact's files lie in the target: its graph, its weights, what tells how to use it."""
    beside = [*artifact.weights, *([artifact.sidecar] if artifact.sidecar else [])]
    return [artifact.file, *(record.path for record in beside)]


def _digests(artifact: Artifact) -> list[str]:
    beside = [*artifact.weights, *([artifact.sidecar] if artifact.sidecar else [])]
    return [artifact.sha256, *(record.sha256 for record in beside)]


def _tools(recorded: Artifact, built: Artifact) -> str:
    """Tools that were of another version then: the likely reason for other bytes."""
    names = sorted(recorded.built_with.keys() | built.built_with.keys())
    changed = [
        f"{name} {recorded.built_with.get(name, 'absent')} then, {built.built_with.get(name, 'absent')} now"
        for name in names
        if recorded.built_with.get(name) != built.built_with.get(name)
    ]
    return f"probably since other tools built it: {'; '.join(changed)}" if changed else ""
