"""Whether two embeddings order the same things alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.measure.accuracy import Context, Pair, compare
from bot.measure.decode import parse_decision
from bot.measure.embeddings import nearest_agreement, ranking_agreement, ranks

matrices = st.integers(3, 8).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(-5, 5), min_size=3, max_size=3).filter(any), min_size=count, max_size=count
    ).map(lambda rows: np.array(rows, np.float32))
)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=12))
def test_equal_values_share_the_mean_of_their_ranks(values: list[int]) -> None:
    found = ranks(np.array(values, np.float64))
    for value, rank in zip(values, found, strict=True):
        places = [place for place, other in enumerate(sorted(values)) if other == value]
        assert rank == np.mean(places)


@given(matrices, st.floats(0.1, 50))
def test_a_scale_changes_no_order(rows: np.ndarray, scale: float) -> None:
    scaled = rows * np.float32(2.0 ** round(np.log2(scale)))
    assert ranking_agreement(rows, scaled) == pytest.approx(1.0)
    assert nearest_agreement(rows, scaled) == 1.0


@given(matrices, matrices)
def test_agreement_is_a_share_and_a_correlation(first: np.ndarray, second: np.ndarray) -> None:
    count = min(len(first), len(second))
    assert -1 <= ranking_agreement(first[:count], second[:count]) <= 1
    assert 0 <= nearest_agreement(first[:count], second[:count]) <= 1


def test_an_order_turned_round_correlates_with_minus_one() -> None:
    angles = np.array([0.0, 10, 30, 70, 130]) * np.pi / 180
    source = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    near_to_first = np.argsort(-(source @ source[0])[1:])
    assert near_to_first.tolist() == [0, 1, 2, 3]
    swapped = source[[0, 4, 3, 2, 1]]
    others = slice(1, None)
    first, second = (source @ source[0])[others], (swapped @ swapped[0])[others]
    correlation = np.corrcoef(ranks(first), ranks(second))[0, 1]
    assert correlation == pytest.approx(-1.0)
    assert ranking_agreement(source, swapped) < 0.5


def test_the_figures_of_an_embedding() -> None:
    generator = np.random.default_rng(0)
    source = generator.normal(size=(10, 1, 8)).astype(np.float32)
    pair = Pair("embedding", source, source + generator.normal(0, 0.05, source.shape).astype(np.float32))
    metrics = ["mean_cosine", "min_cosine", "ranking", "nearest"]
    plan = parse_decision("meaning", {"decode": "cosine", "from": "embedding", "metrics": metrics})
    context = Context(tuple(str(row) for row in range(10)), {"artifact": "int8"})
    found = {each.metric: each.value for each in compare({"embedding": pair}, {"meaning": plan}, context)}
    assert 0.99 < found["min_cosine"] <= found["mean_cosine"] < 1
    assert 0.9 < found["ranking"] < 1 and found["nearest"] >= 0.8
