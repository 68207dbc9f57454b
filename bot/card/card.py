"""Renders a release: the card, the text of a pull request, the summary of a run."""

from __future__ import annotations

from dataclasses import dataclass

from bot.canonical import digest, text_sha256
from bot.card.conflicts import conflicts_markdown
from bot.card.environment import SHARED, environment, finish, render, templates_folder
from bot.card.front_matter import front_matter
from bot.card.layout import tidy, wrap
from bot.card.markdown import plain_text
from bot.card.merge import Merged, merge_card
from bot.card.numbers import Ledger, NumberOnCard
from bot.card.plots import Plot, render_plots
from bot.card.published import Published
from bot.card.review import Review, render_review, render_review_markdown
from bot.records import Release

__all__ = [
    "Merged",
    "Plot",
    "Published",
    "RenderedCard",
    "Review",
    "merge_card",
    "render_card",
    "render_comment",
    "render_plots",
    "render_pull_request",
    "render_review",
    "render_summary",
    "templates_digest",
]


_OF_NO_RELEASE = frozenset(["status.html.j2"])
"""Templates of pages about something else than one release."""


@dataclass(frozen=True)
class RenderedCard:
    """A card.

    Attributes:
        text: The README.md, front matter included.
        numbers: Every figure in it, in order, with the field that it comes from.
    """

    text: str
    numbers: tuple[NumberOnCard, ...]


def render_card(release: Release, *, template: str, template_name: str) -> RenderedCard:
    """Renders a release's card. The same release and template give the same bytes.

    Args:
        release: All that the card may say.
        template: The recipe's card.md.j2, which extends `shared/card.md.j2`.
        template_name: What to call it in errors; ends in .j2.

    Raises:
        RecipeError: The template is wrong, names something that there is not, or has a number typed by hand.
    """
    body, numbers = _render(release, {template_name: template}, template_name)
    head, head_numbers = front_matter(release)
    return RenderedCard(f"{head}\n{body}", (*head_numbers, *numbers))


def render_pull_request(release: Release, merged: Merged | None = None) -> tuple[str, str]:
    """The title and the description, in Markdown, of the pull request or commit that brings a release.

    Args:
        release: What it brings.
        merged: The card, merged with a person's edits of the last one; None if there were none.
    """
    files = ", ".join(artifact.file for artifact in release.published) or "no file"
    origin = release.source.repo or release.source.url
    title = plain_text(f"{files} from {origin} at {release.source.commit[:12]}")
    if release.random_weights:
        title = f"[random weights] {title}"
    body = _render(release, {}, SHARED + "pull-request.md.j2")[0]
    edits = conflicts_markdown(merged)
    return title[:200], f"{body}\n{edits}" if edits else body


def render_summary(review: Review) -> str:
    """What a run came to, in Markdown, for a job's summary: the pull request's tables, and the review."""
    return render_review_markdown(review, name="summary.md.j2")


def render_comment(review: Review) -> str:
    """The review as a comment on the pull request."""
    return render_review_markdown(review)


def _render(release: Release, own: dict[str, str], name: str) -> tuple[str, tuple[NumberOnCard, ...]]:
    # A random-weight model lies on an embedded Hub, under names that stand for something else on the real one.
    ledger = Ledger(links=not release.random_weights)
    text = render(environment(release, ledger, own), name)
    body, numbers = finish(tidy(text), ledger, name)
    return wrap(body), numbers


def templates_digest() -> str:
    """A digest of the shared templates, which are part of what makes a release this one."""
    paths = sorted(path for path in templates_folder().glob("*.j2") if path.name not in _OF_NO_RELEASE)
    paths += sorted(templates_folder().glob("snippets/*.py"))
    return digest({path.name: text_sha256(path.read_text("utf-8")) for path in paths})
