"""What a consumer reads in a network's outputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bot.errors import RecipeError, StepError
from bot.measure.decode import (
    ALLOWED_METRICS,
    DECODERS,
    DEFAULT_METRICS,
    argmax,
    choose,
    coral,
    cosines,
    expectation,
    parse_decision,
    sigmoid,
    softmax,
)

logits = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6),
    elements=st.floats(-1e4, 1e4, width=32),
)
vectors = hnp.arrays(np.float64, (3, 5), elements=st.floats(-100, 100).map(lambda value: round(value, 6)))


@given(logits)
def test_coral_is_the_sum_of_sigmoids_one_by_one(array: np.ndarray) -> None:
    years = coral(array)
    assert years.shape == array.shape[:-1]
    for place in np.ndindex(*years.shape):
        one_by_one = math.fsum(
            1 / (1 + math.exp(-x)) if x > -700 else 0.0 for x in (float(value) for value in array[place])
        )
        assert years[place] == pytest.approx(one_by_one, abs=1e-9)
    assert ((years >= 0) & (years <= array.shape[-1])).all()


def test_coral_on_the_face_network_s_hundred_thresholds() -> None:
    certain = np.full((1, 100), -50.0, np.float32)
    certain[0, :31] = 50
    assert coral(certain)[0] == pytest.approx(31, abs=1e-12)
    assert coral(np.zeros((2, 100), np.float16)).tolist() == [50, 50]


@given(logits)
def test_sigmoid_stays_between_0_and_1_and_mirrors(array: np.ndarray) -> None:
    with np.errstate(all="raise", under="ignore"):
        values = sigmoid(array)
    assert ((values >= 0) & (values <= 1)).all()
    np.testing.assert_allclose(values + sigmoid(-array), 1, atol=1e-15)


@given(logits)
def test_softmax_sums_to_1(array: np.ndarray) -> None:
    np.testing.assert_allclose(softmax(array).sum(axis=-1), 1, atol=1e-12)


@given(hnp.arrays(np.float64, (4, 7), elements=st.floats(0.01, 1)), st.lists(st.floats(-9, 99), min_size=7, max_size=7))
def test_an_expectation_lies_between_its_values(weights: np.ndarray, values: list[float]) -> None:
    found = expectation(weights / weights.sum(axis=1, keepdims=True), tuple(values))
    assert ((found >= min(values) - 1e-9) & (found <= max(values) + 1e-9)).all()


def test_an_expectation_of_one_certain_class_is_its_value() -> None:
    values = (0.25, *map(float, range(1, 81)))
    np.testing.assert_array_equal(expectation(np.eye(81, dtype=np.float32), values), values)
    assert expectation(np.eye(4)).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(expectation(np.eye(3) * 800.0, (5, 6, 7), logits=True), [5, 6, 7])


def test_an_expectation_needs_a_value_for_each_class() -> None:
    with pytest.raises(StepError, match="3 values for an output of 4 classes"):
        expectation(np.eye(4), (1, 2, 3))


def test_argmax_takes_the_first_of_equals_and_checks_its_labels() -> None:
    assert argmax(np.array([[1, 1, 0], [0, 2, 2]])).tolist() == [0, 1]
    with pytest.raises(StepError, match="2 labels for an output of 3 classes"):
        argmax(np.zeros((1, 3)), ("female", "male"))


@given(vectors, st.floats(0.001, 1000))
def test_a_cosine_does_not_see_a_vector_s_length(array: np.ndarray, factor: float) -> None:
    np.testing.assert_allclose(cosines(array, array * factor), 1, atol=1e-12)
    nonzero = array.any(axis=1)
    np.testing.assert_allclose(cosines(array, array * -factor)[nonzero], -1, atol=1e-12)


@given(vectors, vectors)
def test_a_cosine_is_symmetric_and_bounded(first: np.ndarray, second: np.ndarray) -> None:
    forth, back = cosines(first, second), cosines(second, first)
    np.testing.assert_allclose(forth, back, atol=1e-15)
    assert ((forth >= -1) & (forth <= 1)).all()


def test_a_cosine_survives_numbers_whose_squares_do_not() -> None:
    assert cosines(np.full((1, 3), 1e300), np.full((1, 3), 1e-300)).tolist() == pytest.approx([1])
    assert cosines(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0]
    assert cosines(np.zeros((1, 3)), np.zeros((1, 3))).tolist() == [1]


def test_a_threshold_makes_a_choice_of_a_probability() -> None:
    plan = parse_decision("smiles", {"decode": "sigmoid", "from": "y", "threshold": 0.9})
    assert choose(plan, np.array([[0.0, 2.1, 2.3]])).tolist() == [[0, 0, 1]]


def test_every_decoder_has_its_metrics() -> None:
    assert set(DEFAULT_METRICS) == set(ALLOWED_METRICS) == set(DECODERS)
    for decoder in DECODERS:
        assert set(DEFAULT_METRICS[decoder]) <= ALLOWED_METRICS[decoder]


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        ({"decode": "tea leaves", "from": "y"}, "measure.accuracy.age.decode"),
        ({"decode": "coral"}, "measure.accuracy.age.from"),
        ({"decode": "coral", "from": "y", "metrics": ["agreement"]}, "measure.accuracy.age.metrics"),
        ({"decode": "argmax", "from": "y", "metrics": ["mean_absolute"]}, "measure.accuracy.age.metrics"),
        ({"decode": "coral", "from": "y", "units": "year"}, "measure.accuracy.age.units"),
    ],
)
def test_a_wrong_plan_is_named_with_its_place(plan: dict[str, object], where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_decision("age", plan)  # type: ignore[arg-type]
    assert caught.value.where == where
