"""The tools that `peers.py` puts side by side, each as one function from a model file to a model file.

Every tool is called as its documentation says, with inputs and outputs kept float32. Run as a program, it makes one
file with one tool: that is a process of its own, of which wall time and memory are taken from outside.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

TWO_STEP_KEEP = ["LayerNormalization", "Softmax", "Add", "Mul"]


@dataclass(frozen=True)
class Job:
    """One conversion.

    Attributes:
        source: The float32 model.
        output: Where the result goes.
        about: What the material says of the model.
        scratch: A folder of its own.
    """

    source: Path
    output: Path
    about: dict[str, Any]
    scratch: Path


class NotForThisModel(Exception):
    """The tool does nothing of the kind for this model; the message says why."""


# --- this project ----------------------------------------------------------------------------------------------------


def _step(
    job: Job, name: str, parameters: dict[str, Any], output: Path | None = None, source: Path | None = None
) -> None:
    from bot.graph.steps import StepContext, load_step

    step = load_step(name, None)
    context = StepContext(job.scratch, _feeds(job), calibration=_calibration(job))
    step.function(source or job.source, output or job.output, step.parameters.model_validate(parameters), context)


def _feeds(job: Job) -> dict[str, Path] | None:
    """The samples as a step is given them: one array per input, the first axis the sample."""
    import numpy as np

    samples = np.load(job.source.parent / "samples.npz")
    names = dict.fromkeys(key.partition("/")[2] for key in samples.files)
    runs = len({key.partition("/")[0] for key in samples.files})
    arrays = {name: [samples[f"{run}/{name}"] for run in range(runs)] for name in names}
    if any(not each.ndim for parts in arrays.values() for each in parts):
        return None
    whole = {name: np.concatenate(parts) for name, parts in arrays.items()}
    if len({len(array) for array in whole.values()}) != 1:
        return None
    paths = {}
    for name, array in whole.items():
        paths[name] = job.scratch / f"feed_{len(paths)}.npy"
        np.save(paths[name], array)
    return paths


def _calibration(job: Job) -> dict[str, Path] | None:
    """Samples that are not judged, for steps that calibrate."""
    import numpy as np

    path = job.source.parent / "calibration.npz"
    if not path.exists():
        return None
    found = {}
    for name, array in np.load(path).items():
        found[name] = job.scratch / f"calibration_{len(found)}.npy"
        np.save(found[name], array)
    return found


def bot_float16(job: Job) -> None:
    _step(job, "float16", {})


def bot_float16_auto(job: Job) -> None:
    if _feeds(job) is None:
        raise NotForThisModel("its samples are no rows of one axis, which keep: auto reads")
    _step(job, "float16", {"keep": "auto"})


def _rebuild(job: Job, **form: Any) -> None:
    architecture = job.about.get("rebuild")
    if architecture is None:
        raise NotForThisModel("no architecture that is rebuilt")
    _step(job, "rebuild", {"architecture": architecture, **form})


def bot_rebuild(job: Job) -> None:
    _rebuild(job)


def bot_rebuild_fp32(job: Job) -> None:
    _rebuild(job, precision="fp32")


def bot_rebuild_calibrated(job: Job) -> None:
    _form(job, calibrate=True)


FEWEST = {"residual": "fp16", "compensate": True, "patches": "matmul", "calibrate": True}
SUMMED = {"residual": "fp16", "compensate": True, "patches": "matmul", "residual_every": 4}


def _form(job: Job, **form: Any) -> None:
    if job.about.get("rebuild") != "dinov3":
        raise NotForThisModel("a form of dinov3")
    _rebuild(job, **form)


def bot_rebuild_wide(job: Job) -> None:
    _form(job, attention="split", patches="matmul", calibrate=True)


def bot_rebuild_packed(job: Job) -> None:
    _form(job, **FEWEST, attention="packed")


def bot_rebuild_twin(job: Job) -> None:
    _form(job, **FEWEST, attention="split")


def bot_rebuild_summed(job: Job) -> None:
    _form(job, **SUMMED, attention="packed")


def bot_rebuild_summed_twin(job: Job) -> None:
    _form(job, **SUMMED, attention="split")


# --- others ----------------------------------------------------------------------------------------------------------


def two_step(job: Job) -> None:
    """What the fp16 file was made with that others have pinned."""
    if "transformer" not in job.about:
        raise NotForThisModel("made for transformers")
    between = job.scratch / "between.onnx"
    _step(job, "float16_common", {"keep": TWO_STEP_KEEP}, output=between)
    _step(job, "drop_cast_round_trips", {}, source=between)


def onnxconverter_common(job: Job) -> None:
    import onnx
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(job.source), keep_io_types=True), job.output)


def ort_float16(job: Job) -> None:
    import onnx
    from onnxruntime.transformers import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(job.source), keep_io_types=True), job.output)


def ort_optimizer(job: Job) -> None:
    from onnxruntime.transformers import optimizer

    shape = job.about.get("transformer")
    if shape is None:
        raise NotForThisModel("made for transformers")
    model = optimizer.optimize_model(
        str(job.source), model_type=shape["model_type"], num_heads=shape["heads"], hidden_size=shape["width"]
    )
    model.convert_float_to_float16(keep_io_types=True)
    model.save_model_to_file(str(job.output))


def onnxslim(job: Job) -> None:
    import onnxslim as tool

    tool.slim(str(job.source), str(job.output))


def onnxscript_fusions(job: Job) -> None:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    found = optimize_for_ort(onnx_ir.load(job.source))
    onnx_ir.save(found[0] if isinstance(found, tuple) else found, job.output)


@dataclass(frozen=True)
class Peer:
    """One tool.

    Attributes:
        title: What the table calls it.
        package: Whose version is noted; empty for this project.
        make: Converts; None for a tool that runs in an environment of its own.
        what: One line.
    """

    title: str
    package: str
    make: Callable[[Job], None] | None
    what: str


PEERS = {
    "bot-float16": Peer("**bot** `float16`", "", bot_float16, "with its defaults"),
    "bot-float16-auto": Peer("**bot** `float16`, keep: auto", "", bot_float16_auto, "after measuring ranges"),
    "bot-rebuild": Peer("**bot** `rebuild`", "", bot_rebuild, "with its defaults"),
    "bot-rebuild-calibrated": Peer("**bot** `rebuild`, calibrated", "", bot_rebuild_calibrated, "calibrate: true"),
    "bot-rebuild-fp32": Peer("**bot** `rebuild`, fp32", "", bot_rebuild_fp32, "nothing in half precision"),
    "bot-rebuild-packed": Peer(
        "**bot** `rebuild`, packed (CUDA)", "", bot_rebuild_packed, "fewest nodes and casts; runs on CUDA only"
    ),
    "bot-rebuild-twin": Peer(
        "**bot** `rebuild`, its CPU twin", "", bot_rebuild_twin, "the same arithmetic, for the CPU"
    ),
    "bot-rebuild-summed": Peer(
        "**bot** `rebuild`, packed, residual_every: 4 (CUDA)",
        "",
        bot_rebuild_summed,
        "its float16 stream is rounded once in four blocks; runs on CUDA only",
    ),
    "bot-rebuild-summed-twin": Peer(
        "**bot** `rebuild`, the CPU twin of that", "", bot_rebuild_summed_twin, "the same arithmetic, for the CPU"
    ),
    "bot-rebuild-wide-twin": Peer(
        "**bot** `rebuild`, packed, fp32 stream, its CPU twin",
        "",
        bot_rebuild_wide,
        "the residual stream stays float32",
    ),
    "two-step": Peer(
        "two steps with onnxconverter-common", "onnxconverter-common", two_step, "what the pinned file was made with"
    ),
    "onnxconverter-common": Peer(
        "onnxconverter-common", "onnxconverter-common", onnxconverter_common, "convert_float_to_float16"
    ),
    "ort-float16": Peer("onnxruntime.transformers float16", "onnxruntime", ort_float16, "convert_float_to_float16"),
    "ort-optimizer": Peer("onnxruntime.transformers optimizer", "onnxruntime", ort_optimizer, "and its float16"),
    "onnxslim": Peer("onnxslim (fp32)", "onnxslim", onnxslim, "simplifies; float32 stays"),
    "onnxscript": Peer("onnxscript ORT fusions (fp32)", "onnxscript", onnxscript_fusions, "fuses; float32 stays"),
    "modelopt": Peer("NVIDIA ModelOpt AutoCast", "nvidia-modelopt", None, "in an environment of its own"),
}
"""By name, in the order of the table."""


def main(name: str, source: Path, output: Path, scratch: Path) -> int:
    """Makes one file; exits with 3 where the tool is not for this model, its reason on standard output."""
    warnings.simplefilter("ignore")
    about = json.loads((source.parent / "about.json").read_text("utf-8"))
    make = PEERS[name].make
    assert make is not None
    try:
        make(Job(source, output, about, scratch))
    except NotForThisModel as reason:
        print(reason)
        return 3
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(Path(each) for each in sys.argv[2:5])))
