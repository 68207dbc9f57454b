"""The bot's float16 beside the converters that people use, on the small graphs of tests/graph/float16_kinds.py.

Each converter is called with its defaults, inputs and outputs kept float32. For every graph the worst that is wrong
with its result is counted: it raised, ONNX Runtime does not open or run the result, the answer is wrong on ONNX
Runtime's CPU provider, it is wrong only as hardware would compute it (by the bot's emulation), or ONNX's full checker
refuses the file.

    python benchmarks/graph/converters.py [--names]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "graph"))

from float16_kinds import KINDS, Kind
from onnx_graphs import run

from bot.graph.float16 import convert
from bot.graph.model_file import read_model
from bot.graph.parameters import Float16Parameters
from bot.graph.steps import StepContext
from bot.measure.fp16_emulation import emulate

OUTCOMES = ("right", "raises", "does not run", "wrong on the CPU", "wrong on hardware only", "refused by the checker")


def bot_float16(path: Path) -> onnx.ModelProto:
    model = read_model(path)
    convert(model, Float16Parameters(), StepContext(path.parent))
    return model.whole()


def onnxconverter_common(path: Path) -> onnx.ModelProto:
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(onnx.load(path), keep_io_types=True)


def onnxruntime_transformers(path: Path) -> onnx.ModelProto:
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(onnx.load(path), keep_io_types=True)


CONVERTERS: dict[str, Callable[[Path], onnx.ModelProto]] = {
    "bot float16": bot_float16,
    "onnxconverter-common": onnxconverter_common,
    "onnxruntime.transformers": onnxruntime_transformers,
}


def outcome(kind: Kind, converter: Callable[[Path], onnx.ModelProto], folder: Path) -> str:
    """The worst that is wrong with one result."""
    source, result, emulated = folder / "source.onnx", folder / "result.onnx", folder / "emulated.onnx"
    source.write_bytes(kind.proto.SerializeToString())
    expected = run(source, kind.feeds)
    try:
        result.write_bytes(converter(source).SerializeToString())
    except Exception:
        return "raises"
    try:
        found = run(result, kind.feeds)
    except Exception:
        return "does not run"
    if not agrees(kind, expected, found):
        return "wrong on the CPU"
    try:
        measured = emulate(result, emulated).status == "emulated"
    except Exception:
        measured = False
    if measured and not agrees(kind, expected, run(emulated, kind.feeds, optimise=False)):
        return "wrong on hardware only"
    try:
        onnx.checker.check_model(str(result), full_check=True)
    except Exception:
        return "refused by the checker"
    return "right"


def agrees(kind: Kind, expected: list[np.ndarray], found: list[np.ndarray]) -> bool:
    """Whether answers have the source's dtypes and are within the graph's tolerance of the source's."""
    for ours, theirs in zip(expected, found, strict=True):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return False
        scale = kind.tolerance * max(float(np.abs(ours).max(initial=0)), 1e-9) if ours.dtype.kind == "f" else 0
        if not (np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) <= scale).all():
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="also name the graphs of each outcome")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{len(KINDS)} graphs".ljust(28) + "".join(each.rjust(len(each) + 2) for each in OUTCOMES))
    for name, converter in CONVERTERS.items():
        found: dict[str, list[str]] = {each: [] for each in OUTCOMES}
        for kind, make in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[outcome(make(), converter, Path(folder))].append(kind)
        print(name.ljust(28) + "".join(str(len(found[each])).rjust(len(each) + 2) for each in OUTCOMES))
        for each in OUTCOMES[1:] if given.names else ():
            if found[each]:
                print(f"    {each}: {', '.join(found[each])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
