"""Licences upstream: read at the commit that is built from, and held against what the recipe's author reviewed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.canonical import file_sha256
from bot.errors import BotError, LicenseChangedError
from bot.licenses.front_matter import Declared
from bot.licenses.reviewed import Comparison, Standing, compare, in_words, read_reviewed
from bot.pipeline.context import Context
from bot.pipeline.identity import recipe_id
from bot.recipe import Recipe
from bot.records import FileRecord, LicenseRecord, Source, Terms, Verdict
from bot.work import code_digest

if TYPE_CHECKING:
    from bot.hub.client import RepoType

MAIN = "main"
COPIES = "source"

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


class LicenseStopError(LicenseChangedError):
    """The licences upstream are not those that were reviewed.

    Attributes:
        comparison: What differs.
    """

    comparison: Comparison


@dataclass(frozen=True)
class Licensing:
    """What is known of the licences that a release stands under.

    Attributes:
        source: The upstream model, with its terms and those of its base models.
        comparison: How they stand to what was reviewed; None for a source that is not on a Hub.
        texts: Texts from upstream that travel with the release and are not among the recipe's own: path there to file.
        records: The same as the release records them.
    """

    source: Source
    comparison: Comparison | None
    texts: dict[str, Path]
    records: tuple[LicenseRecord, ...]

    def require_unchanged(self, recipe: Recipe) -> None:
        """Stops if something is otherwise than it was reviewed.

        Raises:
            LicenseStopError: It is; the message names each change.
        """
        if self.comparison is not None and self.comparison.has_changed:
            require_same(recipe, self.comparison)

    def require_reviewed(self, recipe: Recipe) -> None:
        """Stops unless somebody reviewed everything that can be read.

        Raises:
            LicenseStopError: Nobody did; the message names what.
        """
        if self.comparison is not None:
            require_same(recipe, self.comparison)

    def verdicts(self) -> tuple[Verdict, ...]:
        """A verdict for each repository, so that a review shows what was compared and what could not be."""
        return tuple(_verdict(standing) for standing in (self.comparison.standings if self.comparison else ()))


def require_same(recipe: Recipe, comparison: Comparison) -> None:
    """Stops unless everything that can be read upstream is as it was reviewed.

    Raises:
        LicenseStopError: It is not; the message names each change.
    """
    if not comparison.changes:
        return
    is_new = not comparison.has_changed
    what = "nobody has reviewed" if is_new else "the licences upstream are not those that were reviewed"
    sentences = "; ".join(change.sentence() for change in comparison.changes)
    key = ("license", "id") if any(change.what == "license" for change in comparison.changes) else ("license",)
    error = LicenseStopError(
        f"{what}: {sentences}.",
        where=recipe.locate(*key),
        remedy=f"Read them: bot licenses {recipe.name}. If the release may go on under them, bring the recipe's "
        f"license and texts up to date and run bot licenses {recipe.name} --accept.",
    )
    error.comparison = comparison
    raise error


def _verdict(standing: Standing) -> Verdict:
    terms = standing.terms
    where = f"{terms.repo} at {terms.commit[:12]}" if terms.commit else terms.repo
    reasons = {
        "reviewed": f"{where} declares {in_words(terms)}, as it was reviewed",
        "not checked": f"the licence of {where} was not checked: {terms.unchecked}",
        "not reviewed": f"{where} declares {in_words(terms)}, which nobody has reviewed",
        "changed": f"{where} declares {in_words(terms)}, which is not what was reviewed",
    }
    return Verdict(
        artifact="",
        rule=f"licence of {terms.repo}",
        comparison="holds",
        status="passed" if standing.status == "reviewed" else "not measured",
        required=False,
        reason=reasons[standing.status],
    )


def license_upstream(context: Context, recipe: Recipe, source: Source) -> Licensing:
    """Reads what the source and its base models declare, and compares it with what was reviewed.

    Raises:
        RecipeError: The recipe's review cannot be read.
        UpstreamError: The Hub did not answer, or texts are too many or too large to be such.
    """
    if not source.repo:
        return Licensing(source, None, {}, ())
    terms, bases = terms_of(context, source.repo, source.commit)
    own = {file_sha256(path) for path in recipe.license_files().values()}
    plan = recipe.plan.license
    comparison = compare(terms, bases, read_reviewed(recipe.review), plan.upstream or plan.id, own)
    _warn(context, recipe, comparison)
    carried = list(_carried(context, (terms, *bases), own))
    return Licensing(
        source=source.with_terms(terms, bases),
        comparison=comparison,
        texts={record.file: path for record, path in carried},
        records=tuple(record for record, _ in carried),
    )


def _warn(context: Context, recipe: Recipe, comparison: Comparison) -> None:
    for standing in comparison.standings:
        repo = standing.terms.repo
        if standing.status == "not checked":
            context.reporter.warn(f"the licence of the base model {repo} was not checked: {standing.terms.unchecked}")
        if standing.status == "not reviewed":
            context.reporter.warn(f"nobody has reviewed the licence of {repo}; see: bot licenses {recipe.name}")


def terms_of(context: Context, repo: str, commit: str) -> tuple[Terms, tuple[Terms, ...]]:
    """What a repository declares at a commit, and what its base models declare at the head of their main branch.

    Raises:
        UpstreamError: The Hub did not answer; the repository itself is out of reach; or its texts are none.
    """
    terms, declared = _terms(context, repo, commit)
    bases = tuple(base_terms(context, name) for name in dict.fromkeys(declared.base_models) if name != repo)
    return terms, bases


def base_terms(context: Context, name: str) -> Terms:
    """What a base model declares; one that cannot be read says why.

    Raises:
        UpstreamError: The Hub did not answer, or its texts are none.
    """
    from bot.hub.licenses import OutOfReach

    if not _REPOSITORY.fullmatch(name) or ".." in name:
        return Terms(repo=name, unchecked="this is not the name of a repository")
    try:
        return _terms(context, name, MAIN)[0]
    except OutOfReach as error:
        return Terms(repo=name, unchecked=error.what.rstrip("."))


def terms_at(context: Context, repo: str, commit: str) -> Terms:
    """What a repository declares at a commit.

    Raises:
        UpstreamError: It cannot be read.
    """
    return _terms(context, repo, commit)[0]


def declared_license(context: Context, repo: str, commit: str, repo_type: RepoType) -> str | None:
    """The licence id that a repository's card declares; None if it declares none that can be read."""
    from bot.hub.licenses import fetch_card

    card = fetch_card(context.hub, repo, commit, repo_type=repo_type, into=context.work.upstream)
    return _declared(context, context.work.upstream / repo / commit, card).license


def _terms(context: Context, repo: str, revision: str) -> tuple[Terms, Declared]:
    from bot.hub.licenses import fetch_texts, find_papers

    into, progress = context.work.upstream, context.reporter.update
    papers = find_papers(context.hub, repo, revision, into=into)
    declared = _declared(context, into / papers.repo / papers.commit, papers.card)
    texts = fetch_texts(context.hub, papers, declared.license_link, into=into, progress=progress)
    terms = Terms(
        repo=repo,
        commit=papers.commit,
        license=declared.license,
        license_name=declared.license_name,
        license_link=declared.license_link,
        texts=texts,
        problem=declared.problem,
    )
    return terms, declared


def _declared(context: Context, folder: Path, card: FileRecord | None) -> Declared:
    """What a card in a commit's folder declares, read in the worker."""
    if card is None:
        return Declared()
    path = folder / card.path
    key = {"card": card.sha256, "code": code_digest("bot.licenses")}
    _, found = context.work.entry(
        "cards", key, lambda _: context.call("licenses.declared", {"card": str(path)}, reads=[path])
    )
    return Declared.model_validate(found)


def _carried(context: Context, all_terms: tuple[Terms, ...], own: set[str]) -> Iterator[tuple[LicenseRecord, Path]]:
    """Texts from upstream that do not travel with the release yet, each content once."""
    seen = set(own)
    for terms in all_terms:
        for text in terms.texts:
            if text.sha256 in seen:
                continue
            seen.add(text.sha256)
            record = LicenseRecord(
                name=f"{terms.repo}: {text.path}",
                file=f"{COPIES}/licenses/{terms.repo}/{text.path}",
                sha256=text.sha256,
                origin=f"{terms.repo} at {terms.commit}, {text.path}",
            )
            yield record, context.work.upstream / terms.repo / terms.commit / text.path


@contextmanager
def saying_stops(context: Context, recipe: Recipe, *, dry_run: bool) -> Iterator[None]:
    """Says on the target why nothing is published, in the discussion of its withheld releases, if licences stop it.

    It is opened once for the same change, gets another comment for another one, and is closed when a release passes.

    Args:
        context: The surroundings.
        recipe: What is to be published.
        dry_run: Write nothing to the Hub.
    """
    try:
        yield
    except LicenseStopError as error:
        if not dry_run and context.hub.account:
            _say_stopped(context, recipe, error)
        raise


def _say_stopped(context: Context, recipe: Recipe, error: LicenseStopError) -> None:
    """Says it; that it could not be said does not hide why the run stopped."""
    from bot.hub.withheld import report_stopped

    try:
        notice = report_stopped(
            context.hub,
            recipe.plan.target.repo,
            recipe=recipe.name,
            identity=error.comparison.identity,
            title=f"Withheld: a licence of {recipe.plan.upstream.repo} changed",
            text=_discussion(recipe, error.comparison),
            stopped=recipe_id(recipe),
            on_step=context.reporter.note,
        )
    except BotError as failure:
        context.reporter.warn(f"it could not be said on {recipe.plan.target.repo}: {failure}")
        return
    if notice is not None:
        context.reporter.note(f"{notice.url} says what changed")


def _discussion(recipe: Recipe, comparison: Comparison) -> str:
    """What changed, in Markdown; words from upstream are escaped, so that they can do nothing."""
    from bot.card.markdown import escape_markdown

    lines = [
        f"No release of the recipe {escape_markdown(recipe.name)} is published until somebody has read this: the "
        "licences upstream are not those that its author reviewed.",
        "",
        "| repository | what | reviewed | now |",
        "|---|---|---|---|",
    ]
    for change in comparison.changes:
        cells = (change.repo, change.what, change.old or "–", change.new or "gone")
        lines.append(f"| {' | '.join(escape_markdown(cell) for cell in cells)} |")
    read_at = [
        f"{escape_markdown(each.terms.repo)} was read at {each.terms.commit}"
        for each in comparison.standings
        if each.terms.commit
    ]
    lines += ["", f"Texts are named by their sha256. {'; '.join(read_at)}."]
    if unchecked := [each.terms for each in comparison.standings if each.terms.unchecked]:
        listed = "; ".join(f"{escape_markdown(each.repo)}: {escape_markdown(each.unchecked)}" for each in unchecked)
        lines += ["", f"Not checked: {listed}."]
    lines += [
        "",
        f"If the release may go on under them, bring the recipe's licence and texts up to date, run "
        f"`bot licenses {recipe.name} --accept`, and commit what it writes.",
    ]
    return "\n".join(lines)
