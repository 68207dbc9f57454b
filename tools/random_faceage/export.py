"""Writes a random-weight network as the ONNX file that its publisher would have made, and the files beside it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from random_faceage import weights

if TYPE_CHECKING:
    import onnx
    import onnx_ir

MODEL_FILE = "faceage_dino_fp32.onnx"
CODE_FILES = ("modeling_faceage_dino.py", "configuration_faceage_dino.py")

OPSET, IR_VERSION = 18, 10


def write_all(size: weights.Size, seed: int, folder: Path) -> Path:
    """Write the model, its two JSON files and its code into a folder, and return the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = to_onnx(size, seed)
    path = folder / MODEL_FILE
    path.write_bytes(model.SerializeToString(deterministic=True))
    configuration = weights.configuration(size, seed).to_diff_dict()
    # Which release of the library wrote the file would change its bytes and says nothing about the model.
    configuration.pop("transformers_version", None)
    _write_json(folder / "config.json", configuration)
    _write_json(folder / "preprocessor_config.json", _preprocessor(size))
    for name in CODE_FILES:
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    return path


def to_onnx(size: weights.Size, seed: int) -> onnx.ModelProto:
    """Export the network with torch's dynamo exporter.

    Returns:
        One self-contained model, opset 18, IR 10, with `face` (batch x 3 x 224 x 224, float32) as its input and
        `age_logits` (batch x 100) and `gender_logits` (batch x 2) as its outputs. Its metadata say `random_weights`.
    """
    import torch

    network = weights.build(size, seed)
    example = torch.zeros(2, 3, size.image, size.image)
    with _quiet():
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=["face"],
            output_names=["age_logits", "gender_logits"],
            dynamic_shapes={"face": {0: torch.export.Dim("batch")}},
            optimize=False,
            verbose=False,
        )
        _optimize(program.model, size)
    model = program.model_proto
    _strip(model)
    model.ir_version = IR_VERSION
    for key, value in (("random_weights", "true"), ("random_weights_seed", str(seed))):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    return model


def _optimize(model: onnx_ir.Model, size: weights.Size) -> None:
    """What the exporter does by itself, but for the limit up to which constants are computed beforehand.

    At full size the table of rotary angles is above the exporter's limit, so that the graph holds the table with a Sin
    and a Cos. A limit below the mini network's smaller table gives its graph the same form.
    """
    from onnxscript.optimizer import optimize_ir
    from onnxscript.rewriter.onnx_fusions import fuse

    patches = (size.image // size.patch) ** 2
    optimize_ir(model, input_size_limit=patches * size.hidden // size.heads - 1)
    fuse(model)


def _strip(model: onnx.ModelProto) -> None:
    """Drop what the exporter notes about its own run: stack traces with absolute paths, above all."""
    graph = model.graph
    del model.metadata_props[:]
    del graph.metadata_props[:]
    graph.doc_string = model.doc_string = ""
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def _preprocessor(size: weights.Size) -> dict[str, object]:
    return {
        "crop_padding": 0.1,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"height": size.image, "width": size.image},
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _quiet():  # type: ignore[no-untyped-def]
    """Keep the exporter's progress, and its notes on libraries that are not there, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
