"""The review page: one HTML file that tells a reviewer in one look whether to merge."""

from __future__ import annotations

from markupsafe import Markup, escape

from bot.card.environment import SHARED, environment, render
from bot.card.markdown import plain_text
from bot.card.numbers import Ledger, NumberOnCard
from bot.card.page import card_html, changes, histogram_svg
from bot.records import Release


def render_review(release: Release, card: str, previous: Release | None) -> str:
    """One self-contained HTML page: no script, no request to anywhere.

    Args:
        release: What is to be published.
        card: Its card, as rendered.
        previous: The release that is published now; None for the first.
    """
    ledger = Ledger(escape=_escape, code=lambda text: f"<code>{_escape(text)}</code>", decorate=_with_origin)
    page = environment(release, ledger, {}, html=True)
    text = render(
        page,
        SHARED + "review.html.j2",
        card_html=card_html(card),
        changes=changes(release, previous),
        has_previous=previous is not None,
        histogram=histogram_svg,
    )
    return ledger.finish(text)[0]


def _escape(text: str) -> str:
    return str(escape(plain_text(text)))


def _with_origin(text: str, origin: NumberOnCard) -> str:
    """A value that tells where it comes from when a reader points at it."""
    if not text:
        return text
    return Markup('<span title="{}: {}">{}</span>').format(origin.kind, origin.field, Markup(text))  # noqa: S704
