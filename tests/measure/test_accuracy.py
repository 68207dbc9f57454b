"""Differences between two models' answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from measuring_material import ignore_progress, save_rows

from bot.errors import StepError
from bot.measure import accuracy, tasks
from bot.measure.decode import coral, parse_decision
from bot.records import Measurement

AGE = {"decode": "coral", "from": "age_logits", "unit": "year", "metrics": ["mean_absolute", "max_absolute"]}
GENDER = {"decode": "argmax", "from": "gender_logits", "labels": ["female", "male"], "metrics": ["agreement", "flips"]}


def digests(count: int) -> tuple[str, ...]:
    return tuple(f"{number:064x}" for number in range(count))


def compared(
    source: dict[str, np.ndarray], candidate: dict[str, np.ndarray], plans: dict[str, Any]
) -> dict[str, Measurement]:
    """All figures by key."""
    count = len(next(iter(source.values())))
    context = accuracy.Context(digests(count), {"artifact": "fp16", "against": "source:network", "provider": "cpu"})
    parsed = {subject: parse_decision(subject, plan) for subject, plan in plans.items()}
    found = accuracy.compare(accuracy.pair_outputs(source, candidate), parsed, context)
    assert len({figure.key for figure in found}) == len(found)
    return {figure.key: figure for figure in found}


@pytest.fixture
def faces() -> dict[str, np.ndarray]:
    """Answers of a network like FaceAge to 40 faces."""
    random = np.random.default_rng(0)
    age = np.sort(random.normal(size=(40, 100)).astype(np.float32) * 4, axis=1)[:, ::-1]
    return {"age_logits": np.ascontiguousarray(age), "gender_logits": random.normal(size=(40, 2)).astype(np.float32)}


def test_equal_answers_differ_by_nothing(faces: dict[str, np.ndarray]) -> None:
    found = compared(faces, faces, {"age": AGE, "gender": GENDER})
    assert found["age.mean_absolute"].value == found["age.max_absolute"].value == 0
    assert found["gender.agreement"].value == 1
    assert found["gender.flips"].value == 0
    assert found["gender.flips"].worst_sample == ""
    assert found["age.max_absolute"].histogram is None


def test_years_are_compared_and_not_logits(faces: dict[str, np.ndarray]) -> None:
    other = {**faces, "age_logits": faces["age_logits"].astype(np.float16)}
    years = np.abs(coral(other["age_logits"]) - coral(faces["age_logits"]))

    found = compared(faces, other, {"age": AGE})

    assert found["age.mean_absolute"].value == pytest.approx(float(years.mean()), rel=1e-12)
    assert found["age.max_absolute"].value == pytest.approx(float(years.max()), rel=1e-12)
    assert found["age.max_absolute"].worst_sample == digests(40)[int(np.argmax(years))]
    assert found["age.max_absolute"].unit == "year"
    assert found["age.max_absolute"].samples == 40
    histogram = found["age.max_absolute"].histogram
    assert histogram is not None
    assert sum(histogram.counts) == 40
    assert histogram.edges[0] == 0
    assert histogram.edges[-1] == pytest.approx(float(years.max()))


def test_every_output_is_covered_without_any_plan(faces: dict[str, np.ndarray]) -> None:
    other = {**faces, "gender_logits": faces["gender_logits"] + np.float32(0.25)}
    found = compared(faces, other, {})
    assert found["output:gender_logits.max_absolute"].value == pytest.approx(0.25, rel=1e-5)
    assert found["output:age_logits.max_absolute"].value == 0
    assert found["finite.non_finite_values"].value == 0


def test_flips_are_counted_and_the_worst_is_named(faces: dict[str, np.ndarray]) -> None:
    other = {**faces, "gender_logits": faces["gender_logits"].copy()}
    other["gender_logits"][[7, 9]] = faces["gender_logits"][[7, 9]][:, ::-1]
    found = compared(faces, other, {"gender": GENDER})
    assert found["gender.flips"].value == 2
    assert found["gender.agreement"].value == pytest.approx(38 / 40)
    assert found["gender.agreement"].worst_sample == digests(40)[7]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_counted_and_hides_nothing(faces: dict[str, np.ndarray], bad: float) -> None:
    other = {name: array.copy() for name, array in faces.items()}
    other["age_logits"][3, 5] = bad
    found = compared(faces, other, {"age": {**AGE, "decode": "none"}, "gender": GENDER})
    assert found["finite.non_finite_values"].value == 1
    assert found["output:age_logits.non_finite_values"].value == 1
    assert found["output:gender_logits.non_finite_values"].value == 0
    assert not {key for key in found if key.startswith("age.")}
    assert "output:age_logits.max_absolute" not in found
    assert found["gender.agreement"].value == 1


def test_a_mask_of_infinity_in_both_is_no_difference(faces: dict[str, np.ndarray]) -> None:
    masked = faces["gender_logits"].copy()
    masked[:, 0] = -np.inf
    source, other = {"y": masked}, {"y": masked + np.float32(0.5)}
    found = compared(source, other, {"raw": {"decode": "none", "from": "y"}})
    assert found["raw.max_absolute"].value == pytest.approx(0.5)


def test_nan_in_logits_makes_no_choice(faces: dict[str, np.ndarray]) -> None:
    other = {**faces, "gender_logits": faces["gender_logits"].copy()}
    other["gender_logits"][0, 0] = np.nan
    assert not {key for key in compared(faces, other, {"gender": GENDER}) if key.startswith("gender")}


def test_embeddings_by_their_direction() -> None:
    source = np.eye(4, 8, dtype=np.float32)
    other = source.copy()
    other[2, 3] = 1
    plan = {"decode": "cosine", "from": "y", "metrics": ["mean_cosine", "min_cosine"]}
    found = compared({"y": source}, {"y": other * 3}, {"embedding": plan})
    assert found["embedding.min_cosine"].value == pytest.approx(math.sqrt(0.5))
    assert found["embedding.mean_cosine"].value == pytest.approx((3 + math.sqrt(0.5)) / 4)
    assert found["embedding.min_cosine"].worst_sample == digests(4)[2]


def test_relative_is_a_ratio_of_norms() -> None:
    source = np.array([[3.0, 4.0]])
    found = compared(
        {"y": source}, {"y": source * 1.1}, {"y": {"decode": "none", "from": "y", "metrics": ["relative"]}}
    )
    assert found["y.relative"].value == pytest.approx(0.1)


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4)),
        elements=st.floats(-9, 9, width=32),
    ),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_blocks_change_nothing(array: np.ndarray, block: int, random: Any) -> None:
    """However the rows are cut into blocks, the figures are the same."""
    other = array + np.float32(random.random())
    plans = {"raw": {"decode": "none", "from": "y", "metrics": ["mean_absolute", "max_absolute", "relative"]}}
    whole = compared({"y": array}, {"y": other}, plans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "BLOCK", block)
        parts = compared({"y": array}, {"y": other}, plans)
    assert parts.keys() == whole.keys()
    for key, figure in whole.items():
        assert parts[key].value == pytest.approx(figure.value, rel=1e-12)
        assert parts[key].worst_sample == figure.worst_sample


def test_outputs_that_do_not_fit() -> None:
    source = {"y": np.zeros((3, 2))}
    with pytest.raises(StepError, match="the output y is missing"):
        accuracy.pair_outputs(source, {"z": np.zeros((3, 2))})
    with pytest.raises(StepError, match=r"has shape \[3, 4\]; the source's has \[3, 2\]"):
        accuracy.pair_outputs(source, {"y": np.zeros((3, 4))})
    with pytest.raises(StepError, match="3 rows for 4 samples"):
        accuracy.compare(accuracy.pair_outputs(source, source), {}, accuracy.Context(digests(4), {"artifact": "x"}))
    with pytest.raises(StepError, match="reads the output age, which is not there"):
        compared(source, source, {"age": {"decode": "none", "from": "age"}})


def test_the_task_answers_with_plain_records(tmp_path: Path, faces: dict[str, np.ndarray]) -> None:
    paths = {name: save_rows(tmp_path / f"{name}.npy", array) for name, array in faces.items()}
    answer = tasks.compare(
        {
            "source": dict(paths),
            "candidate": dict(paths),
            "plans": {"age": {**AGE, "of": "network", "labels": [], "values": []}, "gender": GENDER},
            "samples": list(digests(40)),
            "samples_digest": "f" * 64,
            "artifact": "fused",
            "against": "source:network",
            "provider": "cpu",
            "device": "a processor",
            "runtime": "onnxruntime 1.32.0",
        },
        ignore_progress,
    )
    assert isinstance(answer, dict)
    records = [Measurement.model_validate(each) for each in answer["measurements"]]  # type: ignore[union-attr]
    assert {"age.mean_absolute", "gender.agreement", "finite.non_finite_values"} <= {each.key for each in records}
    assert {(each.artifact, each.against, each.device, each.samples_digest) for each in records} == {
        ("fused", "source:network", "a processor", "f" * 64)
    }
    assert all("source:network" in each.method for each in records if each.subject == "age")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(StepError, match="wrong arguments: candidate: Field required"):
        tasks.compare({"source": {}, "samples": [], "artifact": "x"}, ignore_progress)


def test_a_mask_leaves_out_what_is_padding_and_judges_each_position() -> None:
    """Padding differs wildly and does not count; one kept position of three points the other way."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(2, 3, 8)).astype(np.float32)
    candidate = source.copy()
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    candidate[mask == 0] = 1e3
    candidate[0, 1] *= -1
    plans = {
        name: parse_decision(name, {"decode": decode, "from": "tokens", "mask": "attention_mask", "metrics": metrics})
        for name, decode, metrics in (
            ("direction", "cosine", ["mean_cosine", "min_cosine"]),
            ("level", "none", ["max_absolute"]),
        )
    }
    pairs = accuracy.pair_outputs({"tokens": source}, {"tokens": candidate})
    context = accuracy.Context(digests(2), {"artifact": "fp16", "against": "source:x"})
    found = {each.key: each for each in accuracy.compare(pairs, plans, context, {"attention_mask": mask})}
    assert found["direction.min_cosine"].value == pytest.approx(-1)
    assert found["direction.mean_cosine"].value == pytest.approx(1 / 3)
    assert found["level.max_absolute"].value == pytest.approx(2 * np.abs(source[0, 1]).max())
    assert found["direction.min_cosine"].worst_sample == digests(2)[0] and found["direction.min_cosine"].samples == 2
    assert found["level.max_absolute"].method.endswith("over the 3 positions that attention_mask keeps")
    for wrong in ({}, {"attention_mask": mask[:, :2]}):
        with pytest.raises(StepError, match="attention_mask"):
            accuracy.compare(pairs, plans, context, wrong)
