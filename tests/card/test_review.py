"""The review page: one file, inert, with the verdict first."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from releases import template

from bot.card.card import render_card, render_review
from bot.card.markdown import plain_text
from bot.records import Release


def page_of(release: Release, previous: Release | None = None) -> str:
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text
    return render_review(release, card, previous)


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
        if tag not in {"meta", "rect", "br", "hr", "link", "img", "input"}:
            self.open.append(tag)
        self.acts += [(name, value or "") for name, value in attrs if name in {"src", "href"} or name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", ["seed", "two_networks", "withheld"])
def test_it_is_one_well_formed_file_that_fetches_nothing(name: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(name))
    outline = Outline(page)
    assert outline.open == []
    assert not {"script", "img", "iframe", "link", "object", "embed", "form"} & set(outline.tags)
    assert all(kind == "href" and value.startswith(("#", "https://")) for kind, value in outline.acts)
    assert "default-src 'none'" in page
    assert "url(" not in page and "@import" not in page
    assert "\ue000" not in page and "\ue001" not in page


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
    text = Outline(page_of(seed)).text
    for measurement in seed.measurements:
        assert measurement.key in text
        assert measurement.method in text
    assert "394.4" in text  # a raw run: 402.5 * 0.98, to four digits


def test_what_changed_since_the_release_before(seed: Release) -> None:
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
    before = seed.model_copy(
        update={"measurements": measurements, "artifacts": (artifact,), "licenses": licenses, "source": source}
    )
    text = re.sub(r"\s+", " ", Outline(page_of(seed, before)).text)
    section = text[text.index("Since the release before") : text.index("Checks status")]
    for piece in ("source commit", "licences", "fp16: file", "IR 9", "IR 10", "onnx 1.0", "0.5 year", "0.012 year"):
        assert piece in section
    assert "age.max_absolute" not in section


def test_nothing_changed(seed: Release) -> None:
    page = page_of(seed, seed)
    assert "Since the release before" not in page
    assert "Nothing that a reader could notice changed" in page
    assert "This is the first release." in page_of(seed)


def test_random_weights_are_shouted(seed: Release) -> None:
    text = Outline(page_of(seed.model_copy(update={"random_weights": True}))).text
    assert text.index("Random weights: for testing only, do not use.") < text.index("Checks")


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
    page = render_review(release, f"---\ntitle: {text}\n---\n\n{text}\n\n[x]({text})\n", seed)
    outline = Outline(page)
    assert not {"script", "img"} & set(outline.tags)
    assert not [name for name, _ in outline.acts if name != "href"]
    assert "\u202e" not in page
