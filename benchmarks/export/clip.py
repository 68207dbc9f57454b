"""A clip of ten seconds through exported graphs of full size without torch, beside the same networks in torch.

A sound goes through WavLM base+ and emotion2vec+, 25 frames through DINOv2 base, and the three series through a
LinMulT: all exported by the bot from random weights, with the sidecars that its releases have. `tools/predict_clip.py`
does it in a process of its own that has no torch; another process does it in torch. What is compared are the
predictions. Seconds are those of the whole process without torch, and in torch those after its imports.

    python benchmarks/export/clip.py [--size full|tiny] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import table
from table import NAMES, ROOT, fetch_archive, wheel_on_path

SECONDS, RATE, FRAMES = 10, 16_000, 25
EXTRACTORS = {"wavlm": "wavlm-base-plus", "emotion2vec": "emotion2vec-plus", "dinov2": "dinov2-base"}
RECIPE_PARAMETERS: dict[str, dict[str, Any]] = {"wavlm-base-plus": {"hidden_state": 10}}
"""What the recipes say of a network; the others say what is the default."""

WIDTHS = {"full": dict.fromkeys(EXTRACTORS, 768), "tiny": dict.fromkeys(EXTRACTORS, 32)}
SHUT_OUT = ("torch", "transformers", "linmult", "bot")
ALONE = """
import resource, runpy, sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(name + " is shut out")

sys.meta_path.insert(0, Wall())
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def write_clip(folder: Path) -> dict[str, Path]:
    """A sound of speech's level and frames of smooth pictures, by the feature that is made of each."""
    import numpy as np
    from PIL import Image

    from bot.graph.export.pictures import smooth_pictures
    from bot.graph.export.sounds import voices

    generator = np.random.default_rng(0)
    values = voices(1, SECONDS * RATE, RATE, generator)[0]
    with wave.open(str(folder / "clip.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((np.clip(values, -1, 1) * 32767).astype("<i2").tobytes())
    frames = folder / "frames"
    frames.mkdir()
    for number, picture in enumerate(smooth_pictures(FRAMES, 256, generator)):
        pixels = np.clip(picture.transpose(1, 2, 0) * 48 + 127, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(frames / f"{number:03}.png")
    return {"wavlm": folder / "clip.wav", "emotion2vec": folder / "clip.wav", "dinov2": frames}


def files_of(name: str, size: str, folder: Path) -> dict[str, Path]:
    """Random weights of a network, made where they are not yet."""
    import torch

    listed = folder / "files.json"
    if listed.is_file():
        return {key: folder / value for key, value in json.loads(listed.read_text()).items()}
    if name == "linmult":
        torch.manual_seed(0)
        folder.mkdir(parents=True)
        made = table.make_random_checkpoint.linmult(size, WIDTHS[size])
        files = {"weights": folder / "best.ckpt"}
        torch.save({"random_weights": "true", **made}, files["weights"])
    else:
        files = table.weights_of(NAMES[name][0], size, folder)
    listed.write_text(json.dumps({key: path.name for key, path in files.items()}))
    return files


def export(name: str, size: str, folder: Path) -> dict[str, Any]:
    """Exports a network and writes its sidecar, as a release has it."""
    from bot.graph.inspection import signature_of
    from bot.graph.model_file import read_model
    from bot.graph.steps import STEPS, StepContext
    from bot.pipeline.sidecars import sidecar_of
    from bot.recipe import load_recipe

    with wheel_on_path(fetch_archive(table.LINMULT, table.default_cache())):
        files, graph = files_of(name, size, folder), folder / "graph.onnx"
        parameters = {"architecture": NAMES[name][0], **RECIPE_PARAMETERS.get(name, {})}
        step = STEPS["export_torch"]
        started = time.perf_counter()
        context = StepContext(folder, files=files)
        report = step.load()(files["weights"], graph, step.parameters(**parameters), context)
    seconds = time.perf_counter() - started
    with graph.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    made = SimpleNamespace(name="export_torch", parameters=parameters, report=report)
    signature = signature_of(read_model(graph))
    artifact: Any = SimpleNamespace(steps=[made], signature=signature, made_from="weights", sha256=sha256)
    source: Any = SimpleNamespace(files={})
    sidecar = sidecar_of(load_recipe(ROOT / "recipes" / name), source, artifact)
    assert sidecar is not None
    Path(f"{graph}.json").write_bytes(sidecar)
    return {"seconds": round(seconds, 1), "bytes": graph.stat().st_size}


def in_torch(size: str, folder: Path) -> dict[str, Any]:
    """The predictions in torch, with the preprocessing of the recipes' samples."""
    import numpy as np
    import torch

    from bot.graph.export.interface import Files
    from bot.graph.export_torch import load_exportable
    from bot.measure.images import decode
    from bot.measure.preprocess import ImageSpec, to_tensor
    from bot.measure.sounds import AudioSpec, decode_wav, to_waveform
    from bot.recipe import load_recipe

    def module(name: str) -> Any:
        found = Files(files_of(name, size, folder / name))
        return load_exportable(NAMES[name][0], RECIPE_PARAMETERS.get(name, {}), found, None).module

    sound = decode_wav((folder / "clip.wav").read_bytes())
    waveform = torch.from_numpy(to_waveform(sound, AudioSpec(sample_rate=RATE, seconds=SECONDS))[None])
    image = load_recipe(ROOT / "recipes" / "dinov2-base").plan.inputs["pixel_values"].image
    assert image is not None
    described = ImageSpec(**image.model_dump())
    paths = sorted((folder / "frames").iterdir())
    frames = torch.from_numpy(np.stack([to_tensor(decode(path.read_bytes()), None, described) for path in paths]))
    with wheel_on_path(fetch_archive(table.LINMULT, table.default_cache())), torch.inference_mode():
        started = time.perf_counter()
        pictures = module("dinov2-base")
        embeddings = torch.cat([pictures(several) for several in frames.split(8)])
        series = [module("wavlm-base-plus")(waveform), module("emotion2vec-plus")(waveform), embeddings[None]]
        masks = [torch.ones(rows.shape[:2], dtype=torch.bool) for rows in series]
        (traits,) = module("linmult")(*series, *masks)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    steps = {name: rows.shape[1] for name, rows in zip(EXTRACTORS, series, strict=True)}
    names = table.make_random_checkpoint.TRAITS
    predictions = dict(zip(names, traits.tolist(), strict=True))
    return {"predictions": predictions, "steps": steps, "seconds": round(seconds, 1), "peak_mib": peak}


def alone(folder: Path, material: dict[str, Path]) -> dict[str, Any]:
    """The predictions of the script for consumers, in a process without torch."""
    features = [
        each
        for name, recipe in EXTRACTORS.items()
        for each in ("--feature", name, str(folder / recipe / "graph.onnx"), str(material[name]))
    ]
    script, regressor = str(ROOT / "tools" / "predict_clip.py"), str(folder / "linmult" / "graph.onnx")
    command = [sys.executable, "-c", ALONE.format(names=SHUT_OUT), script, regressor, *features, "--json"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    said, peak = done.stdout.strip().splitlines()
    return {**json.loads(said), "seconds": round(seconds, 1), "peak_mib": int(peak)}


def part(*arguments: str) -> dict[str, Any]:
    """Runs a part of this script in a process of its own; what it printed last is its answer."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def measure(size: str) -> dict[str, Any]:
    """All of it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        material = write_clip(folder)
        exports = {name: part("--export", name, size, scratch) for name in (*EXTRACTORS.values(), "linmult")}
        print(json.dumps(exports), flush=True)
        found, wanted = alone(folder, material), part("--torch", size, scratch)
    apart = [abs(found["predictions"][trait] - value) for trait, value in wanted["predictions"].items()]
    return {
        "clip": {"seconds": SECONDS, "frames": FRAMES},
        "exports": exports,
        "onnxruntime": found,
        "torch": wanted,
        "max_absolute": max(apart),
        "mean_absolute": sum(apart) / len(apart),
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["full", "tiny"], default="full")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "export_clip.json")
    parser.add_argument("--export", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--torch", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        name, size, folder = options.export
        print(json.dumps(export(name, size, Path(folder) / name)))
    elif options.torch:
        print(json.dumps(in_torch(options.torch[0], Path(options.torch[1]))))
    else:
        said = table.circumstances(options.size)
        threads = os.environ.get("OMP_NUM_THREADS", "")
        said["command"] = f"OMP_NUM_THREADS={threads} python benchmarks/export/clip.py --size {options.size}"
        options.out.write_text(json.dumps({**said, **measure(options.size)}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
