"""`bot tune`: which of a recipe's candidates is the fastest that passes the gates, on one machine.

Publishing never decides by a stopwatch: it builds what the recipe says. This does decide, once, and writes what it
found into the recipe, where a person reads it and commits it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot import gates
from bot.errors import RecipeError, StepError
from bot.graph import steps
from bot.measure import availability, providers
from bot.pipeline.answers import folders_of, texts_of
from bot.pipeline.building import Built, build_artifacts
from bot.pipeline.context import Context
from bot.pipeline.measuring import measure
from bot.pipeline.prepare import Prepared, prepare
from bot.pipeline.samples import Samples, load_calibration, load_samples
from bot.pipeline.twins import with_parameters as of_candidate
from bot.recipe import Recipe
from bot.recipe_edit import with_parameters
from bot.recipe_plan import ArtifactPlan
from bot.records import Json, Measurement

NOISE = 1.01
"""Times as fast a candidate must be at least for the recipe to be changed: below, the clock decides, not the file."""


@dataclass(frozen=True)
class Candidate:
    """Parameters for the steps of an artifact.

    Attributes:
        parameters: Per step, by its place: all that the recipe would say.
        current: They are those that the recipe says now.
    """

    parameters: Mapping[int, Mapping[str, Json]]
    current: bool = False

    @property
    def label(self) -> str:
        """The parameters in one line."""
        parts = (
            ", ".join(f"{key}: {_word(value)}" for key, value in each.items()) for each in self.parameters.values()
        )
        return "; ".join(parts) or "no parameters"


def _word(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(_word(each) for each in value)}]" if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Tried:
    """What became of a candidate.

    Attributes:
        candidate: Its parameters.
        dropped: Why it is out: the gate that it fails, or the step; empty if it is in.
        nodes: Of its graph; 0 if it was not built.
        casts: Likewise.
        bytes: Likewise.
        speedups: Times as fast as the reference, per batch size.
        latencies: Milliseconds, per batch size.
    """

    candidate: Candidate
    dropped: str = ""
    nodes: int = 0
    casts: int = 0
    bytes: int = 0
    speedups: Mapping[int, float] = field(default_factory=dict)
    latencies: Mapping[int, float] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """The geometric mean over the batch sizes; 0 if it was not timed."""
        ratios = self.speedups.values()
        return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) if ratios else 0.0


@dataclass(frozen=True)
class Tuning:
    """What tuning one artifact came to.

    Attributes:
        artifact: Its key.
        provider: What the clock ran on.
        device: Its name.
        runtime: Name and version.
        reference: What the others are compared with, in words.
        tried: Every candidate, the recipe's own first.
        winner: The fastest that passes; None if none does.
        changed: The winner is another one than the recipe's own.
        text: The recipe as it is now, or would be.
    """

    artifact: str
    provider: str
    device: str
    runtime: str
    reference: str
    tried: tuple[Tried, ...]
    winner: Tried | None
    changed: bool
    text: str

    def to_plain(self) -> dict[str, Json]:
        """As plain JSON data."""
        return {
            "artifact": self.artifact,
            "provider": self.provider,
            "device": self.device,
            "runtime": self.runtime,
            "reference": self.reference,
            "changed": self.changed,
            "winner": self.winner.candidate.label if self.winner else None,
            "candidates": [
                {
                    "parameters": {str(place): {**given} for place, given in each.candidate.parameters.items()},
                    "current": each.candidate.current,
                    "dropped": each.dropped,
                    "nodes": each.nodes,
                    "casts": each.casts,
                    "bytes": each.bytes,
                    "speedups": {str(batch): ratio for batch, ratio in each.speedups.items()},
                    "latencies_ms": {str(batch): value for batch, value in each.latencies.items()},
                }
                for each in self.tried
            ],
        }


def tune(
    context: Context, recipe: Recipe, *, artifact: str = "", provider: str = "", write: bool = True
) -> list[Tuning]:
    """Tries the candidates of a recipe.

    Args:
        context: The surroundings.
        recipe: Its artifacts say under `tune` what to try.
        artifact: The key of the only one to tune; all that have candidates if left out.
        provider: What the clock runs on; the recipe's first that is no CPU and runs here, else the CPU, if left out.
        write: Write the winners into recipe.yaml.

    Returns:
        What was found, per artifact.

    Raises:
        RecipeError: Nothing is to be tried, or a candidate's parameters are wrong.
        StepError: The provider is not here.
    """
    chosen = _chosen(recipe, artifact)
    candidates = {key: candidates_of(recipe, key) for key in chosen}
    provider = provider or _fastest_provider(recipe)
    availability.require(provider)
    prepared = prepare(context, recipe)
    samples = load_samples(context, prepared)
    calibration = load_calibration(context, prepared, samples)
    found = []
    text = recipe.text
    for key in chosen:
        trial = _Trial(context, prepared, samples, calibration, key, provider)
        tuning = _decide(trial, trial.all(candidates[key]), text)
        text = tuning.text
        found.append(tuning)
    if write and text != recipe.text:
        recipe.path.write_text(text, "utf-8")
    return found


def _chosen(recipe: Recipe, artifact: str) -> list[str]:
    plans = recipe.plan.artifacts
    if artifact and artifact not in plans:
        raise RecipeError(f"there is no artifact {artifact!r}", remedy=f"There are: {', '.join(plans)}.")
    chosen = [key for key in ([artifact] if artifact else plans) if plans[key].tune]
    if not chosen:
        place = ("artifacts", artifact) if artifact else ("artifacts",)
        recipe.fail(place, "says nothing to tune", "Write the candidates under `tune`; see docs/recipes.md.")
    for key in chosen:
        if plans[key].frozen:
            recipe.fail(("artifacts", key, "frozen"), "is published for good, and nothing about it is to be tuned")
    return chosen


def candidates_of(recipe: Recipe, artifact: str) -> list[Candidate]:
    """The recipe's own parameters first, then what it says to try; none twice.

    Raises:
        RecipeError: A step does not take these parameters.
    """
    plan = recipe.plan.artifacts[artifact]
    places = {step.name: place for place, step in enumerate(plan.steps)}
    tuned = sorted({places[name] for candidate in plan.tune for name in candidate})
    own = {place: plan.steps[place].parameters for place in tuned}
    candidates = [Candidate(own, current=True)]
    seen = [_checked(recipe, artifact, plan, own, None)]
    for index, given in enumerate(plan.tune):
        parameters = {place: given.get(plan.steps[place].name, own[place]) for place in tuned}
        checked = _checked(recipe, artifact, plan, parameters, index)
        if checked not in seen:
            seen.append(checked)
            candidates.append(Candidate(parameters))
    return candidates


def _checked(
    recipe: Recipe,
    artifact: str,
    plan: ArtifactPlan,
    parameters: Mapping[int, Mapping[str, Json]],
    index: int | None,
) -> dict[int, dict[str, Json]]:
    """The parameters with their defaults, so that two ways to write the same are the same."""
    own = steps.recipe_step_names(recipe.code) if recipe.code else frozenset()
    found = {}
    for place, given in parameters.items():
        name = plan.steps[place].name
        try:
            found[place] = dict(given) if name in own else steps.parse_parameters(name, given)
        except ValueError as error:
            key = ("steps", place) if index is None else ("tune", index, name)
            recipe.fail(("artifacts", artifact, *key), str(error))
    return found


def _fastest_provider(recipe: Recipe) -> str:
    usable = availability.available()
    wanted = [name for name in recipe.plan.measure.timings.providers if name != "cpu" and name in usable]
    return wanted[0] if wanted else "cpu"


@dataclass(frozen=True)
class _Trial:
    """One artifact, and what its candidates are tried with."""

    context: Context
    prepared: Prepared
    samples: Samples
    calibration: Samples | None
    artifact: str
    provider: str

    def all(self, candidates: Sequence[Candidate]) -> tuple[str, list[Tried]]:
        """Builds and gates all, and times those that pass against one reference; says what that is."""
        reporter = self.context.reporter
        built: list[Built | None] = []
        tried: list[Tried] = []
        for number, candidate in enumerate(candidates, start=1):
            reporter.stage("tune", f"{self.artifact}, {number} of {len(candidates)}: {candidate.label}")
            made, dropped = self._gated(candidate)
            built.append(None if dropped else made)
            census = made.artifact.census if made else None
            size = made.artifact.bytes if made else 0
            counted = (census.nodes, census.casts, size) if census else (0, 0, 0)
            tried.append(Tried(candidate, dropped, *counted))
            if dropped:
                reporter.note(f"out: {dropped}")
        reference, what = self._reference(built)
        for number, made in enumerate(built):
            if made is not None:
                reporter.stage("time", f"{self.artifact} on {self.provider}: {candidates[number].label}")
                tried[number] = self._timed(tried[number], made, reference)
        return what, tried

    def _gated(self, candidate: Candidate) -> tuple[Built | None, str]:
        """Builds a candidate and holds it against all gates; says why it is out."""
        recipe = self._recipe_of(candidate)
        prepared = replace(self.prepared, recipe=recipe)
        made: Built | None = None
        try:
            built = build_artifacts(self.context, prepared, self.samples.feeds, calibration=self.calibration)
            made = next(each for each in built if each.artifact.name == self.artifact)
            figures = measure(self.context, prepared, built, self.samples)[self.artifact]
        except StepError as error:
            return made, f"{error.where}: {error.what}" if error.where else error.what
        require = self.context.require
        verdicts = gates.judge(recipe, self.artifact, figures.measurements, figures.checks, require=require)
        held = [verdict for verdict in verdicts if verdict.withholds]
        return made, "; ".join(f"{each.rule}: {each.reason}" if each.reason else each.rule for each in held)

    def _recipe_of(self, candidate: Candidate) -> Recipe:
        """The recipe with these parameters, and without the artifacts that are neither tuned nor compared with."""
        plan = self.prepared.recipe.plan
        recipe = of_candidate(self.prepared.recipe, self.artifact, candidate.parameters)
        baseline = plan.measure.timings.baseline
        if baseline in (self.artifact, "source") or plan.artifacts[baseline].taken_over:
            timings = plan.measure.timings.model_copy(update={"baseline": "source"})
            measured = plan.measure.model_copy(update={"timings": timings})
            return replace(recipe, plan=recipe.plan.model_copy(update={"measure": measured}))
        artifacts = {baseline: plan.artifacts[baseline], **recipe.plan.artifacts}
        return replace(recipe, plan=recipe.plan.model_copy(update={"artifacts": artifacts}))

    def _reference(self, built: Sequence[Built | None]) -> tuple[Built | None, str]:
        """The recipe's own form if it passes, else the first that does; None where none does."""
        for number, made in enumerate(built):
            if made is not None:
                return made, "the recipe's own parameters" if number == 0 else f"candidate {number + 1}"
        return None, ""

    def _timed(self, tried: Tried, made: Built, reference: Built | None) -> Tried:
        assert reference is not None  # there is one where a candidate passed  # noqa: S101
        recipe = self.prepared.recipe
        feeds = self.samples.feeds[made.artifact.made_from]
        answer = self.context.call(
            "measure.latency",
            {
                "candidate": str(made.path),
                "baseline": str(reference.path),
                "feeds": texts_of(feeds),
                "batches": list(recipe.plan.measure.timings.batches),
                "provider": self.provider,
                "threads": self.context.threads,
                "seconds": self.context.timing_seconds,
                "artifact": self.artifact,
                "against": "reference",
                "samples_digest": self.samples.digest,
            },
            reads=folders_of(made.path, reference.path, *feeds.values()),
        )
        figures = [Measurement.model_validate(each) for each in answer["measurements"]]  # type: ignore[union-attr]
        ratios = {each.batch: each.value for each in figures if each.subject == "speedup" and each.batch}
        times = {each.batch: each.value for each in figures if each.subject == "latency" and each.batch}
        return replace(tried, speedups=ratios, latencies=times)


def _decide(trial: _Trial, outcome: tuple[str, list[Tried]], text: str) -> Tuning:
    """The fastest; the recipe's own parameters unless another is faster by more than noise."""
    reference, tried = outcome
    passing = [each for each in tried if not each.dropped]
    winner = max(passing, key=lambda each: each.speed, default=None)
    own = next((each for each in passing if each.candidate.current), None)
    if winner is not None and own is not None and winner.speed < NOISE * own.speed:
        winner = own
    changed = winner is not None and not winner.candidate.current
    tuning = Tuning(
        artifact=trial.artifact,
        provider=trial.provider,
        device=providers.device_name(trial.provider),
        runtime=providers.runtime_name(),
        reference=reference,
        tried=tuple(tried),
        winner=winner,
        changed=changed,
        text=text,
    )
    if winner is None:
        return tuning
    where = str(trial.prepared.recipe.path)
    parameters = winner.candidate.parameters if changed else {}
    new = with_parameters(text, trial.artifact, parameters, note_of(tuning, winner), where=where)
    return replace(tuning, text=new)


def note_of(tuning: Tuning, winner: Tried) -> list[str]:
    """What the recipe's comment says: on what, when, of how many, and how much faster."""
    passing = sum(not each.dropped for each in tuning.tried)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    first = f"{day} on {tuning.provider} ({tuning.device}, {tuning.runtime}): the fastest of {passing} that pass the"
    first += f" gates, of {len(tuning.tried)} tried"
    others = [each for each in tuning.tried if each is not winner and not each.dropped]
    lines = [first]
    own = winner.candidate.current or tuning.reference != "the recipe's own parameters"
    against = "the reference" if own else f"before ({tuning.tried[0].candidate.label})"
    if winner.speedups and not winner.candidate.current:
        ratios = ", ".join(f"{ratio:.2f} at batch {batch}" for batch, ratio in sorted(winner.speedups.items()))
        lines.append(f"times as fast as {against}: {ratios}")
    elif others:
        best = max(others, key=lambda each: each.speed)
        ratios = ", ".join(f"{ratio:.2f} at batch {batch}" for batch, ratio in sorted(best.speedups.items()))
        lines.append(f"the next ({best.candidate.label}) is times as fast: {ratios}")
    return lines
