"""The review page, and the card in it, in a real browser: light, dark and on a phone, by keyboard, and off the net."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, CONTRASTS, Browser
from PIL import Image
from releases import age_and_gender_release, fused_release, withheld_release
from test_review import card_of, changed_before, files_of, published

from bot.card.card import Review, merge_card, render_plots, render_review
from bot.records import Release

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

LOOKS = {"light": (1000, False), "dark": (1000, True), "phone": (390, False)}


def with_everything(release: Release) -> Review:
    """A review that has something in every section: a release before, edits, a conflict, pictures."""
    before = changed_before(release)
    rendered = card_of(before)
    theirs = rendered.replace("| 0.5 years |", "| half a year |").replace("## Speed\n", "## How fast it is\n")
    merged = merge_card(rendered, theirs, card_of(release))
    return Review(
        release,
        merged.text,
        files_of(release),
        render_plots(release),
        published(before, card=theirs, rendered=rendered),
        merged,
    )


def first(release: Release) -> Review:
    return Review(release, card_of(release), files_of(release), render_plots(release))


REVIEWS = {
    "everything": lambda: with_everything(fused_release()),
    "withheld": lambda: with_everything(withheld_release()),
    "first": lambda: first(age_and_gender_release()),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, review in REVIEWS.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(render_review(review()), "utf-8")
    return made


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the screenshots go: BOT_SCREENSHOTS keeps them."""
    kept = os.environ.get("BOT_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("shots")
    folder.mkdir(exist_ok=True, parents=True)
    return folder


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", REVIEWS)
def test_it_fits_is_drawn_and_asks_for_nothing(
    browser: Browser, pages: dict[str, Path], shots: Path, name: str, look: str
) -> None:
    width, dark = LOOKS[look]
    browser.open(pages[name], width=width, dark=dark)
    picture = Image.open(io.BytesIO(browser.screenshot(shots / f"review-{name}-{look}.png"))).convert("L")
    assert picture.width == width and picture.height > 1500
    mean = sum(value * count for value, count in enumerate(picture.histogram())) / (picture.width * picture.height)
    assert mean < 60 if dark else mean > 200
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.complaints() == []
    # Nothing makes the page wider than the window; wide tables scroll by themselves.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    shown = "[...document.images].every(image => image.complete && image.naturalWidth > 100 && image.alt.length > 20)"
    assert browser.evaluate(shown) is True
    assert browser.evaluate("document.images.length") >= 2


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", REVIEWS)
def test_every_text_stands_out_from_its_ground(browser: Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    browser.open(pages[name], dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = browser.evaluate(CONTRASTS)
    assert len(found) > 10
    assert {what: ratio for what, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", [False, True])
def test_pictures_follow_the_colour_scheme(browser: Browser, pages: dict[str, Path], scheme: bool) -> None:
    browser.open(pages["first"], dark=scheme)
    corner = """
    (async () => { const image = document.querySelector('img.plot'); await image.decode();
      const canvas = document.createElement('canvas'); canvas.width = canvas.height = 20;
      const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0);
      return [...pen.getImageData(3, 3, 1, 1).data].slice(0, 3); })()
    """
    assert browser.evaluate(corner) == ([0x14, 0x17, 0x1C] if scheme else [0xFF, 0xFF, 0xFF])


def test_it_can_be_used_without_a_mouse(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["everything"], width=390)
    focused = "document.activeElement.tagName + ' ' + (document.activeElement.getAttribute('href') || '')"
    reached, details = [], 0
    total = browser.evaluate("document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length")
    for _ in range(total + 5):
        browser.press("Tab")
        where = browser.evaluate(focused)
        if where.startswith("BODY"):
            break
        reached.append(where)
        if where.startswith("SUMMARY"):
            outline = browser.evaluate("getComputedStyle(document.activeElement).outlineWidth")
            assert outline == "2px"
            open_before = browser.evaluate("document.activeElement.parentElement.open")
            browser.press("Enter")
            assert browser.evaluate("document.activeElement.parentElement.open") is not open_before
            browser.press("Enter")
            details += 1
    # Details that are closed hide their own stops; all that is visible was reached.
    assert reached[:2] == ["A #changes", "A #conflicts"]
    assert details >= 3
    # A place that scrolls is a stop with a name, or the keyboard could not scroll it.
    unnamed = """
    [...document.querySelectorAll('.scroll')].filter(each => each.tabIndex !== 0 || !each.getAttribute('aria-label'))
      .length
    """
    assert browser.evaluate(unnamed) == 0


def test_its_structure_tells_where_one_is(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["everything"])
    outline = browser.evaluate("[...document.querySelectorAll('h1,h2')].map(each => each.tagName + each.innerText)")
    headings = [text for text in outline if not text.startswith("H1faceage-onnx")]
    assert headings[0].startswith("H1faceage →")
    first_screen = browser.evaluate("document.querySelector('.verdict').getBoundingClientRect().bottom")
    assert first_screen < 300
    assert browser.evaluate("document.querySelectorAll('th:not([scope])').length") == browser.evaluate(
        "document.querySelectorAll('.card th').length"
    )
    assert browser.evaluate("document.documentElement.lang") == "en"
    ids = browser.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))
