"""What a rebuild does to the real models of its architectures that ordinary packages ship, on real text and pictures.

    python benchmarks/graph/rebuild_real.py

The models: the sentence encoder all-MiniLM-L6-v2, exported by transformers in two ways; a third party's
paraphrase-MiniLM-L3-v2 in ONNX; and a saliency network around a DINOv2 ViT-S/14. Each is rebuilt in its forms, and
beside them converted by the bot's float16 and by onnxconverter-common. Each result is compared with its source: on ONNX
Runtime's CPU provider, and as half-precision hardware computes it, with the kernels of ONNX Runtime 1.22 and those from
1.27 on. The texts are paragraphs of the Universal Declaration of Human Rights in English, the pictures photographs out
of packages. Times are ratios of interleaved runs of one sample each.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parent))

from export_upstreams import DECLARATION, DECLARATION_FILES, DECLARATION_FOLDER, MINILM, MINILM_FILES, MINILM_FOLDER
from packages import default_cache, fetch_file, fetch_files
from photographs import fetch_originals
from real_models import paraphrase_minilm, saliency_network
from streaming import ROOT, processor

RUNTIMES = ("cuda-1.22", "cuda-1.27+")
TEXT_FORMS: dict[str, dict[str, Any]] = {
    "rebuild fp32": {"precision": "fp32"},
    "rebuild fp16": {},
    "rebuild fp16, stream too": {"residual": "fp16"},
}
PICTURE_FORMS: dict[str, dict[str, Any]] = {
    "rebuild fp32": {"precision": "fp32"},
    "rebuild fp16": {},
    "rebuild fp16, stream too": {"residual": "fp16", "compensate": True, "patches": "matmul", "attention": "split"},
}

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Real:
    """A real model.

    Attributes:
        name: For the table.
        path: Its file.
        architecture: As `rebuild` knows it.
        feeds: Samples, by input; the first axis is the sample.
        forms: Of the rebuild.
    """

    name: str
    path: Path
    architecture: str
    feeds: Feeds
    forms: dict[str, dict[str, Any]]


def main() -> None:
    """Rebuild all, compare, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--npm", action="store_true", help="photographs out of npm packages too")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "graph_rebuild_real.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for real in models(options, Path(folder)) for row in compare(real, Path(folder))]
    names = ("onnx", "onnxruntime", "numpy", "torch", "transformers", "onnxconverter-common")
    result = {
        "what": "rebuilds of the real models of their architectures that packages ship",
        "command": f"python benchmarks/graph/rebuild_real.py --texts {options.texts} --pictures {options.pictures}"
        + (" --npm" if options.npm else ""),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "load_before": load},
        "versions": {name: version(name) for name in names},
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


def models(options: argparse.Namespace, folder: Path) -> list[Real]:
    """All models with their samples."""
    cache = default_cache()
    members = {MINILM_FOLDER + name: sha256 for name, sha256 in MINILM_FILES.items()}
    found = fetch_files(MINILM, members, cache)
    encoder = {path.removeprefix(MINILM_FOLDER): place for path, place in found.items()}
    texts = tokens(cache, encoder, options.texts)
    paraphrase = paraphrase_minilm(cache)
    focus = saliency_network(cache)
    pictures = {"input_image": photographs(cache, options.pictures, options.npm)}
    two = {name: texts[name] for name in ("input_ids", "attention_mask")}
    return [
        Real("all-MiniLM-L6-v2, dynamo, sdpa", export(encoder, folder, True), "bert", texts, TEXT_FORMS),
        Real("all-MiniLM-L6-v2, TorchScript, eager", export(encoder, folder, False), "bert", texts, TEXT_FORMS),
        Real("paraphrase-MiniLM-L3-v2, third party's", paraphrase, "bert", two, TEXT_FORMS),
        Real("saliency around DINOv2 ViT-S/14", focus, "dinov2", pictures, PICTURE_FORMS),
    ]


def tokens(cache: Path, encoder: dict[str, Path], count: int) -> Feeds:
    """Paragraphs of the declaration as token ids, padded to the longest."""
    from tokenizers import Tokenizer

    member = f"{DECLARATION_FOLDER}eng.html"
    page = fetch_file(DECLARATION, member, DECLARATION_FILES["eng.html"], cache).read_text("utf-8")
    paragraphs = [html.unescape(each.strip()) for each in re.findall(r"<p>(.*?)</p>", page, re.DOTALL)]
    tokenizer = Tokenizer.from_file(str(encoder["tokenizer.json"]))
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    found = [each.ids for each in tokenizer.encode_batch(paragraphs[:count])]
    ids = np.zeros((len(found), max(map(len, found))), np.int64)
    mask = np.zeros_like(ids)
    for row, numbers in enumerate(found):
        ids[row, : len(numbers)], mask[row, : len(numbers)] = numbers, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def photographs(cache: Path, count: int, npm: bool) -> np.ndarray:
    """Photographs as the saliency network reads them: squeezed to a square, with ImageNet's mean and deviation."""
    import io

    from PIL import Image

    found = []
    for picture in fetch_originals(cache, npm)[:count]:
        image = Image.open(io.BytesIO(picture.data)).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
        pixels = np.asarray(image, np.float32) / 255
        found.append((pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
    return np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2), np.float32)


def export(encoder: dict[str, Path], folder: Path, dynamo: bool) -> Path:
    """The sentence encoder with its masked mean, as ONNX."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    settings = json.loads(encoder["config.json"].read_text("utf-8"))
    configuration = BertConfig(
        **{name: settings[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")},
        **{name: settings[name] for name in ("intermediate_size", "max_position_embeddings", "layer_norm_eps")},
        attn_implementation="sdpa" if dynamo else "eager",
    )
    bert = BertModel(configuration).eval()
    bert.load_state_dict(load_file(encoder["model.safetensors"]), strict=False)

    class Sentence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            found = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
            share = attention_mask.unsqueeze(-1).float()
            mean = (found * share).sum(1) / share.sum(1).clamp(min=1e-9)
            return found, torch.nn.functional.normalize(mean, p=2, dim=1)

    given = tuple(torch.ones((2, 9), dtype=torch.int64) * number for number in (7, 1, 0))  # one tensor each
    names, outputs = ["input_ids", "attention_mask", "token_type_ids"], ["last_hidden_state", "sentence_embedding"]
    path = folder / f"minilm-{'dynamo' if dynamo else 'torchscript'}.onnx"
    if dynamo:
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
        program = torch.onnx.export(
            Sentence().eval(),
            given,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(names, axes),
            input_names=names,
            output_names=outputs,
            opset_version=18,
        )
        path.write_bytes(program.model_proto.SerializeToString())
    else:
        kinds = {name: {0: "batch", 1: "sequence"} for name in [*names, outputs[0]]}
        torch.onnx.export(
            Sentence().eval(),
            given,
            str(path),
            dynamo=False,
            dynamic_axes=kinds | {outputs[1]: {0: "batch"}},
            input_names=names,
            output_names=outputs,
            opset_version=14,
        )
    return path


def compare(real: Real, folder: Path) -> list[dict[str, Any]]:
    """One row per form, and those of the two converters."""
    right, source = run(real.path, real.feeds), census(real.path)
    makers: dict[str, Callable[[Path], None]] = {
        name: lambda path, form=form: step("rebuild", real.path, path, {"architecture": real.architecture, **form})  # type: ignore[misc]
        for name, form in real.forms.items()
    }
    makers["float16"] = lambda path: step("float16", real.path, path, {})
    makers["onnxconverter-common"] = lambda path: step("float16_common", real.path, path, {})
    rows = []
    for name, make in makers.items():
        path = folder / "result.onnx"
        row: dict[str, Any] = {"model": real.name, "form": name, "samples": len(next(iter(real.feeds.values())))}
        row["source"] = source
        try:
            make(path)
            row |= census(path) | {"cpu": differences(right, run(path, real.feeds))}
            row["time_ratio"] = time_ratio(real, path)
            if "fp32" not in name:
                row["emulated"] = {each: emulated(real, path, each, right, folder) for each in RUNTIMES}
        except Exception as error:
            row["failed"] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        rows.append(row)
        show(row)
    return rows


def step(name: str, source: Path, output: Path, parameters: dict[str, Any]) -> None:
    """Runs one of the bot's steps and checks its result."""
    from bot.graph import tasks

    arguments: dict[str, Any] = {"step": name, "source": str(source), "output": str(output), "parameters": parameters}
    arguments |= {"scratch": str(output.parent), "feeds": None, "code": None}
    tasks.step(arguments, lambda done, total, what: None)
    checked = tasks.check({"model": str(output)}, lambda done, total, what: None)
    assert isinstance(checked, dict)
    if not checked["ok"]:
        raise ValueError(f"refused by the checker: {checked['reason']}")


def census(path: Path) -> dict[str, Any]:
    """Nodes, casts and bytes."""
    from bot.graph.inspection import census_of
    from bot.graph.model_file import read_model

    found = census_of(read_model(path).proto)
    return {"nodes": found.nodes, "casts": found.casts, "bytes": path.stat().st_size}


def session(path: Path) -> Any:
    """A session on the CPU provider."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def run(path: Path, feeds: Feeds) -> dict[str, np.ndarray]:
    """All outputs of floating point, by name; samples four at a time."""
    opened = session(path)
    names = [each.name for each in opened.get_outputs()]
    count = len(next(iter(feeds.values())))
    pieces = [
        opened.run(names, {name: array[start : start + 4] for name, array in feeds.items()})
        for start in range(0, count, 4)
    ]
    whole = {name: np.concatenate([piece[place] for piece in pieces]) for place, name in enumerate(names)}
    return {name: array for name, array in whole.items() if array.dtype.kind == "f"}


def differences(right: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Per output: largest and mean difference, the largest magnitude, and the least cosine of a sample's numbers."""
    result = {}
    for name, array in right.items():
        one = array.reshape(len(array), -1).astype(np.float64)
        other = found[name].reshape(len(array), -1).astype(np.float64)
        cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        result[name] = {
            "max_abs": float(np.abs(one - other).max()),
            "mean_abs": float(np.abs(one - other).mean()),
            "largest": float(np.abs(one).max()),
            "least_cosine": float(cosines.min()),
        }
    return result


def time_ratio(real: Real, path: Path, pairs: int = 15) -> float:
    """Median of the rebuilt model's time for one sample, in the source's."""
    one = {name: array[:1] for name, array in real.feeds.items()}
    opened = [session(real.path), session(path)]
    ratios = []
    for turn in range(pairs + 2):
        seconds = []
        for each in opened:
            started = time.perf_counter()
            each.run(None, one)
            seconds.append(time.perf_counter() - started)
        if turn >= 2:
            ratios.append(seconds[1] / seconds[0])
    return round(statistics.median(ratios), 3)


def emulated(real: Real, path: Path, runtime: str, right: dict[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """The verdict in emulated half precision, and the differences there."""
    from bot.measure.fp16_tasks import emulated_run

    feeds = {}
    for name, array in real.feeds.items():
        feeds[name] = str(folder / f"{name}.npy")
        np.save(feeds[name], array)
    arguments: dict[str, Any] = {"model": str(path), "feeds": feeds, "batch": 4, "threads": 1, "runtime": runtime}
    answer = emulated_run(
        {**arguments, "out": str(folder / "emulated"), "scratch": str(folder / "scratch")}, lambda *_: None
    )
    assert isinstance(answer, dict)
    verdict: dict[str, Any] = {"ok": answer["ok"], "reason": answer["reason"]}
    outputs: Any = answer["outputs"]
    if outputs:
        found = {name: np.load(outputs[name]["file"]) for name in right}
        verdict["differences"] = differences(right, found)
    return verdict


def show(row: dict[str, Any]) -> None:
    """Prints a row."""
    if "failed" in row:
        print(f"{row['model']:40} {row['form']:25} {row['failed']}", flush=True)
        return
    worst = [max(each["max_abs"] / each["largest"] for each in row["cpu"].values())]
    worst += [
        max(
            (each["max_abs"] / each["largest"] for each in verdict.get("differences", {}).values()),
            default=float("nan"),
        )
        for verdict in row.get("emulated", {}).values()
    ]
    numbers = "  ".join(f"{each:.1e}" for each in worst)
    verdicts = "/".join("ok" if each["ok"] else "NOT OK" for each in row.get("emulated", {}).values())
    sizes = f"{row['nodes']:5} nodes {row['casts']:4} casts {row['bytes'] / 1e6:6.1f} MB  time x{row['time_ratio']:.2f}"
    print(f"{row['model']:40} {row['form']:25} {sizes}  of the largest: {numbers} {verdicts}", flush=True)


if __name__ == "__main__":
    main()
