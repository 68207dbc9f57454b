"""The review page: one file, inert, with the verdict first; and the same in Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from releases import template

from bot.card.card import Published, Review, merge_card, render_card, render_comment, render_plots, render_review
from bot.card.markdown import plain_text
from bot.card.marked import card_html
from bot.card.merge import Conflict, Merged
from bot.records import FileRecord, Release


def card_of(release: Release) -> str:
    return render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text


def files_of(release: Release) -> tuple[FileRecord, ...]:
    """What a release lays out, in short."""
    own = [FileRecord(path=each.file, bytes=each.bytes, sha256=each.sha256) for each in release.published]
    return (*own, FileRecord(path="README.md", bytes=7000, sha256=release.identity))


def published(release: Release, **more: Any) -> Published:
    card = card_of(release)
    return Published(release, **{"card": card, "rendered": card, "files": files_of(release), **more})


def review_of(release: Release, before: Published | None = None, **more: Any) -> Review:
    return Review(release, card_of(release), files_of(release), render_plots(release), before, **more)


def page_of(release: Release, previous: Release | None = None) -> str:
    return render_review(review_of(release, published(previous) if previous else None))


class Outline(HTMLParser):
    """Tags that were opened, attributes that could fetch or run, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.acts: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text += " " if tag == "br" else ""
        if tag not in {"meta", "br", "hr", "link", "img", "input"}:
            self.open.append(tag)
        self.acts += [(name, value or "") for name, value in attrs if name in {"src", "href"} or name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"br", "hr", "img"}
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += " " if tag in {"td", "th", "p", "dt", "dd", "li", "h2", "h3", "summary", "style"} else ""

    def handle_data(self, data: str) -> None:
        self.text += data


def flat(page: str) -> str:
    return re.sub(r"\s+", " ", Outline(page).text)


@pytest.mark.parametrize("name", ["seed", "fused", "two_networks", "withheld"])
def test_it_is_one_well_formed_file_that_fetches_nothing(name: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(name))
    outline = Outline(page)
    assert outline.open == []
    assert not {"script", "iframe", "link", "object", "embed", "form"} & set(outline.tags)
    for kind, value in outline.acts:
        if kind == "src":
            assert value.startswith("data:image/svg+xml;base64,")
        else:
            assert kind == "href" and value.startswith(("#", "https://"))
    assert "default-src 'none'" in page
    assert "url(" not in page and "@import" not in page
    assert "\ue000" not in page and "\ue001" not in page


def test_no_value_of_the_record_stands_in_an_attribute_but_in_titles(fused: Release) -> None:
    """A value is wrapped in an element of its own, which would end the attribute."""
    page = page_of(fused)
    for name, value in re.findall(r'\s([\w-]+)="([^"]*)"', page):
        assert "<span" not in value, name


def test_the_verdict_comes_first(seed: Release, withheld: Release) -> None:
    good, bad = (Outline(page_of(release)).text for release in (seed, withheld))
    assert "✓ Every check that it must pass was passed." in good[:6000]
    assert "✗ Part of it is withheld: int8" in bad
    assert bad.index("✗ failed") < bad.index("✓ passed")
    assert "the limit is ≤ 0.1 year" in bad


def test_figures_say_where_they_come_from(seed: Release) -> None:
    page = page_of(seed)
    assert '<span title="measured: measurements[fp16 age.mean_absolute cpu].value">0.012</span>' in page
    assert '<span title="recorded: artifacts[fp16].bytes">611,872,451</span>' in page


def test_every_measurement_and_its_runs_are_there(seed: Release) -> None:
    page = page_of(seed)
    text = Outline(page).text
    for measurement in seed.measurements:
        assert measurement.key in text
        assert measurement.method in text
    assert "394.4" in text  # a raw run: 402.5 * 0.98, to four digits
    speed = page[page.index('id="speed"') : page.index('id="card"')]
    assert "<details><summary>Raw runs" in speed and "394.4" in speed


def test_the_worst_samples_are_differences_by_digest(seed: Release) -> None:
    text = flat(page_of(seed))
    section = text[text.index("Worst samples") : text.index("Speed")]
    assert "largest absolute difference, age CPU provider 0.074 years " + "1f" * 32 in section
    assert "| fp16: largest absolute difference, age | CPU provider | 0.074 years | `1f1f1f1f1f1f` |" in render_comment(
        review_of(seed)
    )


def changed_before(seed: Release) -> Release:
    """The release before the seed's: another figure, other bytes, another licence text, another signature."""
    measurements = tuple(
        each.model_copy(update={"value": 0.5}) if each.key == "age.mean_absolute" else each
        for each in seed.measurements
    )
    artifact = seed.artifacts[0].model_copy(
        update={
            "bytes": 5,
            "signature": seed.artifacts[0].signature.model_copy(update={"ir_version": 9}),
            "built_with": {"onnx": "1.0"},
        }
    )
    licenses = (seed.licenses[0].model_copy(update={"sha256": "00" * 32}), *seed.licenses[1:])
    source = seed.source.model_copy(update={"commit": "f" * 40})
    update = {"measurements": measurements, "artifacts": (artifact,), "licenses": licenses, "source": source}
    return seed.model_copy(update={**update, "identity": "1a2b" * 16, "withheld": ()})


def test_what_changed_since_the_release_before(seed: Release) -> None:
    before = changed_before(seed)
    text = flat(page_of(seed, before))
    section = text[text.index("Since the release before") : text.index("Checks status")]
    assert "fp16: mean absolute difference, age, CPU provider 0.5 years 0.012 years −0.49 years at most" in section
    assert "at most 0.02 years ✓ passed" in section
    assert "fp16: IR version 9 10" in section
    assert "source commit ffffffffffff" in section
    assert "fp16: tools onnx 1.0 onnx 1.22.0" in section
    assert "apache-2.0 LICENSE, 000000000000 LICENSE, cfcfcfcfcfcf" in section
    assert "largest absolute" not in section and "opset" not in section

    comment = render_comment(review_of(seed, published(before)))
    assert "### Since release `1a2b1a2b1a2b`" in comment
    assert (
        "| fp16: mean absolute difference, age, CPU provider | 0.5 years | 0.012 years | −0.49 years | "
        "at most 0.02 years: passed |" in comment
    )
    assert "| fp16: IR version | 9 | 10 |" in comment


def test_files_say_what_becomes_of_them(fused: Release, seed: Release) -> None:
    gone = FileRecord(path="old.onnx", bytes=3, sha256="dd" * 32)
    same = FileRecord(path="LICENSE", bytes=11357, sha256="cf" * 32)
    before = published(seed, files=(*files_of(seed), gone, same))
    review = Review(fused, card_of(fused), (*files_of(fused), same), (), before)
    text = flat(render_review(review))
    assert "faceage-dino-fp16.onnx frozen, untouched 611,872,451 " + seed.artifacts[0].sha256 in text
    assert "faceage-dino-vitl16-fused-fp16.onnx added 611,187,743 " + fused.artifacts[1].sha256 in text
    assert "README.md changed 7,000 was 7,000 " + fused.identity + " was " + seed.identity in re.sub(" +", " ", text)
    assert "old.onnx stays, no longer part of the release 3" in text
    assert "Unchanged: LICENSE." in text
    comment = render_comment(review)
    assert "| `faceage-dino-fp16.onnx` | 611,872,451 | `b2e804783e19` | frozen, untouched |" in comment
    assert "Unchanged: `LICENSE`." in comment


def test_nothing_changed(seed: Release) -> None:
    page = page_of(seed, seed)
    assert "Since the release before" not in page
    assert "Nothing that a reader could notice changed" in page
    assert "<ins>" not in page[page.index('<div class="card">') :]
    assert "This is the first release." in flat(page_of(seed))
    assert "This is the first release here" in render_comment(review_of(seed))


def test_a_card_that_the_bot_did_not_write_is_pointed_out(seed: Release) -> None:
    review = review_of(seed, Published(None, card="# Mine\n"))
    assert "a README.md is there that the bot did not write" in flat(render_review(review))
    assert "There is a README.md that the bot did not write" in render_comment(review)


def test_conflicts_with_a_persons_edits_are_shown(seed: Release) -> None:
    rendered = card_of(changed_before(seed))
    theirs = rendered.replace("| 0.5 years |", "| half a year |")
    merged = merge_card(rendered, theirs, card_of(seed))
    before = published(changed_before(seed), card=theirs, rendered=rendered)
    review = Review(seed, merged.text, files_of(seed), (), before, merged)
    text = flat(render_review(review))
    assert "A person edited the card where this release changes it" in text[: text.index("Since")]
    assert "| half a year |" in text and "Edits of the card that this release would change too" in text
    comment = render_comment(review)
    assert "```diff\n- | mean absolute difference, age | half a year |" in comment
    assert "\n+ | mean absolute difference, age | 0.012 years |" in comment


def test_a_comment_cannot_be_left_by_what_it_quotes(seed: Release) -> None:
    evil = "```\n</details> @octocat ````\n# heading"
    comment = render_comment(review_of(seed, merged=Merged("x", (Conflict("", evil, evil),))))
    block = comment[comment.index("`````diff") :]
    assert block.rstrip().endswith("\n`````") and block.count("`````") == 2


def test_random_weights_are_shouted(seed: Release) -> None:
    text = Outline(page_of(seed.model_copy(update={"random_weights": True}))).text
    assert text.index("Random weights: for testing only, do not use.") < text.index("Checks")


# -- the card with its changes marked ----------------------------------------------------------------------------------


def test_words_that_came_and_went_are_marked() -> None:
    html = card_html("# A\n\nIt has **three** files.\n\nNew.\n", "# A\n\nIt has **two** files.\n")
    assert "<p>It has <strong><del>two</del> <ins>three</ins></strong> files.</p>" in html
    assert '<div class="new" role="group" aria-label="added"><p>New.</p></div>' in html
    assert "<h1>A</h1>" in html and html.count("<ins>") == 1


def test_changes_in_a_table_stay_in_their_cells() -> None:
    old = "| a | b |\n|---|---|\n| one | two |\n| gone | with it |\n"
    new = "| a | b |\n|---|---|\n| one | three |\n"
    html = str(card_html(new, old))
    Outline(html)
    assert "<td><del>two</del> <ins>three</ins></td>" in html
    assert "<tr>\n<td><del>gone</del></td>\n<td><del>with it</del></td>\n</tr>" in html
    assert not re.search(r"</?t(?:r|body|able)>\s*<(?:del|ins)>", html)
    assert "<tr>\n<td><ins>gone</ins></td>\n<td><ins>with it</ins></td>\n</tr>" in str(card_html(old, new))


@pytest.mark.parametrize("evil", ["<b>x</b>", "[x](javascript:alert(1))", "![x](https://evil.example/x.png)", "`<i>`"])
def test_hostile_cards_are_inert_on_both_sides(evil: str) -> None:
    for html in (card_html(evil, "old"), card_html("new", evil), card_html(evil, evil + " more")):
        outline = Outline(str(html))
        assert not {"b", "i", "img", "script"} & set(outline.tags)
        assert outline.acts == []


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 }}", "\u202ex"])
def test_hostile_text_is_inert(seed: Release, evil: str) -> None:
    release = seed.model_copy(
        update={
            "recipe_text": evil,
            "source": seed.source.model_copy(update={"repo": f"a/{evil}", "license": evil}),
            "licenses": tuple(each.model_copy(update={"name": evil, "notice": evil}) for each in seed.licenses),
            "verdicts": tuple(each.model_copy(update={"reason": evil}) for each in seed.verdicts),
            "measurements": tuple(
                each.model_copy(update={"method": evil, "device": evil, "unit": evil}) for each in seed.measurements
            ),
            "artifacts": tuple(
                each.model_copy(
                    update={
                        "file": evil,
                        "built_with": {evil: evil},
                        "steps": (each.steps[0].model_copy(update={"name": evil, "report": {evil: [evil]}}),),
                    }
                )
                for each in seed.artifacts
            ),
        }
    )
    text = plain_text(evil)  # As a card holds it at worst.
    card = f"---\ntitle: {text}\n---\n\n{text}\n\n[x]({text})\n"
    files = (FileRecord(path=evil, bytes=1, sha256="11" * 32),)
    before = Published(
        seed, card=f"{evil}\n\n{card}", rendered=card, files=(FileRecord(path=evil + evil, bytes=1, sha256="22" * 32),)
    )
    merged = Merged(card, (Conflict(evil, evil, evil),), 1)
    page = render_review(Review(release, card, files, render_plots(release), before, merged))
    outline = Outline(page)
    assert "script" not in outline.tags
    assert {name for name, _ in outline.acts} <= {"href", "src"}
    assert all(value.startswith("data:image/svg+xml;base64,") for name, value in outline.acts if name == "src")
    assert "\u202e" not in page
