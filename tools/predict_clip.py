"""Predict from a clip with exported graphs on ONNX Runtime alone, as their sidecars say.

    python tools/predict_clip.py REGRESSOR.onnx --feature wavlm wavlm-base-plus.onnx clip.wav \\
        --feature dinov2 dinov2-base.onnx frames/ --feature xlm_roberta paraphrase-multilingual-mpnet.onnx said.txt

Each extractor makes a series of features of its material, a sound (.wav), a folder of pictures or a text (.txt), and
the regressor reads the series. All that is known of a graph stands in the sidecar NAME.onnx.json beside it: what its
inputs and outputs are called, how they are filled, which mask belongs to which, and in which order the regressor wants
its features. A feature that is not given is hidden as a whole, where the regressor answers that rightly.

It takes numpy and onnxruntime, Pillow for pictures and tokenizers for texts, and neither torch nor this project: it may
be copied as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import wave
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = Any
"""A numpy array."""

AT_ONCE = 8
"""So many pictures go through a graph together."""


class UnsuitableError(Exception):
    """A graph, its sidecar and what they are given do not go together."""


@dataclass(frozen=True)
class Graph:
    """A graph and what its sidecar says of it."""

    path: Path
    sidecar: dict[str, Any]
    session: Any

    @property
    def ports(self) -> list[dict[str, Any]]:
        """The inputs that carry features, in order: all but masks."""
        masks = {mask["input"] for mask in self.sidecar["masks"]}
        return [port for port in self.sidecar["inputs"] if port["name"] not in masks]

    @property
    def masks(self) -> dict[str, dict[str, Any]]:
        """What masks each input."""
        return {mask["of"]: mask for mask in self.sidecar["masks"]}

    def dtype(self, name: str) -> Any:
        """Of an input."""
        return np.dtype(next(port["dtype"] for port in self.sidecar["inputs"] if port["name"] == name))

    def run(self, feeds: Mapping[str, Array]) -> Array:
        """The first output for one array per input, of sizes that the sidecar allows."""
        axes = {axis["name"]: axis for axis in self.sidecar["axes"]}
        for port in self.sidecar["inputs"]:
            for size, axis in zip(feeds[port["name"]].shape, port["shape"], strict=True):
                rule = axes.get(axis, {"minimum": axis, "maximum": axis, "multiple_of": 1})
                most = rule["maximum"]
                if size < rule["minimum"] or (most is not None and size > most) or size % rule["multiple_of"]:
                    raise UnsuitableError(f"{self.path.name}: {port['name']} may not have the size {size} for {axis}")
        (first, *_) = self.session.run([self.sidecar["outputs"][0]["name"]], dict(feeds))
        return first


def open_graph(path: Path) -> Graph:
    """Opens a graph that is the one which the sidecar beside it describes."""
    beside = Path(f"{path}.json")
    if not path.is_file() or not beside.is_file():
        raise UnsuitableError(f"{path} and {beside.name} should lie beside each other")
    sidecar = json.loads(beside.read_text("utf-8"))
    if sidecar.get("schema_version") != 1:
        raise UnsuitableError(f"{beside} is of a form that is not read here")
    if _sha256(path) != sidecar["sha256"]:
        raise UnsuitableError(f"{beside} is not of this {path.name}")
    return Graph(path, sidecar, onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- from material to a series of features


def series_of(graph: Graph, material: Path) -> Array:
    """What an extractor makes of a sound, a folder of pictures or a text: float32 [steps, width]."""
    (port, *more) = graph.ports
    ways = graph.sidecar["preprocessings"].get(port["name"], {})
    kind = next((kind for kind in READERS if ways.get(kind)), None)
    if more or kind is None:
        raise UnsuitableError(f"{graph.path.name} is no extractor of features of a sound, of pictures or of a text")
    rows = [graph.run(feeds) for feeds in READERS[kind](graph, port["name"], ways[kind], material)]
    width = graph.sidecar["output_dims"][0]
    return np.concatenate([row.reshape(-1, width) for row in rows])


def sound(graph: Graph, name: str, spec: Mapping[str, Any], path: Path) -> Iterator[dict[str, Array]]:
    """The waveform of a WAV file, whole, or as long as the graph takes it."""
    (rate,) = graph.sidecar["sample_rates"]
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2 or file.getframerate() != rate:
            raise UnsuitableError(f"{path} should be 16-bit PCM at {rate} Hz: ffmpeg -i CLIP -ar {rate} {path.name}")
        values = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels()) / 32768
    values = values[:, 0] if spec["channels"] == "first" else values.mean(axis=1)
    if spec["normalize"] == "zero-mean-unit-variance":
        values = (values - values.mean()) / np.sqrt(values.var() + 1e-7)
    length = graph.ports[0]["shape"][1]
    if isinstance(length, int):
        values = np.pad(values[:length], (0, max(length - len(values), 0)))
    yield {name: values[None].astype(np.float32)}


def pictures(graph: Graph, name: str, spec: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Array]]:
    """The pictures of a folder in the order of their names, several at once."""
    from PIL import Image, ImageOps

    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    if not paths:
        raise UnsuitableError(f"{folder} holds no pictures")
    for first in range(0, len(paths), AT_ONCE):
        rows = []
        for path in paths[first : first + AT_ONCE]:
            with Image.open(path) as picture:
                rows.append(_pixels(ImageOps.exif_transpose(picture).convert("RGB"), spec))
        yield {name: np.stack(rows)}


def _pixels(picture: Any, spec: Mapping[str, Any]) -> Array:
    """One picture as the graph wants it."""
    from PIL import Image

    height, width = spec["size"]
    resample = Image.Resampling["BOX" if spec["resample"] == "area" else spec["resample"].upper()]
    size, corner = (width, height), (0, 0)
    if spec["fit"] == "letterbox":
        ratio = min(width / picture.width, height / picture.height)
        size = (max(round(picture.width * ratio), 1), max(round(picture.height * ratio), 1))
        corner = ((width - size[0]) // 2, (height - size[1]) // 2) if spec["place"] == "center" else corner
    canvas = Image.new("RGB", (width, height), (spec["pad_value"],) * 3)
    canvas.paste(picture.resize(size, resample), corner)
    pixels = np.asarray(canvas, np.float32)
    pixels = pixels[:, :, ::-1] if spec["color"] == "BGR" else pixels
    mean, std = np.array(spec["mean"], np.float32), np.array(spec["std"], np.float32)
    values = (pixels * np.float32(spec["scale"]) - mean) / std
    return values.transpose(2, 0, 1)


def text(graph: Graph, name: str, spec: Mapping[str, Any], path: Path) -> Iterator[dict[str, Array]]:
    """The tokens of a text, unpadded, with the tokenizer that the sidecar names."""
    from tokenizers import Tokenizer

    known = next(each for each in graph.sidecar["tokenizers"] if each["key"] == spec["tokenizer"])
    places = [graph.path.parent / "source" / known["file"], graph.path.parent / known["file"]]
    place = next((each for each in places if each.is_file() and _sha256(each) == known["sha256"]), None)
    if place is None:
        raise UnsuitableError(f"{known['file']} of {known['repo']} at {known['commit']} should lie at {places[0]}")
    tokenizer = Tokenizer.from_file(str(place))
    tokenizer.no_padding()
    tokenizer.enable_truncation(spec["max_length"])
    found = tokenizer.encode(path.read_text("utf-8").strip())
    given = {"ids": found.ids, "mask": found.attention_mask, "types": found.type_ids}
    ways = {port["name"]: graph.sidecar["preprocessings"][port["name"]]["text"] for port in graph.sidecar["inputs"]}
    yield {each: np.array([given[way["give"]]], graph.dtype(each)) for each, way in ways.items()}


READERS: dict[str, Callable[[Graph, str, Mapping[str, Any], Path], Iterator[dict[str, Array]]]] = {
    "audio": sound,
    "image": pictures,
    "text": text,
}


# ---- from series to predictions


def predict(regressor: Graph, series: Mapping[str, Array]) -> dict[str, float]:
    """What a regressor makes of series of features, by the names of what it predicts.

    Args:
        regressor: Its sidecar names the features in the order of its inputs.
        series: float32 [steps, width] by feature; those that are missing are hidden.
    """
    names = regressor.sidecar["feature_names"]
    if unknown := sorted(set(series) - set(names)):
        raise UnsuitableError(f"{regressor.path.name} reads {', '.join(names)}, and not {', '.join(unknown)}")
    feeds: dict[str, Array] = {}
    for feature, width, port in zip(names, regressor.sidecar["input_dims"], regressor.ports, strict=True):
        given, mask = series.get(feature), regressor.masks.get(port["name"])
        if given is None and (mask is None or mask["whole"] != "right"):
            raise UnsuitableError(f"{regressor.path.name} cannot do without {feature}")
        if given is not None and given.shape[1] != width:
            raise UnsuitableError(f"{feature} is {given.shape[1]} wide, and {regressor.path.name} reads {width}")
        row = np.zeros((1, width)) if given is None else given
        feeds[port["name"]] = row[None].astype(regressor.dtype(port["name"]))
        if mask is not None:
            keeps = mask["keeps"] if given is not None else 1 - mask["keeps"]
            feeds[mask["input"]] = np.full((1, len(row)), keeps, regressor.dtype(mask["input"]))
    (values,) = regressor.run(feeds)
    return dict(zip(regressor.sidecar["trait_names"], values.tolist(), strict=True))


def main(arguments: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regressor", type=Path, metavar="REGRESSOR.onnx")
    parser.add_argument("--feature", nargs=3, action="append", default=[], metavar=("NAME", "GRAPH.onnx", "MATERIAL"))
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document: predictions, and steps by feature"
    )
    options = parser.parse_args(arguments)
    try:
        series = {name: series_of(open_graph(Path(graph)), Path(path)) for name, graph, path in options.feature}
        predictions = predict(open_graph(options.regressor), series)
    except (UnsuitableError, OSError, wave.Error) as error:
        parser.exit(2, f"{error}\n")
    if options.json:
        print(json.dumps({"predictions": predictions, "steps": {name: len(rows) for name, rows in series.items()}}))
    else:
        print("\n".join(f"{name}  {value:.4f}" for name, value in predictions.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
