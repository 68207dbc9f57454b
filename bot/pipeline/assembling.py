"""Gathers everything into the Release, renders the card from it, and lays out the folder that is published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import bot
from bot import gates
from bot.canonical import canonical_json, file_sha256, text_sha256, write_atomically
from bot.card import card as cards
from bot.errors import StepError
from bot.pipeline.building import Built
from bot.pipeline.context import Context
from bot.pipeline.identity import part_digests
from bot.pipeline.kept import CARD, CARD_AS_RENDERED, README_RECORD, files_of
from bot.pipeline.measuring import Figures
from bot.pipeline.prepare import Prepared
from bot.pipeline.reviewing import merge_edits
from bot.pipeline.samples import Samples
from bot.pipeline.sidecars import sidecar_of
from bot.provenance import statement as provenance
from bot.recipe import LICENSE_FOLDER, Recipe
from bot.records import Json, LicenseRecord, Release, Verdict

RECIPE_COPY = "release/recipe.yaml"
COPIES = "source"


@dataclass(frozen=True)
class Assembled:
    """A release, ready to be published.

    Attributes:
        release: The record.
        folder: All that goes into the target repository, at its path there.
        card: The card's text, a person's edits of the last one merged in.
        title: Of the pull request or commit.
        description: Of the pull request or commit, in Markdown.
        page: The review page.
        review: What it shows.
    """

    release: Release
    folder: Path
    card: str
    title: str
    description: str
    page: Path
    review: cards.Review


def make_release(
    context: Context, prepared: Prepared, built: Sequence[Built], samples: Samples, figures: dict[str, Figures]
) -> Release:
    """Judges the figures and puts everything into one record."""
    recipe = prepared.recipe
    verdicts: list[Verdict] = []
    for each in built:
        found = figures[each.artifact.name]
        judged = gates.judge(recipe, each.artifact.name, found.measurements, found.checks, require=context.require)
        # A file that was taken over is there, whatever it measures: what it fails is said, and withholds nothing.
        verdicts += [_said(verdict) for verdict in judged] if each.artifact.taken_over else judged
    verdicts += prepared.licensing.verdicts()
    plan = recipe.plan
    return Release(
        identity=prepared.identity,
        recipe_id=prepared.recipe_id,
        recipe=recipe.name,
        recipe_text=recipe.text,
        recipe_parts=part_digests(recipe),
        target=plan.target.repo,
        runtime=plan.target.runtime,
        source=prepared.source,
        samples=(prepared.samples,),
        samples_digest=samples.digest,
        artifacts=tuple(each.artifact for each in built),
        measurements=tuple(measurement for each in built for measurement in figures[each.artifact.name].measurements),
        verdicts=tuple(verdicts),
        withheld=gates.withheld(verdicts),
        all_or_nothing=plan.all_or_nothing,
        licenses=(*_licenses(recipe), *prepared.licensing.records),
        declared=_declared(recipe),
        copies=prepared.source.copies,
        bot_version=bot.__version__,
        random_weights=prepared.random_weights or any(each.random_weights for each in built),
    )


def _said(verdict: Verdict) -> Verdict:
    return verdict.model_copy(update={"required": False})


def _licenses(recipe: Recipe) -> tuple[LicenseRecord, ...]:
    plan = recipe.plan.license
    origins = _origins(recipe)
    paths = recipe.license_files()
    main = LicenseRecord(
        name=plan.name or plan.id,
        file=plan.file,
        sha256=file_sha256(paths[plan.file]),
        origin=origins.get(plan.file, ""),
    )
    return (
        main,
        *(
            LicenseRecord(
                name=also.name,
                file=also.file,
                sha256=file_sha256(paths[also.file]),
                notice=also.notice,
                origin=origins.get(also.file, ""),
            )
            for also in plan.also
        ),
    )


def _origins(recipe: Recipe) -> dict[str, str]:
    """Where each licence text was taken from, as licenses/SOURCES.yaml says."""
    from ruamel.yaml import YAML

    path = recipe.folder / LICENSE_FOLDER / "SOURCES.yaml"
    if not path.is_file():
        return {}
    data = YAML(typ="safe").load(path.read_text("utf-8")) or {}
    return {str(name): str(entry.get("from", "")) for name, entry in data.items() if isinstance(entry, dict)}


def _declared(recipe: Recipe) -> dict[str, Json]:
    plan = recipe.plan.model_dump(mode="json", by_alias=True)
    return {
        "upstream": {key: plan["upstream"][key] for key in ("repo", "url", "follow", "files")},
        "card": plan["card"],
        "license": plan["license"],
        "inputs": plan["inputs"],
        "accuracy": plan["measure"]["accuracy"],
        "samples": plan["measure"]["samples"],
        "calibration": plan["calibration"],
        "timings": plan["measure"]["timings"],
        "gates": plan["gates"],
    }


def assemble(
    context: Context, prepared: Prepared, release: Release, built: Sequence[Built], previous: cards.Published | None
) -> Assembled:
    """Renders the card, merges a person's edits of the last one into it, and lays out the folder to publish.

    It lies under work/releases/IDENTITY, with the review page and the summary beside it.

    Args:
        context: The surroundings.
        prepared: What was fetched.
        release: The record.
        built: The artifacts and their files.
        previous: What the target holds now; None if nothing.
    """
    context.reporter.stage("card", release.target)
    recipe = prepared.recipe
    template = recipe.card_template
    card = cards.render_card(release, template=template.read_text("utf-8"), template_name=str(template)).text
    merged = merge_edits(previous, card)
    readme = card if merged is None else merged.text
    title, description = cards.render_pull_request(release, merged)
    plots = cards.render_plots(release)
    root = context.work.root / "releases" / release.identity
    folder = root / "publish"
    texts = {
        CARD: readme.encode(),
        CARD_AS_RENDERED: card.encode(),
        README_RECORD: _readme_record(readme, merged),
        RECIPE_COPY: recipe.text.encode(),
        Release.PATH: release.to_json(),
        **{plot.path: plot.svg for plot in plots},
        **_sidecars(recipe, release),
    }
    if release.built:  # A statement is about what was made here, and has to be about something.
        texts[provenance.PATH] = provenance.statement(release, _recipe_files(recipe))
    files = {path: here for each in built if each.artifact in release.built for path, here in each.files().items()}
    files |= recipe.license_files() | prepared.licensing.texts
    files |= {f"{COPIES}/{name}": path for name, path in prepared.copies.items()}
    if taken := sorted(texts.keys() & files.keys()):
        # A graph names the files of its weights, and its names are not to be trusted.
        raise StepError("would lie at the place of something that is written here.", where=taken[0])
    _lay_out(folder, texts, files, {weights.path for each in built for weights in each.artifact.weights})
    laid_out = files_of(folder, {each.artifact.file: each.artifact.sha256 for each in built})
    review = cards.Review(release, readme, laid_out, plots, previous, merged)
    page = root / "review.html"
    write_atomically(page, cards.render_review(review).encode())
    write_atomically(root / "summary.md", cards.render_summary(review).encode())
    return Assembled(release, folder, readme, title, description, page, review)


def _sidecars(recipe: Recipe, release: Release) -> dict[str, bytes]:
    """The sidecars of what goes out, by path. They are made from the record, which tells their digests already."""
    texts = {each.sidecar.path: sidecar_of(recipe, release.source, each) for each in release.built if each.sidecar}
    return {path: text for path, text in texts.items() if text is not None}


def _readme_record(readme: str, merged: cards.Merged | None) -> bytes:
    """What README.md is: its sha256, and what became of a person's edits. With it, a merged card can be verified."""
    conflicts = [asdict(conflict) for conflict in merged.conflicts] if merged else []
    return canonical_json(
        {
            "schema_version": 1,
            "sha256": text_sha256(readme),
            "edits_kept": merged.kept if merged else 0,
            "conflicts": conflicts,
        }
    )


def _recipe_files(recipe: Recipe) -> dict[str, str]:
    """sha256 of the recipe's code and of its card's template, by file name."""
    paths = [path for path in (recipe.code, recipe.card_template) if path]
    return {path.name: file_sha256(path) for path in paths}


def _lay_out(folder: Path, texts: dict[str, bytes], files: dict[str, Path], weights: Collection[str]) -> None:
    """Makes the folder hold these files and no others.

    Files are linked rather than copied, but for those that hold a graph's weights: the ONNX library refuses a graph
    whose weights have a second name somewhere.
    """
    if folder.exists():
        shutil.rmtree(folder)
    for name, data in texts.items():
        write_atomically(folder / name, data)
    for name, path in files.items():
        destination = folder / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            if name in weights:
                shutil.copyfile(path, destination)
            else:
                os.link(path, destination)
        except OSError:
            shutil.copyfile(path, destination)
