"""`bot publish --from`: publishes what another run built, and believes nothing of it that can be known otherwise.

The run that built has opened a stranger's model. This one opens none: it reads the hand-over's one JSON record, reads
upstream's digests from the Hub anew, works out from these and from its own copy of the recipe what the record has to
say, and stops at the first place where it says something else. Verdicts are judged again, medians are taken again. The
card, the pictures and all texts are rendered here, and the folder that is published is laid out here.

What it cannot know without opening the model stays a claim: the figures themselves, the signature and the census of a
graph. `bot verify` afterwards, in a third run, downloads the files and looks.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bot
from bot.canonical import write_atomically
from bot.errors import RecipeError, UpstreamError
from bot.gates import EMULATION
from bot.measure import runtimes
from bot.pipeline import handover
from bot.pipeline.assembling import assemble, make_release
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.handover import HandOver
from bot.pipeline.licensing import saying_stops
from bot.pipeline.measuring import Figures, required_rules
from bot.pipeline.placing import Standing, placed, what_is_there
from bot.pipeline.prepare import NEWEST_COMMITS, Prepared, checked_steps, prepare_unopened
from bot.pipeline.releasing import Outcome, nothing_left, respect_withheld, send
from bot.pipeline.samples import Samples
from bot.pipeline.sidecars import with_sidecar
from bot.recipe import Recipe, rules_for
from bot.records import Artifact, Json, Measurement, Release, Source, StepRecord, Verdict, short

if TYPE_CHECKING:
    from bot.hub.publish import Publication

_WEIGHTS = re.compile(r"\w[\w.-]*\.onnx\.data", re.ASCII)
"""The names of the files that the bot's own steps write large weights into; nothing else of a release is called so."""


def publish_handover(
    context: Context,
    recipe: Recipe,
    folder: Path,
    *,
    dry_run: bool = False,
    reopen: bool = False,
    retry: bool = False,
    bundle: Path | None = None,
) -> Outcome:
    """Publishes what `bot build --out` has left, without opening a model.

    Args:
        context: The surroundings.
        recipe: What was built, as it lies here.
        folder: The hand-over.
        dry_run: Do everything but write to the Hub.
        reopen: Publish again what a person closed.
        retry: Try again what was withheld before.
        bundle: A signed statement about the artifacts, which travels with the release.

    Raises:
        RecipeError: The bundle cannot be read.
        VerificationError: The hand-over is not what an honest run would have left.
        BotError: As `publish`.
        WithheldError: As `publish`.
    """
    from bot.hub.publish import refuse_random_weights

    context.reporter.stage("receive", str(folder))
    received = handover.read(folder)
    with saying_stops(context, recipe, dry_run=dry_run):
        there = what_is_there(context.hub, recipe.plan.target.repo)
        prepared, release, built = check(context, recipe, received, there)
        prepared.licensing.require_reviewed(recipe)
    refuse_random_weights(context.hub, release)
    done = nothing_left(context, recipe, release.identity, dry_run=dry_run, reopen=reopen)
    if done is not None:
        return done
    if not retry:
        respect_withheld(context, recipe, release.identity)
    _require_no_way_back(context, recipe, there.target.release if there.target else None, release)
    assembled = assemble(context, prepared, release, built, there.published)
    if bundle is not None and release.built:
        _carry(bundle, release, assembled.folder)
    return send(
        context,
        recipe,
        assembled,
        lambda publication: _confirm(context, release, publication),
        dry_run=dry_run,
        reopen=reopen,
    )


def check(
    context: Context, recipe: Recipe, received: HandOver, there: Standing
) -> tuple[Prepared, Release, list[Built]]:
    """Holds a hand-over against what can be known without opening a model.

    Args:
        context: The surroundings.
        recipe: What was built, as it lies here.
        received: The hand-over.
        there: What the target holds.

    Returns:
        What upstream holds; the release, as it was worked out here; and its artifacts.

    Raises:
        VerificationError: The record says something that an honest run would not have said.
        BotError: Upstream could not be read, or the recipe does not fit.
    """
    claimed = received.release
    # What these say decides what is read from the Hub, so they come first.
    for place, found, wanted in (
        ("recipe", claimed.recipe, recipe.name),
        ("target", claimed.target, recipe.plan.target.repo),
        ("recipe_text", claimed.recipe_text, recipe.text),
        ("bot_version", claimed.bot_version, bot.__version__),
    ):
        if found != wanted:
            raise received.fail(place, f"is {_short(found)}, and should be {_short(wanted)}.")
    if len(claimed.samples) != 1:
        raise received.fail("samples", "is not one data set.")
    prepared = prepare_unopened(context, recipe, commit=claimed.source.commit, samples_commit=claimed.samples[0].commit)
    # Random weights are said by the model itself, which is not opened here.
    source = prepared.source.model_copy(update={"random_weights": claimed.source.random_weights})
    prepared = replace(prepared, source=source)
    built = [
        Built(artifact, received.artifacts.get(artifact.name, Path()))
        for artifact in _artifacts(recipe, received, source)
    ]
    built = _placed(recipe, received, there, prepared.identity, built)
    figures = {artifact.name: _figures(recipe, claimed, artifact) for artifact in claimed.artifacts}
    expected = make_release(context, prepared, built, Samples(claimed.samples_digest, [], {}, {}), figures)
    expected = expected.model_copy(update={"random_weights": source.random_weights})
    for place, found, wanted in _differences(claimed.to_plain(), expected.to_plain(), ""):
        raise received.fail(place, f"is {_short(found)}, and should be {_short(wanted)}.")
    for artifact in claimed.artifacts:
        _require_whole(context, recipe, received, artifact)
    for index, measurement in enumerate(claimed.measurements):
        if why := _why_inconsistent(claimed, measurement):
            raise received.fail(f"measurements[{index}], {measurement.artifact} {measurement.key}", why)
    return prepared, expected, built


def _artifacts(recipe: Recipe, received: HandOver, source: Source) -> Iterator[Artifact]:
    """The artifacts as the recipe has them, filled with what only the run that built can tell of them."""
    from bot.hub.bundle import beside

    claimed = {artifact.name: artifact for artifact in received.release.artifacts}
    plans = checked_steps(recipe)
    if list(claimed) != list(plans) or len(received.release.artifacts) != len(plans):
        what = f"are {', '.join(claimed) or 'none'}, and the recipe's are {', '.join(plans)}."
        raise received.fail("artifacts", what)
    for name, plan in plans.items():
        artifact, decided = claimed[name], recipe.plan.artifacts[name]
        place, names = f"artifacts[{name}]", artifact.signature.external_files
        if len(artifact.steps) != len(plan):
            raise received.fail(f"{place}.steps", f"are {len(artifact.steps)}, and the recipe has {len(plan)}.")
        if len(names) != len(artifact.weights) or not all(_WEIGHTS.fullmatch(each) for each in names):
            raise received.fail(f"{place}.signature.external_files", "are not such as the bot writes weights into.")
        steps = tuple(
            StepRecord(name=step, parameters=parameters, report={} if decided.taken_over else made.report)
            for (step, parameters), made in zip(plan, artifact.steps, strict=True)
        )
        update: dict[str, Any] = {
            "file": decided.file,
            "made_from": recipe.made_from(name),
            "frozen": bool(decided.frozen),
            "taken_over": bool(decided.taken_over),
            "on_change": recipe.on_change(name),
            "steps": steps,
            "weights": tuple(
                record.model_copy(update={"path": beside(decided.file, each)})
                for each, record in zip(names, artifact.weights, strict=True)
            ),
            "sidecar": None,
            "before": None,
        }
        if decided.taken_over:
            update |= {"sha256": decided.taken_over, "built_with": {}}
        worked_out = artifact.model_copy(update=update)
        try:
            yield worked_out if decided.taken_over else with_sidecar(recipe, source, worked_out)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise received.fail(f"{place}.steps[0].report", "is not what the step reports.") from None


def _placed(recipe: Recipe, received: HandOver, there: Standing, identity: str, built: Sequence[Built]) -> list[Built]:
    """The artifacts under the paths that they get in the target as it is now, which have to be those of the record.

    Raises:
        VerificationError: They are others.
    """
    found = placed(recipe, short(identity), there.target, built)
    claimed = {artifact.name: artifact.file for artifact in received.release.artifacts}
    for each in found:
        if each.artifact.file != claimed[each.artifact.name]:
            what = f"is {_short(claimed[each.artifact.name])}, and should be {_short(each.artifact.file)}: the target "
            what += "was changed since it was built, or the record was."
            raise received.fail(f"artifacts[{each.artifact.name}].file", what)
    return found


def _figures(recipe: Recipe, claimed: Release, artifact: Artifact) -> Figures:
    """What the record says was measured of an artifact, and what it says the gates of the bot's own accord said.

    Figures about a source stand with the artifact after which the record has them.
    """
    order = [each.name for each in claimed.artifacts]
    owner, found = order[0] if order else "", []
    for measurement in claimed.measurements:
        owner = measurement.artifact if measurement.artifact in order else owner
        if owner == artifact.name:
            found.append(measurement)
    limits = recipe.plan.gates.get(artifact.name, {})
    checks = [
        _check_of(verdict)
        for verdict in claimed.verdicts
        if verdict.artifact == artifact.name and verdict.comparison == "holds" and verdict.rule not in limits
    ]
    return Figures(tuple(found), tuple(checks), {})


def _check_of(verdict: Verdict) -> dict[str, Json]:
    return {
        "rule": verdict.rule,
        "status": verdict.status,
        "reason": verdict.reason,
        "value": verdict.value,
        "provider": verdict.provider,
        "required": verdict.required,
    }


def _require_whole(context: Context, recipe: Recipe, received: HandOver, artifact: Artifact) -> None:
    """Every check that every artifact passes through was made, and every figure was taken that the recipe asks for."""
    claimed, name = received.release, artifact.name
    made = {verdict.rule for verdict in claimed.verdicts if verdict.artifact == name and verdict.required}
    for rule in required_rules(recipe):
        if rule not in made:
            raise received.fail("verdicts", f"{name} was not held against {rule!r}, which every artifact is.")
    taken = {measurement.key for measurement in claimed.measurements_of(name)}
    providers = recipe.plan.measure.timings.providers
    for rule in rules_for(recipe, name):
        provider = rule.split(".")[1] if rule.startswith(("speedup.", "latency.")) else ""
        needed = not provider or providers.get(provider) == "required" or provider in context.require  # type: ignore[call-overload]
        if needed and rule not in taken:
            raise received.fail("measurements", f"there is no {rule} of {name}, which the recipe asks for.")
    _require_signature(recipe, received, artifact)


def _require_signature(recipe: Recipe, received: HandOver, artifact: Artifact) -> None:
    """The signature has the inputs and outputs that the recipe names, and opens in the runtime that it promises."""
    place, signature, census = f"artifacts[{artifact.name}]", artifact.signature, artifact.census
    inputs = {tensor.name for tensor in signature.inputs}
    outputs = {tensor.name for tensor in signature.outputs}
    if inputs != set(recipe.inputs_of(artifact.made_from)):
        raise received.fail(f"{place}.signature", f"has the inputs {', '.join(sorted(inputs)) or 'none'}.")
    for plan in recipe.accuracy_of(artifact.made_from).values():
        if not set(plan.outputs) <= outputs:
            raise received.fail(f"{place}.signature", f"lacks an output of {', '.join(plan.outputs)}.")
    counted = (sum(census.by_op.values()), census.by_op.get("Cast", 0))
    if counted != (census.nodes, census.casts) or min([0, *census.by_op.values(), *census.parameters.values()]) < 0:
        raise received.fail(f"{place}.census", "does not add up.")
    promised = runtimes.oldest_version(recipe.plan.target.runtime)
    if _numbers(signature.minimum_runtime) > _numbers(promised):
        what = f"is {signature.minimum_runtime}, and the target promises {promised}."
        raise received.fail(f"{place}.signature.minimum_runtime", what)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _why_inconsistent(release: Release, measurement: Measurement) -> str:
    """Why a figure cannot have been taken as it says; empty if it can."""
    if measurement.provider != "reference" and measurement.samples_digest != release.samples_digest:
        return "was taken on other samples than the rest."
    histogram = measurement.histogram
    if histogram is not None and (
        len(histogram.edges) != len(histogram.counts) + 1
        or list(histogram.edges) != sorted(histogram.edges)
        or min(histogram.counts, default=0) < 0
    ):
        return "has a histogram that is none."
    if measurement.provider == EMULATION and measurement.runs:
        return "is a timing of something that is not timed."
    again = _from_runs(measurement)
    if again is not None and again != measurement.value:
        return f"is {measurement.value}, and its runs make it {again}."
    return ""


def _from_runs(measurement: Measurement) -> float | None:
    """A timing from its raw runs, by the formula of `bot.measure.latency`; None for any other figure."""
    runs, against = measurement.runs, measurement.runs_against
    if measurement.subject == "latency":
        return statistics.median(runs) if runs and min(runs) > 0 else float("nan")
    if measurement.subject == "speedup":
        if not runs or len(runs) != len(against) or min(*runs, *against) <= 0:
            return float("nan")
        return statistics.median([each / run for run, each in zip(runs, against, strict=True)])
    return None


def _differences(found: Any, wanted: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two pieces of plain data differ, innermost places first named."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            inner = f"{place}.{key}" if place else str(key)
            yield from _differences(found.get(key), wanted.get(key), inner)
    elif isinstance(found, Sequence) and isinstance(wanted, Sequence) and not isinstance(found, str):
        for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from _differences(one, other, f"{place}[{index}]")
        if len(found) != len(wanted):
            yield place, f"{len(found)} long", f"{len(wanted)} long"
    elif found != wanted:
        yield place, found, wanted


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _require_no_way_back(context: Context, recipe: Recipe, before: Release | None, release: Release) -> None:
    """Stops a release of an older upstream commit than the published one, unless it is what the recipe follows now.

    Raises:
        UpstreamError: It is one.
    """
    upstream = recipe.plan.upstream
    if upstream.repo is None or before is None or before.source.repo != upstream.repo:
        return
    commit = release.source.commit
    if commit in (before.source.commit, context.hub.head(upstream.repo, upstream.follow).sha):
        return
    older = context.hub.commits(upstream.repo, before.source.commit, limit=NEWEST_COMMITS)
    if any(each.sha == commit for each in older):
        raise UpstreamError(
            f"the release was built from {commit[:12]}, which is older than {before.source.commit[:12]}, "
            "from which the published one was built",
            where=upstream.repo,
            remedy="Build again from what upstream holds now.",
        )


def _carry(bundle: Path, release: Release, folder: Path) -> None:
    """Puts a signed statement among the files of a release.

    Raises:
        RecipeError: It cannot be read, or is something else.
    """
    from bot.provenance.bundle import CARRIED, LARGEST_BUNDLE, why_not_carried

    try:
        if bundle.stat().st_size > LARGEST_BUNDLE:
            raise RecipeError(f"has more than {LARGEST_BUNDLE} bytes.", where=str(bundle))
        data = bundle.read_bytes()
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}.", where=str(bundle)) from None
    if why := why_not_carried(data, release):
        raise RecipeError(
            f"cannot travel with this release: {why}.", where=str(bundle), remedy="Sign these very artifacts."
        )
    write_atomically(folder / CARRIED, data)


def _confirm(context: Context, release: Release, publication: Publication) -> None:
    """Downloads what was published and compares every byte; opening it is for a run that has no rights."""
    import shutil

    from bot.hub import verify as verifying

    if publication.kind == "nothing":
        return
    context.reporter.stage("verify", f"{release.target}@{publication.revision}")
    folder = context.work.temporary(context.work.root / "verify")
    try:
        verifying.confirm(context.hub, release, publication, folder, progress=context.reporter.update)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
