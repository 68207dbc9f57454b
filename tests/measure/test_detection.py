"""Detections: overlaps, suppression, matching, mean average precision, and what the heads of two networks say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import StepError
from bot.measure.detection.average_precision import (
    THRESHOLDS,
    Truth,
    average_precision,
    mean_average_precision,
    truth_of,
)
from bot.measure.detection.boxes import Detections, by_score, detections, overlaps, suppress
from bot.measure.detection.figures import Comparison, figures
from bot.measure.detection.heads import read, read_yolo, read_yunet
from bot.measure.detection.matching import match
from bot.measure.detection.plan import DETECTION_METRICS, YUNET_OUTPUTS, DetectionPlan

SMALL = st.integers(0, 40)


@st.composite
def some_detections(draw: st.DrawFn, most: int = 12, distinct: bool = False) -> Detections:
    """Boxes on a coarse grid, so that they meet; scores that are often equal."""
    count = draw(st.integers(0, most))
    corners = draw(
        st.lists(st.tuples(SMALL, SMALL, st.integers(1, 25), st.integers(1, 25)), min_size=count, max_size=count)
    )
    steps = st.integers(1, 9)
    scores = draw(st.lists(steps, min_size=count, max_size=count, unique=distinct and count <= 9))
    kinds = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    boxes = np.array([(x, y, x + w, y + h) for x, y, w, h in corners], np.float64).reshape(count, 4)
    return detections(boxes, np.array(scores, np.float64) / 10, np.array(kinds, np.int64))


def as_set(found: Detections) -> list[tuple[float, ...]]:
    return sorted(
        (*map(float, box), float(s), int(k)) for box, s, k in zip(found.boxes, found.scores, found.classes, strict=True)
    )


def overlap_by_counting(first: np.ndarray, second: np.ndarray) -> float:
    """Of two boxes with whole corners, by counting the unit squares in each."""
    squares = [
        {(x, y) for x in range(int(box[0]), int(box[2])) for y in range(int(box[1]), int(box[3]))}
        for box in (first, second)
    ]
    return len(squares[0] & squares[1]) / len(squares[0] | squares[1])


@given(some_detections(6), some_detections(6))
def test_overlaps_are_what_counting_squares_gives(first: Detections, second: Detections) -> None:
    found = overlaps(first.boxes, second.boxes)
    assert found.shape == (len(first), len(second))
    for row, left in enumerate(first.boxes):
        for column, right in enumerate(second.boxes):
            assert found[row, column] == pytest.approx(overlap_by_counting(left, right))


def test_a_box_without_area_overlaps_nothing() -> None:
    boxes = np.array([[5.0, 5, 5, 9], [9, 9, 3, 3], [0, 0, 10, 10]])
    assert overlaps(boxes, boxes).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


# -- suppression -------------------------------------------------------------------------------------------------------


@given(some_detections(), st.randoms(use_true_random=False), st.sampled_from([0.1, 0.3, 0.5, 0.9]))
def test_suppression_does_not_depend_on_the_order(found: Detections, random: Any, overlap: float) -> None:
    order = list(range(len(found)))
    random.shuffle(order)
    kept, again = suppress(found, overlap, 100), suppress(found.take(np.array(order, np.int64)), overlap, 100)
    assert as_set(kept) == as_set(again)
    assert list(kept.scores) == sorted(kept.scores, reverse=True)


@given(some_detections(), st.sampled_from([0.1, 0.3, 0.5, 0.9]))
def test_what_stays_does_not_overlap_and_what_goes_had_a_reason(found: Detections, overlap: float) -> None:
    kept = suppress(found, overlap, 100)
    shared = overlaps(kept.boxes, kept.boxes)
    same = kept.classes[:, None] == kept.classes[None, :]
    assert not ((shared > overlap) & same & ~np.eye(len(kept), dtype=bool)).any()
    staying = as_set(kept)
    for row in range(len(found)):
        one = found.take(np.array([row]))
        if as_set(one)[0] in staying:
            continue
        better = kept.take((kept.classes == one.classes[0]) & (kept.scores >= one.scores[0]))
        assert (overlaps(one.boxes, better.boxes) > overlap).any()


@given(some_detections(), st.integers(1, 5))
def test_at_most_so_many_stay_and_they_are_the_best(found: Detections, limit: int) -> None:
    every, few = suppress(found, 0.5, 100), suppress(found, 0.5, limit)
    assert as_set(few) == as_set(every.take(np.arange(min(limit, len(every)))))


def test_boxes_of_two_classes_at_one_place_both_stay() -> None:
    found = detections(np.array([[0.0, 0, 10, 10]] * 3), np.array([0.9, 0.8, 0.7]), np.array([0, 1, 0]))
    assert suppress(found, 0.5, 10).classes.tolist() == [0, 1]


# -- matching ----------------------------------------------------------------------------------------------------------


@given(some_detections(), some_detections())
def test_every_detection_is_kept_lost_or_new(reference: Detections, candidate: Detections) -> None:
    found = match(reference, candidate, 0.5)
    assert sorted([*found.reference, *found.lost]) == list(range(len(reference)))
    assert sorted([*found.candidate, *found.new]) == list(range(len(candidate)))
    for row, column in zip(found.reference, found.candidate, strict=True):
        assert reference.classes[row] == candidate.classes[column]
        assert overlap_by_counting(reference.boxes[row], candidate.boxes[column]) >= 0.5


@given(some_detections(), some_detections(), st.randoms(use_true_random=False))
def test_matching_does_not_depend_on_the_order(reference: Detections, candidate: Detections, random: Any) -> None:
    shuffled = []
    for each in (reference, candidate):
        order = list(range(len(each)))
        random.shuffle(order)
        shuffled.append(each.take(np.array(order, np.int64)))
    found, again = match(reference, candidate, 0.5), match(*shuffled, 0.5)
    assert as_set(reference.take(found.lost)) == as_set(shuffled[0].take(again.lost))
    assert as_set(candidate.take(found.new)) == as_set(shuffled[1].take(again.new))


@given(some_detections())
def test_what_a_network_finds_it_keeps(found: Detections) -> None:
    alone = suppress(found, 0.5, 100)
    matches = match(alone, alone, 0.5)
    assert not len(matches.lost) and not len(matches.new)
    assert as_set(alone.take(matches.reference)) == as_set(alone.take(matches.candidate))


@given(some_detections(), some_detections())
def test_no_better_partner_is_free(reference: Detections, candidate: Detections) -> None:
    """Greedy: a lost one would have been taken by anything that is new and overlaps it enough."""
    found = match(reference, candidate, 0.5)
    lost, new = reference.take(found.lost), candidate.take(found.new)
    possible = (overlaps(lost.boxes, new.boxes) >= 0.5) & (lost.classes[:, None] == new.classes[None, :])
    assert not possible.any()


# -- mean average precision --------------------------------------------------------------------------------------------


def ap_by_hand(truths: list[Truth], found: list[Detections], kind: int, threshold: float) -> float:
    """Average precision step by step, from its definition: every detection in turn, every level of recall in turn."""
    rows = []
    for picture, each in enumerate(found):
        for index in range(len(each)):
            if each.classes[index] == kind:
                rows.append((-each.scores[index], picture, index))
    rows.sort()
    taken: set[tuple[int, int]] = set()
    total = sum(int(k == kind) for truth in truths for k in truth.classes)
    hits, points = 0, []
    for rank, (_, picture, index) in enumerate(rows, start=1):
        best, place = threshold, None
        for number, box in enumerate(truths[picture].boxes):
            if truths[picture].classes[number] != kind or (picture, number) in taken:
                continue
            shared = overlap_by_counting(box, found[picture].boxes[index])
            if shared >= best and (place is None or shared > best):
                best, place = shared, number
        if place is not None:
            taken.add((picture, place))
            hits += 1
        points.append((hits / total, hits / rank))
    levels = [max((p for r, p in points if r >= level - 1e-12), default=0.0) for level in np.linspace(0, 1, 101)]
    return float(np.mean(levels))


@given(st.lists(st.tuples(some_detections(5), some_detections(9, distinct=True)), min_size=1, max_size=3))
def test_average_precision_is_what_its_definition_gives(pictures: list[tuple[Detections, Detections]]) -> None:
    truths = [truth_of(truth) for truth, _ in pictures]
    # Scores of all pictures differ, as the order of equal ones is nobody's.
    found = [
        detections(each.boxes, each.scores + 1e-3 * number + 1e-5 * np.arange(len(each)), each.classes)
        for number, (_, each) in enumerate(pictures)
    ]
    for kind in (0, 1, 2):
        if any((truth.classes == kind).any() for truth in truths):
            expected = ap_by_hand(truths, found, kind, 0.5)
            assert average_precision(truths, found, kind, 0.5) == pytest.approx(expected)


@given(st.lists(some_detections(), min_size=1, max_size=3))
def test_finding_what_is_there_is_perfect(pictures: list[Detections]) -> None:
    apart = [suppress(each, 0.4, 100) for each in pictures]
    value = mean_average_precision([truth_of(each) for each in apart], apart, THRESHOLDS)
    assert value is None if not any(len(each) for each in apart) else value == pytest.approx(1.0)


@given(some_detections(6), some_detections(8, distinct=True), st.floats(1.5, 4.0))
def test_only_the_order_of_scores_counts(truth: Detections, found: Detections, power: float) -> None:
    other = detections(found.boxes, found.scores**power, found.classes)
    values = [mean_average_precision([truth_of(truth)], [each]) for each in (found, other)]
    assert values[0] == values[1]
    assert values[0] is None or 0 <= values[0] <= 1


def test_what_need_not_be_found_neither_helps_nor_harms() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    truth = Truth(boxes, np.array([0, 0]), np.array([False, True]))
    both = detections(boxes, np.array([0.5, 0.9]), np.array([0, 0]))
    one = both.take(np.array([0]))
    assert mean_average_precision([truth], [both]) == mean_average_precision([truth], [one]) == 1.0
    strange = detections(boxes + 50, np.array([0.5, 0.9]), np.array([0, 0]))
    assert mean_average_precision([truth], [strange]) == 0.0


# -- figures -----------------------------------------------------------------------------------------------------------


def test_the_figures_of_a_small_case() -> None:
    plan = DetectionPlan(score=0.5)
    source = detections(
        np.array([[0.0, 0, 10, 10], [20, 20, 40, 40], [60, 60, 70, 70]]), np.array([0.9, 0.8, 0.3]), np.zeros(3, int)
    )
    candidate = detections(
        np.array([[0.0, 0, 10, 9], [80, 80, 90, 90], [60, 60, 70, 70]]), np.array([0.7, 0.6, 0.4]), np.zeros(3, int)
    )
    labels = [Truth(np.array([[0.0, 0, 10, 10]]), np.array([0]), np.array([False]))]
    comparison = Comparison(plan, [source], [candidate], labels)
    found = {figure.metric: figure for figure in figures(comparison, DETECTION_METRICS)}
    assert (found["found"].value, found["kept"].value) == (2, 0.5)
    assert (found["lost"].value, found["new"].value) == (1, 1)
    assert found["mean_score_drift"].value == pytest.approx(0.2)
    assert found["max_box_drift"].value == 1 and found["max_box_drift"].unit == "pixel"
    assert found["min_overlap"].value == pytest.approx(0.9)
    assert found["label_map"].value == found["source_label_map"].value == 1
    assert found["label_map_change"].value == 0
    assert "max_point_drift" not in found  # there are no landmarks that could move
    assert [figure.metric for figure in figures(comparison, ("lost", "kept"))] == ["lost", "kept"]


def test_nothing_is_measured_of_a_detector_that_finds_nothing() -> None:
    nothing = detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))
    found = [figure.metric for figure in figures(Comparison(DetectionPlan(), [nothing], [nothing]), DETECTION_METRICS)]
    assert found == ["lost", "new", "found"]


# -- heads -------------------------------------------------------------------------------------------------------------


def test_a_yolo_is_read_column_by_column() -> None:
    generator = np.random.default_rng(0)
    output = generator.uniform(0, 1, (2, 4 + 3, 50)).astype(np.float32)
    output[:, :4] = output[:, :4] * 40 + 20
    plan = DetectionPlan(score=0.25, nms=0.45, limit=50)
    for row, found in zip(output, read_yolo(output, plan, 0.6), strict=True):
        boxes, scores, kinds = [], [], []
        for column in range(50):
            x, y, w, h, *shares = (float(value) for value in row[:, column])
            kind = int(np.argmax(shares))
            if shares[kind] >= 0.6:
                boxes.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
                scores.append(shares[kind])
                kinds.append(kind)
        expected = suppress(detections(np.array(boxes), np.array(scores), np.array(kinds)), 0.45, 50)
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-4)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
        assert found.classes.tolist() == expected.classes.tolist()


def test_an_end_to_end_yolo_is_not_suppressed_again() -> None:
    rows = np.array([[[0, 0, 10, 10, 0.9, 1], [0, 0, 10, 10, 0.8, 1], [1, 1, 2, 2, 0.1, 0]]], np.float32)
    (found,) = read_yolo(rows, DetectionPlan(end_to_end=True), 0.25)
    assert found.scores.tolist() == pytest.approx([0.9, 0.8])
    assert found.classes.tolist() == [1, 1]


def yunet_outputs(size: tuple[int, int], seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    columns = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
    found = {}
    for name in YUNET_OUTPUTS:
        part, stride = name.split("_")
        cells = (size[0] // int(stride)) * (size[1] // int(stride))
        low, high = (0, 1) if part in {"cls", "obj"} else (-1, 1)
        found[name] = generator.uniform(low, high, (1, cells, columns[part])).astype(np.float32)
    return found


def test_yunet_is_read_cell_by_cell_also_where_the_input_is_not_square() -> None:
    size = (64, 96)
    outputs = yunet_outputs(size)
    boxes, scores, points = [], [], []
    for stride in (8, 16, 32):
        place = 0
        for row in range(size[0] // stride):
            for column in range(size[1] // stride):
                cls, obj, bbox, kps = (outputs[f"{part}_{stride}"][0, place] for part in ("cls", "obj", "bbox", "kps"))
                place += 1
                score = float(np.sqrt(float(cls[0]) * float(obj[0])))
                x, y = (column + bbox[0]) * stride, (row + bbox[1]) * stride
                w, h = np.exp(float(bbox[2])) * stride, np.exp(float(bbox[3])) * stride
                if score >= 0.7:
                    boxes.append([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
                    scores.append(score)
                    points.append([[(column + kps[2 * k]) * stride, (row + kps[2 * k + 1]) * stride] for k in range(5)])
    expected = detections(np.array(boxes), np.array(scores), np.zeros(len(scores), int), np.array(points))
    expected = suppress(expected, 0.3, 300)
    (found,) = read_yunet(outputs, size, DetectionPlan(nms=0.3), 0.7)
    assert len(found) == len(expected) > 5
    np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-3)
    np.testing.assert_allclose(found.points, expected.points, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "outputs", "size"),
    [
        ("yolo", {"output0": np.zeros((1, 4, 10), np.float32)}, None),
        ("yolo", {"output0": np.zeros((1, 84), np.float32)}, None),
        ("yunet", yunet_outputs((64, 96)), None),
        ("yunet", yunet_outputs((64, 96)), (64, 64)),
        ("yunet", {"cls_8": np.zeros((1, 96, 1), np.float32)}, (64, 96)),
    ],
)
def test_outputs_of_another_shape_are_refused(kind: str, outputs: dict[str, np.ndarray], size: Any) -> None:
    with pytest.raises(StepError):
        read(kind, outputs, DetectionPlan(), size, 0.25)


def test_boxes_that_are_not_finite_are_no_detections() -> None:
    output = np.full((1, 5, 3), 0.9, np.float32)
    output[0, 2, 1] = np.inf
    assert len(read_yolo(output, DetectionPlan(nms=1.0), 0.25)[0]) == 2


def test_equal_scores_have_an_order_of_their_own() -> None:
    boxes = np.array([[3.0, 0, 9, 9], [1, 0, 9, 9], [2, 0, 9, 9]])
    found = detections(boxes, np.array([0.5, 0.5, 0.5]), np.array([0, 0, 0]))
    assert by_score(found).tolist() == [1, 2, 0]
