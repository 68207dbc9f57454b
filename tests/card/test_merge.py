"""A person's edits survive: the laws of a three-way merge, and what they mean for a card."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from releases import seed_release, template

from bot.card.card import render_card
from bot.card.merge import Merged, merge, merge_card
from bot.records import Release

LINES = st.lists(st.sampled_from(["", "a", "b", "a b c d", "a b x d", "| c |", "---", "é\u2028f", "c\r"]), max_size=8)
TEXT = LINES.map("\n".join) | LINES.map(lambda lines: "\n".join(lines) + "\n")


@given(TEXT, TEXT, st.booleans())
def test_what_one_side_left_alone_becomes_the_other(base: str, side: str, by_words: bool) -> None:
    assert merge(base, base, side, by_words=by_words).text == side
    assert merge(base, side, base, by_words=by_words).text == side
    assert merge(base, base, side, by_words=by_words).conflicts == ()
    assert merge(base, side, base, by_words=by_words).conflicts == ()


@given(TEXT, TEXT, st.booleans())
def test_the_same_edit_on_both_sides_is_made_once(base: str, side: str, by_words: bool) -> None:
    assert merge(base, side, side, by_words=by_words) == Merged(side, (), 0)


@given(TEXT, TEXT, TEXT)
def test_no_line_is_lost_and_none_is_made_up(base: str, theirs: str, new: str) -> None:
    merged = merge(base, theirs, new, by_words=False)
    lines = merged.text.split("\n")
    shown = [line for conflict in merged.conflicts for line in conflict.new.split("\n")]
    for line in theirs.split("\n"):
        assert line in lines or line in base.split("\n"), "theirs"
    for line in new.split("\n"):
        assert line in lines or line in base.split("\n") or line in shown, "new"
    assert set(lines) <= {*theirs.split("\n"), *new.split("\n")}


@given(TEXT, TEXT, TEXT)
def test_no_word_is_lost_and_none_is_made_up(base: str, theirs: str, new: str) -> None:
    merged = merge(base, theirs, new)
    words = merged.text.split()
    shown = [word for conflict in merged.conflicts for word in conflict.new.split()]
    for word in theirs.split():
        assert word in words or word in base.split()
    for word in new.split():
        assert word in words or word in base.split() or word in shown
    assert set(words) <= {*theirs.split(), *new.split()}


@given(TEXT, TEXT, TEXT)
def test_merging_again_changes_nothing(base: str, theirs: str, new: str) -> None:
    """The next render of the same release, over what was published with the merge."""
    merged = merge(base, theirs, new)
    again = merge(new, merged.text, new)
    assert again.text == merged.text and again.conflicts == ()


@given(TEXT, TEXT, TEXT)
def test_the_sides_may_change_places_where_nothing_conflicts(base: str, theirs: str, new: str) -> None:
    one, other = merge(base, theirs, new, by_words=False), merge(base, new, theirs, by_words=False)
    assert bool(one.conflicts) == bool(other.conflicts)
    if not one.conflicts:
        assert one.text == other.text


# -- cards -------------------------------------------------------------------------------------------------------------


def card_of(release: Release) -> str:
    return render_card(release, template=template(release.recipe), template_name="x/card.md.j2").text


def next_release() -> Release:
    """The seed's release with other bytes, another figure and another identity."""
    release = seed_release()
    artifact = release.artifacts[0].model_copy(update={"bytes": 611_872_999, "sha256": "ab" * 32})
    measurements = tuple(
        each.model_copy(update={"value": 0.0151}) if each.key == "age.mean_absolute" else each
        for each in release.measurements
    )
    update = {"identity": "9b8a" * 16, "artifacts": (artifact,), "measurements": measurements}
    return release.model_copy(update=update)


BASE = card_of(seed_release())
NEW = card_of(next_release())


def test_a_section_that_a_person_added_stays_and_the_figures_are_new() -> None:
    theirs = BASE.replace("## Pinning\n", "## Who made this\n\nAsk me on the forum.\n\n## Pinning\n")
    merged = merge_card(BASE, theirs, NEW)
    assert merged.conflicts == () and merged.kept == 1
    assert "## Who made this\n\nAsk me on the forum.\n" in merged.text
    assert "| mean absolute difference, age | 0.015 years |" in merged.text and "611,872,999" in merged.text
    assert merged.text.replace("## Who made this\n\nAsk me on the forum.\n\n", "") == NEW


def test_edits_survive_any_number_of_renders() -> None:
    published, rendered = BASE.replace("## Speed\n", "## How fast it is\n"), BASE
    for card in (NEW, BASE, NEW, NEW, BASE):
        merged = merge_card(rendered, published, card)
        assert merged.conflicts == ()
        assert merged.text == card.replace("## Speed\n", "## How fast it is\n")
        published, rendered = merged.text, card


def test_a_word_that_a_person_changed_beside_a_new_figure() -> None:
    row = "| mean absolute difference, age | 0.012 years |"
    assert row in BASE
    theirs = BASE.replace(row, "| average absolute difference, age | 0.012 years |")
    merged = merge_card(BASE, theirs, NEW)
    assert merged.conflicts == ()
    assert "| average absolute difference, age | 0.015 years |" in merged.text


def test_a_figure_that_a_person_changed_is_a_conflict_and_stays() -> None:
    theirs = BASE.replace("| mean absolute difference, age | 0.012 years |", "| mean absolute difference, age | 0.01 |")
    merged = merge_card(BASE, theirs, NEW)
    (conflict,) = merged.conflicts
    assert "| 0.012 years |" in conflict.base and "| 0.01 |" in conflict.theirs and "| 0.015 years |" in conflict.new
    assert "| mean absolute difference, age | 0.01 |" in merged.text and "0.015 years" not in merged.text
    assert "611,872,999" in merged.text  # The rest is new all the same.


def test_which_release_it_is_is_always_said_as_it_is() -> None:
    theirs = BASE.replace("tags:\n", "tags:\n- mine\n").replace(seed_release().identity, "0" * 64, 1)
    theirs = theirs.replace("source_commit:", "thumbnail: me.png\nsource_commit:")
    merged = merge_card(BASE, theirs, NEW)
    assert merged.conflicts == ()
    assert f'release_id: "{next_release().identity}"' in merged.text
    assert "- mine\n" in merged.text and "thumbnail: me.png\n" in merged.text
    assert "0" * 64 not in merged.text


def test_a_key_that_both_added_is_not_there_twice() -> None:
    theirs = BASE.replace("library_name: onnx\n", "library_name: onnx\nlanguage: de\n")
    new = NEW.replace("pipeline_tag:", "language: en\npipeline_tag:")
    merged = merge_card(BASE, theirs, new)
    assert merged.text.count("language:") == 1 and "language: de" in merged.text
    assert "language: en" in merged.conflicts[0].new
    assert "| mean absolute difference, age | 0.015 years |" in merged.text


def test_an_editor_that_writes_other_line_ends_changes_nothing() -> None:
    assert merge_card(BASE, BASE.replace("\n", "\r\n"), NEW) == Merged(NEW)


@pytest.mark.parametrize("theirs", ["", "no front matter at all\n", "---\nopen: ended\n" * 3])
def test_odd_cards_do_not_break_it(theirs: str) -> None:
    merged = merge_card(BASE, theirs, NEW)
    assert merged.text == theirs or merged.conflicts


def test_a_huge_card_is_kept_in_no_time() -> None:
    theirs = "x y\n" * 2_000_000
    started = time.monotonic()
    merged = merge_card(BASE, theirs, NEW)
    assert merged.text == theirs and merged.conflicts and time.monotonic() - started < 5
