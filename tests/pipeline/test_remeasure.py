"""How a figure that was taken again is held against the record, whatever the record says."""

from __future__ import annotations

import pytest

from bot.errors import VerificationError
from bot.pipeline.findings import Finding, require_same
from bot.pipeline.remeasure import _held, _same_shape
from bot.records import Histogram, Measurement


def figure(value: float, **more: object) -> Measurement:
    fields = {
        "subject": "age",
        "metric": "mean_absolute",
        "artifact": "fp16",
        "method": "m",
        "samples": 3,
        "unit": "year",
    }
    return Measurement.model_validate({**fields, "value": value, **more})


def histogram(top: float, *counts: int) -> Histogram:
    return Histogram(edges=tuple(top * index / len(counts) for index in range(len(counts) + 1)), counts=counts)


@pytest.mark.parametrize(
    ("recorded", "now", "status"),
    [
        (figure(1.0, spread=0.1), figure(1.05), "ok"),
        (figure(1.0, spread=0.1), figure(1.2), "differs"),
        (figure(1.0, spread=0.1), figure(0.8), "differs"),
        (figure(0.0, spread=0.0), figure(0.0), "ok"),
        (figure(0.0, spread=0.0), figure(1e-9), "differs"),
        (figure(1.0, spread=0.1, samples=4), figure(1.0), "differs"),
        (figure(1.0), figure(5.0), "not checked"),
        (figure(1.0, spread=1.0, histogram=histogram(1, 1, 1, 1)), figure(1.0), "differs"),
    ],
)
def test_a_figure_beside_its_record(recorded: Measurement, now: Measurement, status: str) -> None:
    found = _held("fp16: age.mean_absolute", recorded, now)
    assert found.status == status and found.found.startswith(f"{now.value:g} year")
    assert found.recorded.startswith(f"{recorded.value:g} year")


def test_other_machines_are_named_with_a_difference() -> None:
    there = figure(1.0, spread=0.1, device="Old CPU", runtime="onnxruntime 1.22.0")
    here = figure(2.0, device="New CPU", runtime="onnxruntime 1.32.0")
    assert _held("x", there, here).reason == (
        "taken there on Old CPU, onnxruntime 1.22.0, and here on New CPU, onnxruntime 1.32.0"
    )
    assert _held("x", there, here.model_copy(update={"device": "Old CPU", "runtime": there.runtime})).reason == ""


@pytest.mark.parametrize(
    ("recorded", "same"),
    [
        (histogram(1.0, 2, 3, 1), True),
        (histogram(1.001, 2, 3, 1), True),
        (histogram(1.0, 2, 2, 2), True),
        (histogram(1.0, 6, 0, 0), False),
        (histogram(3.0, 2, 3, 1), False),
        (histogram(1.0, 2, 3, 2), False),
        (histogram(1.0, 10**12, 6 - 10**12, 0), False),
        (Histogram(edges=(0.0,), counts=(2, 3, 1)), False),
        (Histogram(edges=(0.0,), counts=()), False),
        (Histogram(edges=(), counts=(6,)), False),
        (None, False),
    ],
)
def test_histograms(recorded: Histogram | None, same: bool) -> None:
    assert _same_shape(recorded, histogram(1.0, 2, 3, 1)) is same


def test_a_difference_is_said_without_control_characters() -> None:
    finding = Finding("figure", "a\x1b[2J", "differs", "1", "2\n", "why\u202e")
    with pytest.raises(VerificationError) as caught:
        require_same([finding, Finding("timing", "all", "not checked")], "here")
    assert str(caught.value).isprintable() and "a\ufffd[2J" in caught.value.what


def test_only_strict_minds_what_was_not_checked() -> None:
    findings = [Finding("figure", "a", "not checked", reason="no GPU"), Finding("timing", "all", "not checked")]
    require_same(findings, "here")
    require_same(findings[1:], "here", strict=True)
    with pytest.raises(VerificationError, match=r"figure a \(no GPU\)"):
        require_same(findings, "here", strict=True)
