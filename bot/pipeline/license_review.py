"""`bot licenses`: what upstream declares now, beside what a recipe's author reviewed, and writing down a review."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from bot.canonical import file_sha256
from bot.errors import BotError, RecipeError
from bot.licenses.reviewed import Change, Comparison, Reviewed, compare, read_reviewed
from bot.pipeline.context import Context
from bot.pipeline.licensing import terms_of
from bot.recipe import LICENSE_FOLDER, REVIEWED_FILE, Recipe
from bot.records import FileRecord, Terms

MOST_LINES = 400
"""Lines of one text's difference that are shown."""


@dataclass(frozen=True)
class TextDifference:
    """How a licence text changed since it was reviewed.

    Attributes:
        repo: Whose text.
        path: Its path there.
        lines: A unified diff, without line ends.
        problem: Why there is none: the old text cannot be had any more, or it is no text.
    """

    repo: str
    path: str
    lines: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class LicenseReview:
    """What a reviewer has to read.

    Attributes:
        recipe: Whose upstream.
        comparison: What is upstream beside what was reviewed.
        differences: How the texts changed.
        places: Where each text lies on this machine, by repository and path.
    """

    recipe: Recipe
    comparison: Comparison
    differences: tuple[TextDifference, ...]
    places: dict[tuple[str, str], Path]


def review_licenses(context: Context, recipe: Recipe) -> LicenseReview:
    """Reads the terms of a recipe's upstream and of its base models, at their newest commits.

    Raises:
        RecipeError: The source is not on a Hub, or the recipe's review cannot be read.
        UpstreamError: It cannot be had.
    """
    upstream = recipe.plan.upstream
    if upstream.repo is None:
        recipe.fail(("upstream", "url"), "is no repository, so nothing declares a licence there")
    context.reporter.stage("license", upstream.repo)
    terms, bases = terms_of(context, upstream.repo, upstream.follow)
    reviewed = read_reviewed(recipe.review)
    comparison = _compare(recipe, terms, bases, reviewed)
    folder = context.work.upstream
    places = {
        (each.repo, text.path): folder / each.repo / each.commit / text.path
        for each in (terms, *bases)
        for text in each.texts
    }
    old = {each.repo: each for each in (reviewed.upstream, *reviewed.base_models)} if reviewed else {}
    differences = tuple(
        _difference(context, old[change.repo], change, places[change.repo, change.what])
        for change in comparison.changes
        if change.repo in old and (change.repo, change.what) in places and change.old and change.new
    )
    return LicenseReview(recipe, comparison, differences, places)


def accept(review: LicenseReview) -> tuple[Path, Comparison]:
    """Writes down that what is upstream now was reviewed; a review that holds already is left as it is.

    Returns:
        The file, and what still differs: the licence id that the recipe itself names is the author's to change.

    Raises:
        RecipeError: The file cannot be written.
    """
    path = review.recipe.folder / LICENSE_FOLDER / REVIEWED_FILE
    first, *rest = (standing.terms for standing in review.comparison.standings)
    known = review.comparison.reviewed
    now = Reviewed(upstream=first, base_models=tuple(_kept(terms, known) for terms in rest))
    if known is None or review.comparison.changes:
        try:
            now.write(path)
        except OSError as error:
            raise RecipeError(f"cannot be written: {error.strerror}.", where=str(path)) from None
    return path, _compare(review.recipe, first, tuple(rest), read_reviewed(path))


def _kept(terms: Terms, known: Reviewed | None) -> Terms:
    """A base model that cannot be read now keeps the review that it has."""
    before = {each.repo: each for each in known.base_models} if known else {}
    return before.get(terms.repo, terms) if terms.unchecked else terms


def _compare(recipe: Recipe, terms: Terms, bases: tuple[Terms, ...], reviewed: Reviewed | None) -> Comparison:
    plan = recipe.plan.license
    own = {file_sha256(path) for path in recipe.license_files().values()}
    return compare(terms, bases, reviewed, plan.upstream or plan.id, own)


def _difference(context: Context, reviewed: Terms, change: Change, new: Path) -> TextDifference:
    record = next(text for text in reviewed.texts if text.path == change.what)
    try:
        old = _old_text(context, reviewed, record)
    except BotError as error:
        return TextDifference(change.repo, change.what, problem=f"the old text cannot be had: {error.what}")
    before, after = old.read_bytes(), new.read_bytes()
    if b"\0" in before or b"\0" in after:
        return TextDifference(change.repo, change.what, problem="it is no plain text")
    lines = difflib.unified_diff(
        before.decode("utf-8", errors="replace").splitlines(),
        after.decode("utf-8", errors="replace").splitlines(),
        f"{change.what} at {reviewed.commit[:12]}",
        f"{change.what} now",
        lineterm="",
    )
    shown = list(lines)
    rest = len(shown) - MOST_LINES
    return TextDifference(
        change.repo, change.what, (*shown[:MOST_LINES], *([f"… and {rest} lines more"] if rest > 0 else ()))
    )


def _old_text(context: Context, reviewed: Terms, record: FileRecord) -> Path:
    """The text as it was reviewed, from the repository's history.

    Raises:
        BotError: It is not there any more.
    """
    from bot.hub.fetch import fetch_listed

    listed = context.hub.files_at(reviewed.repo, reviewed.commit, [record.path])
    into = context.work.upstream
    found = fetch_listed(context.hub, reviewed.repo, reviewed.commit, list(listed.values()), into=into)
    if not found or found[0].sha256 != record.sha256:
        raise RecipeError("it is not there, or is another text.", where=f"{reviewed.repo}@{reviewed.commit[:12]}")
    return into / reviewed.repo / reviewed.commit / record.path
