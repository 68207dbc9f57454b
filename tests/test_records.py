"""Records: equal records have equal bytes, and nothing that is not a number gets in."""

from __future__ import annotations

import json
import math

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bot.canonical import canonical_json
from bot.errors import VerificationError
from bot.records import Measurement, Verdict

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(value=numbers, runs=st.lists(numbers, max_size=4))
def test_a_record_survives_its_json_byte_for_byte(value: float, runs: list[float]) -> None:
    record = Measurement(subject="age", metric="m", value=value, artifact="a", method="x", runs=tuple(runs))
    again = Measurement.from_json(record.to_json())
    assert again == record and again.to_json() == record.to_json()
    # JSON has one kind of number: a large double may be written without a fraction.
    assert json.loads(record.to_json(), parse_int=float)["value"] == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_record_holds_what_is_not_a_number(value: float) -> None:
    with pytest.raises(ValidationError):
        Measurement(subject="age", metric="m", value=value, artifact="a", method="x")
    with pytest.raises(ValueError, match="canonical JSON"):
        canonical_json({"value": value})


def test_a_damaged_record_is_named_by_place() -> None:
    with pytest.raises(VerificationError, match=r"owner/name/release.json: is not a valid Verdict record: at status"):
        Verdict.from_json(
            b'{"artifact": "a", "rule": "r", "comparison": "max", "status": "fine"}', where="owner/name/release.json"
        )


@given(
    st.recursive(st.none() | st.booleans() | numbers | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_canonical_json_is_json_and_does_not_depend_on_key_order(value: object) -> None:
    try:
        data = canonical_json(value)
    except ValueError:
        return  # a lone surrogate has no UTF-8
    assert json.loads(data, parse_int=float) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(list(value.items())))) == data
    assert data == rfc8785.dumps(json.loads(data, parse_int=float))
