from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bot.graph.tensors import DTYPES, dtype_name, float16_fit, to_float16


def _same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Equal bits, but that any NaN equals any other."""
    both_nan = np.isnan(ours) & np.isnan(theirs)
    return bool(((ours.view(np.uint16) == theirs.view(np.uint16)) | both_nan).all())


def _numpy_float16(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float16)


def test_every_float16_and_every_tie_between_two_rounds_as_numpy_rounds() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1].astype(np.float64) + halves[1:].astype(np.float64)).astype(np.float32) / 2
    above, below = np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))
    edges = np.array([65504, 65519.996, 65520, 1e9, np.inf, np.nan, 2**-25, 2**-24, 1e-45], np.float32)
    values = np.concatenate([halves, ties, above, below, edges])
    values = np.concatenate([values, -values])
    assert _same(to_float16(values), _numpy_float16(values))


@given(hnp.arrays(np.uint32, st.integers(0, 300)))
def test_any_bits_round_as_numpy_rounds(bits: np.ndarray) -> None:
    values = bits.view(np.float32)
    assert _same(to_float16(values), _numpy_float16(values))


def test_shapes_survive_and_strides_do_not_matter() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(to_float16(values.transpose(2, 0, 1)), values.transpose(2, 0, 1).astype(np.float16))
    assert to_float16(np.float32(3.5).reshape(())).shape == ()
    assert to_float16(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_subnormal_results_take_no_slow_path() -> None:
    values = np.full(1 << 21, 3e-6, np.float32)

    def seconds(convert: object) -> float:
        started = time.process_time()
        convert(values)  # type: ignore[operator]
        return time.process_time() - started

    ours = min(seconds(to_float16) for _ in range(3))
    numpys = min(seconds(lambda each: each.astype(np.float16)) for _ in range(3))
    assert ours < numpys


@given(hnp.arrays(np.float32, st.integers(0, 200), elements=st.floats(width=32)))
def test_what_is_counted_is_what_happens(values: np.ndarray) -> None:
    halves = _numpy_float16(values)
    finite = np.isfinite(values)
    fit = float16_fit(values)
    assert fit.elements == values.size
    assert fit.overflowed == np.count_nonzero(finite & np.isinf(halves))
    assert fit.vanished == np.count_nonzero((halves == 0) & (values != 0))
    magnitude = np.abs(values)
    assert fit.subnormal == np.count_nonzero((magnitude < 2**-14) & (magnitude > 0) & (halves != 0))
    assert fit.most_positive == values.max(initial=0, where=finite)
    assert fit.most_negative == values.min(initial=0, where=finite)


def test_dtypes_have_the_names_and_sizes_that_onnx_gives_them() -> None:
    from onnx import TensorProto, helper

    for number in TensorProto.DataType.values():
        if number == TensorProto.UNDEFINED:
            assert dtype_name(number) == "undefined"
        elif number == TensorProto.STRING:
            assert DTYPES[number].bits == 0
        else:
            numpy_dtype = helper.tensor_dtype_to_np_dtype(number)
            written = TensorProto.DataType.Name(number).lower()
            assert DTYPES[number].name == {"float": "float32", "double": "float64"}.get(written, written)
            if DTYPES[number].bits >= 8:
                assert DTYPES[number].bits == numpy_dtype.itemsize * 8
    assert dtype_name(999) == "dtype 999"


@pytest.mark.parametrize("spread", [1e-7, 1e-4, 0.02])
@pytest.mark.parametrize("size", [1, (1 << 16) - 1, (1 << 18) + 1])
def test_pieces_join_without_a_seam_whatever_share_is_subnormal(size: int, spread: float) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32) * np.float32(spread)
    assert _same(to_float16(values), _numpy_float16(values))
    assert float16_fit(values).elements == size
