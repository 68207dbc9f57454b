"""The licences that a release's record says were read upstream, read again at the same commits."""

from __future__ import annotations

from collections.abc import Iterator

from bot.canonical import file_sha256
from bot.errors import BotError
from bot.licenses.reviewed import Standing, compare, differences, in_words, read_reviewed
from bot.pipeline.again import Known
from bot.pipeline.context import Context
from bot.pipeline.findings import Finding
from bot.pipeline.licensing import terms_at
from bot.records import Release, Terms

KIND = "licence"


def check_licenses(context: Context, release: Release, known: Known | None) -> list[Finding]:
    """Reads the licence of the source and of its base models again.

    Args:
        context: The surroundings.
        release: The record.
        known: Its recipe; a copy of the verifier's own says what was reviewed.

    Returns:
        A finding for each repository, and, with a review at hand, another that holds the record against it.
    """
    source = release.source
    if not source.repo:
        return []
    context.reporter.stage("license", source.repo)
    found = [_read_again(context, terms) for terms in (source.terms, *source.bases)]
    return found + (list(_reviewed(release, known)) if known is not None and known.is_own else [])


def _read_again(context: Context, recorded: Terms) -> Finding:
    said = in_words(recorded)
    if recorded.unchecked:
        return Finding(KIND, recorded.repo, "not checked", said, reason="it could not be read when it was published")
    try:
        now = terms_at(context, recorded.repo, recorded.commit)
    except BotError as error:
        return Finding(KIND, recorded.repo, "not checked", said, reason=f"it cannot be read: {error.what}")
    if changes := list(differences(recorded, now)):
        then = "; ".join(f"{change.what} {change.old or 'nothing'}" for change in changes)
        here = "; ".join(f"{change.what} {change.new or 'nothing'}" for change in changes)
        return Finding(KIND, recorded.repo, "differs", then, here)
    return Finding(KIND, recorded.repo, "ok", said, in_words(now))


def _reviewed(release: Release, known: Known) -> Iterator[Finding]:
    """The record held against what the recipe's author reviewed."""
    recipe, source = known.recipe, release.source
    plan = recipe.plan.license
    own = {file_sha256(path) for path in recipe.license_files().values()}
    compared = compare(source.terms, source.bases, read_reviewed(recipe.review), plan.upstream or plan.id, own)
    for standing in compared.standings:
        yield _as_reviewed(standing)
    for change in compared.gone:
        yield Finding(KIND, f"{change.repo}, as reviewed", "differs", "nothing", change.sentence())


def _as_reviewed(standing: Standing) -> Finding:
    name, said = f"{standing.terms.repo}, as reviewed", in_words(standing.terms)
    if standing.status == "reviewed":
        return Finding(KIND, name, "ok", said, said)
    if standing.status == "not checked":
        return Finding(KIND, name, "not checked", said, reason=standing.terms.unchecked)
    return Finding(KIND, name, "differs", said, "; ".join(change.sentence() for change in standing.changes))
