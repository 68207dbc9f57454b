"""What the target holds already of a release's artifacts: files to take over, and the places of those that were built.

Both are decided from the target's head alone, before anything is measured or said: card, usage, pins and record speak
of the names that the files will have there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.errors import UpstreamError
from bot.graph.export.sidecar import SUFFIX
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.kept import published_at
from bot.pipeline.prepare import checked_steps
from bot.pipeline.sources import inspect
from bot.recipe import Recipe
from bot.records import Artifact, StepRecord

if TYPE_CHECKING:
    from bot.card.published import Published
    from bot.hub.client import Hub
    from bot.hub.held import Held
    from bot.hub.target import Target


@dataclass(frozen=True)
class Standing:
    """What a target holds before a release: its head, and the release there with its card. None if there is nothing."""

    target: Target | None = None
    published: Published | None = None


def what_is_there(hub: Hub, repo: str) -> Standing:
    """Reads what a target holds.

    Raises:
        HubError: The Hub could not be read.
    """
    from bot.hub.target import read_target

    target = read_target(hub, repo)
    return Standing(target, published_at(hub, repo, target.head) if target is not None else None)


def take_over(context: Context, recipe: Recipe) -> dict[str, Built]:
    """The artifacts that lie in the target already, as the recipe says (`frozen: <sha256>`), by their keys.

    Each is brought here and inspected, and stands where others have what was built.

    Raises:
        OverwriteError: The target does not hold one of them.
        UpstreamError: One of them is no model.
        HubError: The Hub could not be read.
    """
    from bot.hub import held

    repo, found = recipe.plan.target.repo, {}
    for key, plan in recipe.plan.artifacts.items():
        if not plan.taken_over:
            continue
        context.reporter.stage("take over", f"{repo}: {plan.file}")
        here = held.bring(
            context.hub,
            repo,
            plan.file,
            plan.taken_over,
            context.work.root / "held",
            where=recipe.locate("artifacts", key, "frozen"),
            progress=context.reporter.update,
        )
        found[key] = _taken_over(context, recipe, key, here)
    return found


def _taken_over(context: Context, recipe: Recipe, key: str, held: Held) -> Built:
    from bot.hub.held import bring_weights

    names = _external_files(context, held)
    weights = bring_weights(context.hub, held, names, progress=context.reporter.update)
    inspection = inspect(context, held.path)
    artifact = Artifact(
        name=key,
        file=held.file,
        made_from=recipe.made_from(key),
        frozen=True,
        taken_over=True,
        steps=declared_steps(recipe, key),
        bytes=held.path.stat().st_size,
        sha256=held.sha256,
        weights=tuple(weights),
        signature=inspection.signature,
        census=inspection.census,
        built_with={},
    )
    return Built(artifact, held.path, inspection.random_weights)


def _external_files(context: Context, held: Held) -> list[str]:
    """What a model calls the files that hold its weights, before they are here."""
    from bot.hub.paths import why_unsafe

    answer = context.call("graph.external_files", {"model": str(held.path)}, reads=[held.path.parent])
    names = [str(name) for name in answer["files"]]  # type: ignore[union-attr]
    for name in names:
        if why := why_unsafe(name):
            raise UpstreamError(f"names a file with its weights {name!r}: {why}.", where=f"{held.repo}: {held.file}")
    return names


def declared_steps(recipe: Recipe, key: str) -> tuple[StepRecord, ...]:
    """What the recipe says of how a file was once made. Nobody has run it, so there are no reports."""
    return tuple(StepRecord(name=name, parameters=parameters) for name, parameters in checked_steps(recipe)[key])


def placed(recipe: Recipe, identity: str, target: Target | None, built: Sequence[Built]) -> list[Built]:
    """The artifacts under the paths that they get in the target; see `bot.hub.places`.

    Args:
        recipe: Names the path of each, and says what becomes of one that changes.
        identity: The short identity of the release.
        target: What the target holds; None if there is none, or if it is not to be looked at.
        built: The artifacts, under the paths that the recipe names.

    Raises:
        RecipeError: Two of them would lie at the same path.
    """
    from bot.hub.places import collisions

    found = [_placed(recipe, identity, target, each) for each in built]
    for path, one, other in collisions(tuple(each.artifact for each in found)):
        what = f"{path!r} is already a file of the artifact {one.name!r}"
        recipe.fail(("artifacts", other.name, "file"), what, "Give each artifact a folder of its own.")
    return found


def _placed(recipe: Recipe, identity: str, target: Target | None, each: Built) -> Built:
    from bot.hub.bundle import beside, ids_of
    from bot.hub.places import Content, place

    artifact = each.artifact
    if artifact.frozen:
        return each
    names = artifact.signature.external_files
    content = Content(ids_of(each.path), {name: ids_of(each.path.parent / name) for name in names})
    found = place(target, recipe.plan.artifacts[artifact.name].file, content, identity, artifact.on_change)
    weights = tuple(
        record.model_copy(update={"path": beside(found.file, name)})
        for name, record in zip(names, artifact.weights, strict=True)
    )
    update: dict[str, Any] = {"file": found.file, "weights": weights, "before": found.before}
    if artifact.sidecar is not None:
        update["sidecar"] = artifact.sidecar.model_copy(update={"path": found.file + SUFFIX})
    return replace(each, artifact=artifact.model_copy(update=update))
