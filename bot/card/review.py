"""The review of a release: one HTML file that tells in one look whether to merge, and the same in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from bot.card.comparison import compare, worst_samples
from bot.card.conflicts import conflicts_markdown
from bot.card.environment import SHARED, environment, finish, render
from bot.card.layout import tidy, wrap
from bot.card.markdown import plain_text
from bot.card.marked import card_html, data_uri
from bot.card.merge import Merged
from bot.card.numbers import Ledger, NumberOnCard
from bot.card.plots import Plot
from bot.card.published import Published
from bot.card.views import Queries
from bot.records import FileRecord, Release


@dataclass(frozen=True)
class Review:
    """What a review is about.

    Attributes:
        release: What is to be published.
        card: Its README.md, a person's edits of the last one merged in.
        files: Its files, as they are laid out.
        plots: The card's pictures.
        before: What is published now; None if nothing is, or if nobody looked.
        merged: The merge that the card came from; None if nobody had edited the last one.
    """

    release: Release
    card: str
    files: Sequence[FileRecord] = ()
    plots: Sequence[Plot] = ()
    before: Published | None = None
    merged: Merged | None = None

    @property
    def replaces_a_strangers_card(self) -> bool:
        """There is a README.md that no release of the bot brought."""
        return self.before is not None and self.before.release is None and bool(self.before.card)


def render_review(review: Review) -> str:
    """One self-contained HTML page: no script, no request to anywhere. The same review gives the same bytes."""
    ledger = Ledger(escape=_escape, code=lambda text: f"<code>{_escape(text)}</code>", decorate=_with_origin)
    page = environment(review.release, ledger, {}, html=True)
    queries = Queries(review.release, ledger)
    pictures = {plot.path: data_uri(plot.svg) for plot in review.plots}
    text = render(
        page,
        SHARED + "review.html.j2",
        card_html=card_html(review.card, review.before.card if review.before else "", pictures),
        changes=compare(queries, review.before, review.files),
        worst_samples=lambda artifacts: worst_samples(queries, artifacts),
        picture=_Pictures(pictures),
        conflicts=_conflicts(review.merged),
        kept=review.merged.kept if review.merged else 0,
        replaces=review.replaces_a_strangers_card,
    )
    return ledger.finish(text)[0]


def render_review_markdown(review: Review, *, name: str = "review.md.j2") -> str:
    """The review in Markdown: a comment on the pull request, or the end of a job's summary."""
    ledger = Ledger(links=not review.release.random_weights)
    queries = Queries(review.release, ledger)
    text = render(
        environment(review.release, ledger, {}),
        SHARED + name,
        changes=compare(queries, review.before, review.files),
        worst_samples=lambda artifacts: worst_samples(queries, artifacts),
        replaces=review.replaces_a_strangers_card,
    )
    body = wrap(finish(tidy(text), ledger, name)[0])
    edits = conflicts_markdown(review.merged)
    return f"{body}\n{edits}" if edits else body


class _Pictures:
    """The card's pictures for the page: `picture(path)` is an address that holds it."""

    def __init__(self, pictures: Mapping[str, str]) -> None:
        self.pictures = pictures

    def __call__(self, path: object) -> Markup | None:
        address = self.pictures.get(getattr(path, "raw", ""))
        return None if address is None else Markup(address)  # noqa: S704 - base64


def _conflicts(merged: Merged | None) -> list[tuple[Markup, Markup]]:
    """Each conflict: a person's lines, and the new ones."""
    if merged is None:
        return []
    return [(_lines(conflict.theirs), _lines(conflict.new)) for conflict in merged.conflicts]


def _lines(text: str) -> Markup:
    from bot.card.markdown import visible_lines

    return escape(visible_lines(text))


def _escape(text: str) -> str:
    return str(escape(plain_text(text)))


def _with_origin(text: str, origin: NumberOnCard) -> str:
    """A value that tells where it comes from when a reader points at it."""
    if not text:
        return text
    return Markup('<span title="{}: {}">{}</span>').format(origin.kind, origin.field, Markup(text))  # noqa: S704
