"""The table in docs/cards.md: what FaceAge's card says, and from which field, held against the card itself."""

from __future__ import annotations

import re

import pytest
from releases import ROOT, fused_release, template

from bot.card.card import render_card, render_plots
from bot.card.explain import explain

TABLE = (ROOT / "docs" / "cards.md").read_text("utf-8").partition("| what the card says | figure | field |")[2]
ROWS = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \| `([^`|]+)` \|$", TABLE.partition("\n\n")[0], re.MULTILINE)


@pytest.fixture(scope="module")
def said() -> set[tuple[str, str]]:
    release = fused_release()
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2")
    return {(number.text.strip("`"), number.field) for number in card.numbers}


def test_the_table_is_read_whole() -> None:
    assert len(ROWS) == TABLE.partition("\n\n")[0].count("\n|") - 1 >= 60


@pytest.mark.parametrize(("statement", "figure", "field"), ROWS)
def test_the_card_says_it_from_this_field(said: set[tuple[str, str]], statement: str, figure: str, field: str) -> None:
    assert (figure, field) in said, statement


def test_every_number_is_explained_with_method_and_samples() -> None:
    release = fused_release()
    card = render_card(release, template=template(release.recipe), template_name="x/card.md.j2")
    numbers = {"README.md": card.numbers, **{plot.path: plot.numbers for plot in render_plots(release)}}
    found = explain(release, numbers)
    assert len(found) == sum(map(len, numbers.values())) > 200
    for each in found:
        assert each.field and each.method
        if each.kind == "measured":
            assert "measurements[" in each.field
    (mean,) = [each for each in found if each.field == "measurements[fused age.mean_absolute cuda].value"]
    assert mean.samples == 200 and mean.samples_digest == "9a3c" * 16 and mean.place == "README.md"
    assert mean.method == "mean_absolute of the differences from the answer of source:network"


def test_measurements_are_told_apart_by_their_names() -> None:
    from bot.card.views import measurement_path

    release = fused_release()
    assert len({measurement_path(each) for each in release.measurements}) == len(release.measurements)
