"""Outputs that have died while the whole looks perfect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.measure.accuracy import Pair
from bot.measure.check import Check
from bot.measure.dead_outputs import check_dead_outputs
from bot.measure.decode import cosines, softmax

RANDOM = np.random.default_rng(11)


def check(source: np.ndarray, candidate: np.ndarray) -> Check:
    return check_dead_outputs({"y": Pair("y", source, candidate)})


def quantised(values: np.ndarray, levels: int = 255) -> np.ndarray:
    """Values on one grid of eight bits for the whole tensor, as static quantisation would leave them."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    step = (high - low) / levels
    return (np.rint(values / step) * step).astype(np.float32)


@pytest.fixture
def detections() -> np.ndarray:
    """Boxes in pixels and scores of 18 classes for 2100 places, most of them empty: [N, 22, places]."""
    boxes = RANDOM.uniform(0, 320, size=(12, 4, 2100))
    scores = 10 ** RANDOM.uniform(-6, -3, size=(12, 18, 2100))
    scores[:, 3, ::50] = RANDOM.uniform(0.2, 0.95, size=(12, 42))
    scores[:, 7, ::90] = RANDOM.uniform(0.1, 0.6, size=(12, 24))
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def test_a_head_that_eight_bits_killed_is_found(detections: np.ndarray) -> None:
    """Boxes and scores on one grid: most scores are zero, two values are left, and the cosine sees nothing."""
    dead = quantised(detections)
    assert len(np.unique(dead[:, 4:])) == 2
    assert (dead[:, 4:] == 0).mean() > 0.99
    assert cosines(detections, dead).min() > 0.9999

    found = check(detections, dead)

    assert found.status == "failed"
    assert "axis 1, channels 4 to 21" in found.reason
    assert "2 distinct values are left" in found.reason


def test_a_head_on_grids_of_its_own_is_alive(detections: np.ndarray) -> None:
    alive = np.concatenate([quantised(detections[:, :4]), quantised(detections[:, 4:])], axis=1)
    found = check(detections, alive)
    assert found.status == "passed"
    assert found.value == 0


def test_classes_that_hardly_occur_may_round_to_nothing(detections: np.ndarray) -> None:
    faint = [channel for channel in range(4, 22) if channel not in (7, 11)]
    detections[:, faint] *= 8
    alive = np.concatenate([quantised(detections[:, :4]), quantised(detections[:, 4:])], axis=1)
    assert (alive[:, faint] == 0).mean() > 0.75
    assert check(detections, alive).status == "passed"


def test_one_dead_class_among_living_ones_is_found(detections: np.ndarray) -> None:
    other = detections.copy()
    other[:, 11] = 0
    found = check(detections, other)
    assert found.status == "failed"
    assert "channel 11" in found.reason


def test_half_precision_is_no_death(detections: np.ndarray) -> None:
    assert check(detections, detections.astype(np.float16)).status == "passed"


@pytest.mark.parametrize("sharpness", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("narrow", [lambda y: y.astype(np.float16), quantised], ids=["fp16", "int8"])
def test_a_softmax_that_is_zero_nearly_everywhere_is_legitimate(sharpness: float, narrow) -> None:
    source = softmax(RANDOM.normal(size=(200, 81)) * sharpness).astype(np.float32)
    found = check(source, narrow(source))
    assert found.status == "passed", found.reason


def test_saturated_sigmoids_are_legitimate_where_the_source_has_them() -> None:
    source = 1 / (1 + np.exp(-RANDOM.normal(size=(64, 5, 20)) * 40))
    assert check(source, source.astype(np.float16)).status == "passed"
    assert check(source, np.rint(source * 255) / 255).status == "passed"


def test_a_class_that_never_occurs_may_round_to_nothing() -> None:
    source = RANDOM.uniform(0, 1, size=(50, 10)).astype(np.float32)
    source[:, 4] *= 1e-7
    assert check(source, quantised(source)).status == "passed"


def test_binary_sparse_and_constant_outputs_are_legitimate() -> None:
    binary = (RANDOM.random(size=(30, 40)) > 0.9).astype(np.float32)
    sparse = np.where(RANDOM.random(size=(30, 400)) > 0.99, RANDOM.normal(size=(30, 400)), 0).astype(np.float32)
    for source in (binary, sparse, np.zeros((8, 3), np.float32), np.full((8, 3), 7, np.float32)):
        assert check(source, source).status == "passed"
        assert check(source, source.astype(np.float16)).status == "passed"


def test_integer_outputs() -> None:
    labels = RANDOM.integers(0, 1000, size=(100, 5))
    assert check(labels, labels).status == "passed"
    assert check(labels, np.zeros_like(labels)).status == "failed"


def test_a_constant_answer_is_dead() -> None:
    source = RANDOM.normal(size=(100, 3)).astype(np.float32)
    found = check(source, np.full_like(source, 0.5))
    assert found.status == "failed"
    assert "1 distinct values are left" in found.reason


def test_an_answer_clipped_at_its_ends_is_found() -> None:
    source = RANDOM.normal(size=(400, 3)).astype(np.float32)
    found = check(source, np.clip(source, -0.6, 0.6))
    assert found.status == "failed"
    assert "clipped" in found.reason
    assert check(source, np.clip(source, -2.9, 2.9)).status == "passed"


def test_two_heads_in_one_output_of_two_axes() -> None:
    """The same along the last axis, where a detector puts its places before its channels: [N, places, channels]."""
    source = np.concatenate([RANDOM.uniform(0, 640, (6, 500, 4)), RANDOM.uniform(0, 0.9, (6, 500, 2))], axis=2)
    dead = check(source, quantised(source))
    assert dead.status == "failed"
    assert "axis 2, channels 4 to 5" in dead.reason
    assert check(source, source.astype(np.float16)).status == "passed"


def test_values_that_are_not_finite_are_another_check_s_business() -> None:
    source = RANDOM.normal(size=(50, 4))
    source[:, 0] = -np.inf
    other = source.copy()
    other[0, 1] = np.nan
    assert check(source, other).status == "passed"


def test_an_answer_of_nothing_but_nan_is_dead() -> None:
    source = RANDOM.normal(size=(50, 4))
    found = check(source, np.full_like(source, np.nan))
    assert found.status == "failed"
    assert "100.00% of the values are not finite" in found.reason


def test_nothing_to_judge() -> None:
    assert check(np.zeros((0, 4)), np.zeros((0, 4))).status == "passed"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    scale=st.floats(-3, 3),
    spread=st.floats(0, 2),
)
def test_eight_bits_per_channel_never_kill(seed: int, shape: list[int], scale: float, spread: float) -> None:
    """Whatever the answer looks like: a grid of eight bits for each channel of the second axis keeps it alive."""
    random = np.random.default_rng(seed)
    source = random.normal(size=(16, *shape)) * 10.0 ** (
        scale + spread * random.normal(size=(1, shape[0], *[1] * (len(shape) - 1)))
    )
    other = np.stack([quantised(source[:, channel]) for channel in range(shape[0])], axis=1)
    assert check(source, other).status == "passed"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), channels=st.integers(1, 12), dead=st.integers(0, 11))
def test_a_channel_of_zeros_never_passes(seed: int, channels: int, dead: int) -> None:
    random = np.random.default_rng(seed)
    source = random.normal(size=(40, channels, 5)) + random.normal(size=(1, channels, 1))
    other = source.astype(np.float16).astype(np.float64)
    other[:, dead % channels] = 0
    assert check(source, other).status == "failed"
