from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_graphs import FLOAT16, model, node, tensor, value

from bot.errors import StepError

Step = Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]
MINI = Path(__file__).parents[1] / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"


def test_it_is_the_librarys_own_answer(step: Step) -> None:
    """Byte for byte what a plain call gives, with the kept operators added to the library's own list."""
    from onnxconverter_common import float16

    result, _ = step("float16_common", MINI, keep=["LayerNormalization", "Softmax"])
    kept = [*float16.DEFAULT_OP_BLOCK_LIST, "LayerNormalization", "Softmax"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = float16.convert_float_to_float16(onnx.load(MINI), keep_io_types=True, op_block_list=kept)
    assert result.SerializeToString() == expected.SerializeToString()
    assert {entry.key for entry in result.metadata_props} >= {"random_weights"}


def test_what_it_clips_is_in_the_report(step: Step) -> None:
    made = model(
        [node("Mul", ["x", "big"], ["t"]), node("Add", ["t", "tiny"], ["y"])],
        [value("x", [2])],
        [value("y", [2])],
        [tensor("big", [5e4, -7e4]), tensor("tiny", [1e-9, 1.0])],
    )
    _, report = step("float16_common", made)
    assert report["clipped_above"] == 2
    assert report["raised_below"] == 1
    assert report["largest_clipped"] == pytest.approx(7e4)
    assert report["warnings"] == []


def test_what_it_cannot_convert_is_an_error_with_a_remedy(step: Step) -> None:
    made = model([node("Neg", ["x"], ["y"])], [value("x", [2], FLOAT16)], [value("y", [2], FLOAT16)])
    with pytest.raises(StepError, match=r"already converted.* Use the step float16 instead"):
        step("float16_common", made)
