"""Numbers know where they come from, through arithmetic too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.card.filters import FILTERS
from bot.card.lint import loose_digits
from bot.card.numbers import Ledger, Number, NumberOnCard, Text


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_a_printed_number_is_listed_with_its_field(ledger: Ledger) -> None:
    text = f"has {Number(7, 'census.nodes', 'recorded', ledger).__html__()} nodes"
    assert not list(loose_digits(text))
    assert ledger.finish(text) == ("has 7 nodes", (NumberOnCard("7", "census.nodes", "recorded"),))


def test_arithmetic_keeps_the_formula_and_the_stronger_kind(ledger: Ledger) -> None:
    share = Number(1, "a.bytes", "recorded", ledger) / Number(4, "b.value", "measured", ledger)
    assert (share.value, share.field, share.kind) == (0.25, "a.bytes / b.value", "measured")
    assert str(FILTERS["percent"](share)).endswith("25%\ue001")


def test_arithmetic_with_a_typed_number_is_refused(ledger: Ledger) -> None:
    with pytest.raises(TypeError):
        Number(1, "a", "recorded", ledger) * 2  # type: ignore[operator]


@pytest.mark.parametrize(
    ("filter_name", "value", "expected"),
    [
        ("thousands", 611872451, "611,872,451"),
        ("significant", 0.01234, "0.012"),
        ("significant", 1234567.0, "1.2e6"),
        ("significant", 0.0000123, "1.2e-5"),
        ("significant", 0.0, "0"),
        ("significant", 2120.0, "2,100"),
        ("scientific", 156800, "1.57e5"),
        ("percent", 0.995, "99.5%"),
        ("percent", 0.1, "10%"),
        ("millions", 304_036_406, "304M"),
        ("millions", 87_200, "87.2k"),
        ("megabytes", 611872451, "612 MB"),
        ("fraction", 1 / 255, "1/255"),
        ("fraction", 0.3, "0.3"),
        ("fraction", 1.0, "1.0"),
        ("words", 2, "two"),
        ("words", 40, "40"),
        ("index_range", 100, "0..99"),
    ],
)
def test_how_numbers_are_written(ledger: Ledger, filter_name: str, value: float, expected: str) -> None:
    text, numbers = ledger.finish(FILTERS[filter_name](Number(value, "count of x", "recorded", ledger)))
    assert text == expected
    assert [number.text for number in numbers] == [expected]


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-12, max_value=1e12))
def test_rounding_stays_near_the_value(value: float) -> None:
    ledger = Ledger()
    text, _ = ledger.finish(FILTERS["significant"](Number(value, "x", "measured", ledger), 3))
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3)


def test_declared_numbers_are_not_rounded(ledger: Ledger) -> None:
    mean = Number(122.782 / 256, "declared.inputs", "declared", ledger)
    assert ledger.finish(mean.__html__())[0] == "0.4796171875"


def test_a_filter_takes_nothing_but_the_record(ledger: Ledger) -> None:
    from jinja2.exceptions import FilterArgumentError

    for name in ("thousands", "percent", "significant", "words", "millions"):
        with pytest.raises(FilterArgumentError):
            FILTERS[name](12)
    with pytest.raises(FilterArgumentError):
        FILTERS["code"]("12")


@given(st.lists(st.integers(-5, 5) | st.floats(-2, 2), min_size=1, max_size=9))
def test_series_in_code_are_the_numbers(values: list[float]) -> None:
    import numpy as np

    ledger = Ledger()
    numbers = [Number(value, "declared.values", "declared", ledger) for value in values]
    code, _ = ledger.finish(FILTERS["python_series"](numbers))
    assert np.allclose(eval(code, {"np": np}), values)  # noqa: S307 - the code under test


def test_text_is_no_string_that_could_slip_through(ledger: Ledger) -> None:
    text = Text("a|b", "source.repo", "recorded", ledger)
    assert not isinstance(text, str)
    assert "a|b" not in f"{text}"
    with pytest.raises(TypeError):
        list(text)
