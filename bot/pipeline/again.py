"""A published release made ready to be measured or built again: its recipe, and its upstream at its commits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot.canonical import write_atomically
from bot.errors import HubError, RecipeError, StepError, UpstreamError
from bot.pipeline.context import Context
from bot.pipeline.findings import Finding
from bot.pipeline.identity import part_digests
from bot.pipeline.licensing import Licensing
from bot.pipeline.prepare import Prepared, fetch_model, fetch_samples
from bot.pipeline.samples import Samples, load_samples
from bot.pipeline.sources import SourceModel, onnx_source, open_sources
from bot.recipe import CODE_FILE, RECIPE_FILE, Recipe, load_recipe, recipe_from_plan
from bot.recipe_plan import RecipePlan
from bot.records import Release, Source

FOLDER_PARTS = {
    "code": "recipe.py",
    "environment": "the list of exact packages",
    "card": "card.md.j2",
    "licenses": "the licence texts",
    "reviewed": "licenses/reviewed.json",
}
"""The parts of a recipe besides its YAML, by their key in the record."""


@dataclass(frozen=True)
class Known:
    """The recipe that a release was made by.

    Attributes:
        recipe: The recipe; it has code only if it is the verifier's own copy.
        is_own: It is the verifier's own copy, and the same in every part.
        different: What of the verifier's copy differs, so that it was not taken.
        copy: Where that copy lies; None if there is none, or it was taken.
    """

    recipe: Recipe
    is_own: bool
    different: tuple[str, ...] = ()
    copy: Path | None = None

    def why_not_built(self, release: Release) -> str:
        """Why nothing can be built by it; empty if it can."""
        if self.is_own:
            return ""
        if self.different:
            names = ", ".join(self.different)
            verb = "differs" if len(self.different) == 1 else "differ"
            return f"{self.copy} is not the recipe that the release was made by: {names} {verb}"
        if not release.recipe_parts:
            return "the record does not say whether its recipe has code of its own"
        if "code" in release.recipe_parts:
            return f"its recipe has code of its own ({CODE_FILE}), and code that was downloaded is never run"
        if any(self.recipe.exported(key) for key in self.recipe.models):
            return "it is exported from torch, with packages that its recipe names"
        return ""


def published_recipe(context: Context, release: Release, folder: Path, where: str) -> Recipe:
    """The recipe as the release's record has it, without any code.

    The text is somebody else's: it is parsed in the worker, and what comes out is checked as every recipe is.

    Args:
        context: The surroundings.
        release: The record.
        folder: An empty folder.
        where: What to call the text in errors.

    Raises:
        RecipeError: This version of the bot cannot read it.
    """
    text = folder / "text" / "recipe.yaml"
    write_atomically(text, release.recipe_text.encode())
    found: Any = context.call("recipe.parse", {"file": str(text), "where": where}, reads=[text])
    try:
        plan = RecipePlan.model_validate(found["plan"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise RecipeError(
            f"its recipe cannot be read: at {place}: {first['msg']}.",
            where=where,
            remedy="It was written for another version of the bot.",
        ) from None
    return recipe_from_plan(release.recipe, folder / "recipe", plan, release.recipe_text)


def different_parts(release: Release, published: Recipe, own: Recipe) -> list[str]:
    """What of the verifier's copy of a recipe is not what a release was made by.

    Recipes are compared by what they mean; the texts beside them by the digests in the record.
    """
    mine = part_digests(own)
    found = ["recipe.yaml"] if own.meaning() != published.meaning() else []
    return found + [name for key, name in FOLDER_PARTS.items() if release.recipe_parts.get(key) != mine.get(key)]


def known_recipe(context: Context, release: Release, recipes: Path | None, folder: Path, where: str) -> Known:
    """The recipe of a release: the verifier's own copy if it is the same, else the text in the record.

    Args:
        context: The surroundings.
        release: The record.
        recipes: The verifier's folder of recipes; None for none.
        folder: An empty folder.
        where: What to call the record's text in errors.

    Raises:
        RecipeError: The record's text cannot be read, or the verifier's copy cannot be loaded.
    """
    published = published_recipe(context, release, folder, where)
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", release.recipe)
    if recipes is None or not is_name or not (recipes / release.recipe / RECIPE_FILE).is_file():
        return Known(published, is_own=False)
    own = load_recipe(recipes / release.recipe)
    if different := different_parts(release, published, own):
        return Known(published, is_own=False, different=tuple(different), copy=own.folder)
    return Known(own, is_own=True)


@dataclass(frozen=True)
class Again:
    """A release's upstream and samples, as far as they can be had.

    Attributes:
        prepared: For the stages after fetch.
        samples: What everything is measured on; None if it cannot be had.
        findings: How they stand to the record.
        why_no_source: Why nothing can be held against the source; empty if it can.
        why_no_samples: The same for the samples.
    """

    prepared: Prepared
    samples: Samples | None
    findings: tuple[Finding, ...]
    why_no_source: str
    why_no_samples: str


def fetch_again(context: Context, known: Known, release: Release) -> Again:
    """Fetches what a release was made from and measured on, at the commits in its record.

    Raises:
        BotError: The disk is full, or a worker could not be started.
    """
    recipe, findings = known.recipe, list[Finding]()
    source, files, models = Source(commit=release.source.commit), dict[str, Path](), dict[str, SourceModel]()
    why_no_source = ""
    try:
        source, files, _ = fetch_model(context, recipe, at=release.source.commit)
        findings += _held(
            "source", release.source.repo or release.source.url, _digests(release.source), _digests(source)
        )
        models = _open(context, known, source, files)
    except (UpstreamError, RecipeError, HubError, StepError) as error:
        why_no_source = f"the source cannot be had: {error.what}"
    prepared = Prepared(
        recipe=recipe,
        source=source,
        source_files=files,
        copies={},
        inspections={},
        models=models,
        samples=Source(commit=""),
        sample_files={},
        identity=release.identity,
        recipe_id=release.recipe_id,
        licensing=Licensing(source, None, {}, ()),
    )
    if not models:
        name = release.source.repo or release.source.url
        why = why_no_source or "it is built by torch, and a copy of the recipe is needed for that"
        return Again(prepared, None, (*findings, Finding("source", name, "not checked", reason=why)), why, why)
    return _with_samples(context, release, Again(prepared, None, tuple(findings), why_no_source, ""))


def _with_samples(context: Context, release: Release, again: Again) -> Again:
    if len(release.samples) != 1:
        why = f"the record names {len(release.samples)} data sets, and a recipe has one"
        finding = Finding("samples", "of the release", "not checked", reason=why)
        return replace(again, findings=(*again.findings, finding), why_no_samples=why)
    (recorded,) = release.samples
    try:
        data, places = fetch_samples(context, again.prepared.recipe, at=recorded.commit)
        findings = list(_held("samples", recorded.repo, _digests(recorded), _digests(data)))
        prepared = replace(again.prepared, samples=data, sample_files=places)
        samples = load_samples(context, prepared)
    except (UpstreamError, RecipeError, HubError, StepError) as error:
        why = f"the samples cannot be had: {error.what}"
        finding = Finding("samples", recorded.repo, "not checked", reason=why)
        return replace(again, findings=(*again.findings, finding), why_no_samples=why)
    findings += _held("samples", "the list of them", {"": release.samples_digest}, {"": samples.digest})
    return replace(again, prepared=prepared, samples=samples, findings=(*again.findings, *findings))


def _open(context: Context, known: Known, source: Source, files: Mapping[str, Path]) -> dict[str, SourceModel]:
    """The sources that can be opened: a torch module only by the verifier's own copy of the recipe."""
    recipe = known.recipe
    if known.is_own:
        return open_sources(context, recipe, source, files)
    plain = [key for key in recipe.models if not recipe.exported(key)]
    return {key: onnx_source(key, source, files) for key in plain}


def _digests(source: Source) -> dict[str, str]:
    return {key: record.sha256 for key, record in source.files.items()}


def _held(kind: str, name: str, recorded: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Finding]:
    """Digests held against those in the record: one finding for each that differs, or one for all."""
    wrong = [key for key in sorted(recorded.keys() | found.keys()) if recorded.get(key) != found.get(key)]
    for key in wrong:
        place = f"{name}: {key}" if key else name
        yield Finding(kind, place, "differs", recorded.get(key) or "nothing", found.get(key) or "nothing")
    if not wrong:
        said = next(iter(found.values())) if len(found) == 1 else f"{len(found)} files"
        yield Finding(kind, name, "ok", said, said)
