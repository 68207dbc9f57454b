"""onnxconverter-common's conversion to half precision, for files whose bytes others have pinned.

It is called as it is, quirks included: it also halves the parameters of nodes that stay float32, sends values through
float16 between two of them, and clips what is beyond 1e4. `float16` does none of that.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from bot.errors import StepError
from bot.graph.model_file import read_whole, write_proto
from bot.graph.parameters import Float16CommonParameters
from bot.graph.steps import StepContext
from bot.records import Json

_CLIPPED = re.compile(r"the float32 number (\S+) will be truncated to (\S+)")


def float16_common(
    source: Path, output: Path, parameters: Float16CommonParameters, context: StepContext
) -> dict[str, Json]:
    """Converts with `convert_float_to_float16(keep_io_types=True)`.

    Args:
        source: The model, at most 2 GiB.
        output: Where the result goes.
        parameters: Operator types to keep, besides onnxconverter-common's own list.
        context: Unused.

    Returns:
        `clipped_above`: how many tensors had values beyond 1e4, which it sets to 1e4. `raised_below`: how many had
        values nearer to 0 than 1e-7, which it sets to 1e-7. `largest_clipped`: the largest magnitude that it clipped.
        `warnings`: what else it said.

    Raises:
        UpstreamError: The source cannot be read.
        StepError: The converter refused the model.
    """
    from onnxconverter_common import float16

    model = read_whole(source)
    block_list = [*float16.DEFAULT_OP_BLOCK_LIST, *parameters.keep]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            converted = float16.convert_float_to_float16(model, keep_io_types=True, op_block_list=block_list)
        except Exception as error:
            said = " ".join(str(error).split()).removesuffix(".")
            raise StepError(
                f"onnxconverter-common cannot convert this graph: {type(error).__name__}: {said}.",
                where=source.name,
                remedy="Use the step float16 instead.",
            ) from error
    write_proto(converted, output)
    return _report([str(warning.message) for warning in caught])


def _report(messages: list[str]) -> dict[str, Json]:
    above, below, others = [], 0, []
    for message in messages:
        match = _CLIPPED.fullmatch(message)
        if match is None:
            others.append(message)
        elif abs(float(match[2])) >= 1:
            above.append(abs(float(match[1])))
        else:
            below += 1
    report: dict[str, Json] = {"clipped_above": len(above), "raised_below": below, "warnings": [*others]}
    return report | ({"largest_clipped": max(above)} if above else {})
