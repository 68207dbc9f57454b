"""Make a detector of the YOLO11 architecture with random weights: for machinery that is to be tried without the real.

The graph is what Ultralytics' export of a YOLO11 looks like after its batch normalisations were folded: convolutions
with SiLU, C3k2, SPPF and C2PSA blocks, a neck that goes up and down again, and a head that decodes the distribution
over the box sides itself. Input `images` (1, 3, size, size), output `output0` (1, 4 + classes, anchors).

The weights come from a seed. The last layers are scaled so that about one anchor in a thousand scores 0.25 or more on a
drawn picture: a detector that finds nothing, or everything, would test nothing. The file says that its weights are
random, in its metadata. Needs numpy, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]

STRIDES = (8, 16, 32)
BINS = 16
"""Steps of the distribution over the distance to each side."""

SCORE, SHARE = 0.25, 1e-3
"""So many of the anchors score so much."""

SPREAD, PEAKED = 1.0, 1.5
"""Standard deviations of the logits of classes and of box sides."""


@dataclass(frozen=True)
class Size:
    """How large a network is.

    Attributes:
        width: Channels, as a share of the largest model's.
        repeats: Blocks within a C3k2 or C2PSA.
        hidden: Least channels within the head, of boxes and of classes.
        classes: How many there are.
        pixels: Height and width of the input.
    """

    width: float
    repeats: int
    hidden: tuple[int, int]
    classes: int
    pixels: int

    def channels(self, count: int) -> int:
        """Channels of a layer, in eights where there are that many."""
        scaled = count * self.width
        return int(np.ceil(scaled / 8) * 8) if scaled >= 8 else max(int(scaled), 2)


SIZES = {
    "n": Size(0.25, 1, (64, 80), 80, 640),
    "mini": Size(0.0625, 1, (16, 16), 80, 640),
    "tiny": Size(0.0625, 1, (16, 8), 4, 128),
}
"""`n` is YOLO11n; `mini` and `tiny` are for tests."""


@dataclass
class Graph:
    """A graph that grows node by node."""

    generator: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, inputs: list[str], outputs: int = 1, *, name: str, **attributes: Any) -> list[str]:
        """Adds a node and returns its outputs."""
        made = [f"{name}/{op}_output_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=f"{name}/{op}", **attributes))
        return made

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Adds an initializer."""
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(
        self, x: str, into: int, out: int, kernel: int, stride: int = 1, *, name: str, groups: int = 1, act: bool = True
    ) -> str:
        """A convolution and, unless it is the last, SiLU."""
        fan = into // groups * kernel * kernel
        weight = self.generator.normal(0, 1.6 / np.sqrt(fan), (out, into // groups, kernel, kernel))
        bias = self.generator.normal(0, 0.1, out)
        names = [
            self.constant(f"{name}.weight", weight.astype(np.float32)),
            self.constant(f"{name}.bias", bias.astype(np.float32)),
        ]
        (y,) = self.node(
            "Conv",
            [x, *names],
            name=name,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=groups,
        )
        if not act:
            return y
        (gate,) = self.node("Sigmoid", [y], name=f"{name}/act")
        return self.node("Mul", [y, gate], name=f"{name}/act")[0]

    def concat(self, xs: list[str], *, name: str, axis: int = 1) -> str:
        """Puts tensors side by side."""
        return self.node("Concat", xs, name=name, axis=axis)[0]

    def halves(self, x: str, channels: int, *, name: str) -> list[str]:
        """Splits the channels in two."""
        sizes = self.constant(f"{name}.sizes", np.array([channels, channels], np.int64))
        return self.node("Split", [x, sizes], 2, name=name, axis=1)

    def bottleneck(self, x: str, channels: int, hidden: int, *, name: str) -> str:
        """Two convolutions, and the input added."""
        y = self.conv(x, channels, hidden, 3, name=f"{name}/cv1")
        y = self.conv(y, hidden, channels, 3, name=f"{name}/cv2")
        return self.node("Add", [x, y], name=name)[0]

    def c3k(self, x: str, channels: int, *, name: str) -> str:
        """A CSP block of two bottlenecks."""
        hidden = max(channels // 2, 1)
        y = self.conv(x, channels, hidden, 1, name=f"{name}/cv1")
        for index in range(2):
            y = self.bottleneck(y, hidden, hidden, name=f"{name}/m.{index}")
        z = self.conv(x, channels, hidden, 1, name=f"{name}/cv2")
        both = self.concat([y, z], name=f"{name}")
        return self.conv(both, 2 * hidden, channels, 1, name=f"{name}/cv3")

    def c3k2(self, x: str, into: int, out: int, repeats: int, nested: bool, share: float, *, name: str) -> str:
        """Half of the channels go through blocks, and all stages are put together."""
        hidden = max(int(out * share), 1)
        y = self.conv(x, into, 2 * hidden, 1, name=f"{name}/cv1")
        stages = self.halves(y, hidden, name=f"{name}")
        for index in range(repeats):
            block = f"{name}/m.{index}"
            inner = max(hidden // 2, 1)
            last = stages[-1]
            made = self.c3k(last, hidden, name=block) if nested else self.bottleneck(last, hidden, inner, name=block)
            stages.append(made)
        return self.conv(self.concat(stages, name=name), (2 + repeats) * hidden, out, 1, name=f"{name}/cv2")

    def sppf(self, x: str, channels: int, *, name: str) -> str:
        """Pooled once, twice and three times, side by side."""
        hidden = max(channels // 2, 1)
        stages = [self.conv(x, channels, hidden, 1, name=f"{name}/cv1")]
        for index in range(3):
            pool: dict[str, Any] = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
            stages += self.node("MaxPool", [stages[-1]], name=f"{name}/m.{index}", **pool)
        return self.conv(self.concat(stages, name=name), 4 * hidden, channels, 1, name=f"{name}/cv2")

    def attention(self, x: str, channels: int, places: int, *, name: str) -> str:
        """Self-attention over all places, with one head."""
        qkv = self.conv(x, channels, 3 * channels, 1, name=f"{name}/qkv", act=False)
        flat = self.constant(f"{name}.flat", np.array([1, 3 * channels, places], np.int64))
        (rows,) = self.node("Reshape", [qkv, flat], name=f"{name}/rows")
        sizes = self.constant(f"{name}.sizes", np.array([channels] * 3, np.int64))
        q, k, v = self.node("Split", [rows, sizes], 3, name=name, axis=1)
        (turned,) = self.node("Transpose", [q], name=f"{name}/q", perm=[0, 2, 1])
        (scores,) = self.node("MatMul", [turned, k], name=f"{name}/scores")
        scale = self.constant(f"{name}.scale", np.array(1 / np.sqrt(channels), np.float32))
        (scaled,) = self.node("Mul", [scores, scale], name=f"{name}/scale")
        (weights,) = self.node("Softmax", [scaled], name=name, axis=-1)
        (back,) = self.node("Transpose", [weights], name=f"{name}/weights", perm=[0, 2, 1])
        (mixed,) = self.node("MatMul", [v, back], name=f"{name}/mix")
        side = int(np.sqrt(places))
        shape = self.constant(f"{name}.shape", np.array([1, channels, side, side], np.int64))
        (y,) = self.node("Reshape", [mixed, shape], name=f"{name}/image")
        return self.conv(y, channels, channels, 1, name=f"{name}/proj", act=False)

    def c2psa(self, x: str, channels: int, places: int, *, name: str) -> str:
        """Half of the channels attend to each other."""
        hidden = max(channels // 2, 1)
        y = self.conv(x, channels, 2 * hidden, 1, name=f"{name}/cv1")
        first, second = self.halves(y, hidden, name=name)
        (second,) = self.node(
            "Add", [second, self.attention(second, hidden, places, name=f"{name}/attn")], name=f"{name}/attn.add"
        )
        wide = self.conv(second, hidden, 2 * hidden, 1, name=f"{name}/ffn.0")
        narrow = self.conv(wide, 2 * hidden, hidden, 1, name=f"{name}/ffn.1", act=False)
        (second,) = self.node("Add", [second, narrow], name=f"{name}/ffn.add")
        return self.conv(self.concat([first, second], name=name), 2 * hidden, channels, 1, name=f"{name}/cv2")

    def upsample(self, x: str, *, name: str) -> str:
        """Twice as high and wide, each value repeated."""
        scales = self.constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
        attributes: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self.node("Resize", [x, "", scales], name=name, **attributes)[0]


def features(graph: Graph, size: Size) -> list[tuple[str, int]]:
    """Backbone and neck: the maps of strides 8, 16 and 32 with their channels."""
    c = size.channels
    n = size.repeats
    x = graph.conv("images", 3, c(64), 3, 2, name="/model.0")
    x = graph.conv(x, c(64), c(128), 3, 2, name="/model.1")
    x = graph.c3k2(x, c(128), c(256), n, False, 0.25, name="/model.2")
    x = graph.conv(x, c(256), c(256), 3, 2, name="/model.3")
    p3 = graph.c3k2(x, c(256), c(512), n, False, 0.25, name="/model.4")
    x = graph.conv(p3, c(512), c(512), 3, 2, name="/model.5")
    p4 = graph.c3k2(x, c(512), c(512), n, True, 0.5, name="/model.6")
    x = graph.conv(p4, c(512), c(1024), 3, 2, name="/model.7")
    x = graph.c3k2(x, c(1024), c(1024), n, True, 0.5, name="/model.8")
    x = graph.sppf(x, c(1024), name="/model.9")
    p5 = graph.c2psa(x, c(1024), (size.pixels // 32) ** 2, name="/model.10")
    x = graph.concat([graph.upsample(p5, name="/model.11"), p4], name="/model.12")
    n4 = graph.c3k2(x, c(1024) + c(512), c(512), n, False, 0.5, name="/model.13")
    x = graph.concat([graph.upsample(n4, name="/model.14"), p3], name="/model.15")
    o3 = graph.c3k2(x, c(512) + c(512), c(256), n, False, 0.5, name="/model.16")
    x = graph.concat([graph.conv(o3, c(256), c(256), 3, 2, name="/model.17"), n4], name="/model.18")
    o4 = graph.c3k2(x, c(256) + c(512), c(512), n, False, 0.5, name="/model.19")
    x = graph.concat([graph.conv(o4, c(512), c(512), 3, 2, name="/model.20"), p5], name="/model.21")
    o5 = graph.c3k2(x, c(512) + c(1024), c(1024), n, True, 0.5, name="/model.22")
    return [(o3, c(256)), (o4, c(512)), (o5, c(1024))]


def head(graph: Graph, maps: list[tuple[str, int]], size: Size) -> None:
    """Boxes and classes of every cell, decoded to pixels and scores."""
    levels = []
    for level, (x, channels) in enumerate(maps):
        name = "/model.23"
        boxes, kinds = (
            max(least, channels // 4 if index == 0 else channels) for index, least in enumerate(size.hidden)
        )
        b = graph.conv(x, channels, boxes, 3, name=f"{name}/cv2.{level}.0")
        b = graph.conv(b, boxes, boxes, 3, name=f"{name}/cv2.{level}.1")
        b = graph.conv(b, boxes, 4 * BINS, 1, name=f"{name}/cv2.{level}.2", act=False)
        k = graph.conv(x, channels, channels, 3, name=f"{name}/cv3.{level}.0.0", groups=channels)
        k = graph.conv(k, channels, kinds, 1, name=f"{name}/cv3.{level}.0.1")
        k = graph.conv(k, kinds, kinds, 3, name=f"{name}/cv3.{level}.1.0", groups=kinds)
        k = graph.conv(k, kinds, kinds, 1, name=f"{name}/cv3.{level}.1.1")
        k = graph.conv(k, kinds, size.classes, 1, name=f"{name}/cv3.{level}.2", act=False)
        both = graph.concat([b, k], name=f"{name}/level.{level}")
        shape = graph.constant(f"{name}.shape.{level}", np.array([1, 4 * BINS + size.classes, -1], np.int64))
        levels += graph.node("Reshape", [both, shape], name=f"{name}/level.{level}")
    decode(graph, graph.concat(levels, name="/model.23", axis=2), size)


def decode(graph: Graph, rows: str, size: Size) -> None:
    """From logits to boxes in pixels and scores: the distances are means of their distributions."""
    name = "/model.23"
    sizes = graph.constant(f"{name}.sizes", np.array([4 * BINS, size.classes], np.int64))
    box, kinds = graph.node("Split", [rows, sizes], 2, name=name, axis=1)
    shape = graph.constant(f"{name}.dfl.shape", np.array([1, 4, BINS, -1], np.int64))
    (bins,) = graph.node("Reshape", [box, shape], name=f"{name}/dfl")
    (turned,) = graph.node("Transpose", [bins], name=f"{name}/dfl", perm=[0, 2, 1, 3])
    (shares,) = graph.node("Softmax", [turned], name=f"{name}/dfl", axis=1)
    steps = graph.constant(f"{name}.dfl.conv.weight", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    (means,) = graph.node("Conv", [shares, steps], name=f"{name}/dfl/conv", kernel_shape=[1, 1])
    flat = graph.constant(f"{name}.dfl.flat", np.array([1, 4, -1], np.int64))
    (sides,) = graph.node("Reshape", [means, flat], name=f"{name}/dfl/flat")
    two = graph.constant(f"{name}.two", np.array([2, 2], np.int64))
    near, far = graph.node("Split", [sides, two], 2, name=f"{name}/sides", axis=1)
    centres, strides = anchors(size)
    middle = graph.constant(f"{name}.anchors", centres)
    (low,) = graph.node("Sub", [middle, near], name=f"{name}/low")
    (high,) = graph.node("Add", [middle, far], name=f"{name}/high")
    (both,) = graph.node("Add", [low, high], name=f"{name}/both")
    half = graph.constant(f"{name}.half", np.array(2, np.float32))
    (centre,) = graph.node("Div", [both, half], name=f"{name}/centre")
    (extent,) = graph.node("Sub", [high, low], name=f"{name}/extent")
    cells = graph.concat([centre, extent], name=f"{name}/cells")
    (pixels,) = graph.node("Mul", [cells, graph.constant(f"{name}.strides", strides)], name=f"{name}/pixels")
    (scores,) = graph.node("Sigmoid", [kinds], name=f"{name}/scores")
    graph.nodes.append(helper.make_node("Concat", [pixels, scores], ["output0"], name=f"{name}/output", axis=1))


def anchors(size: Size) -> tuple[Floats, Floats]:
    """The centres of all cells in strides, (1, 2, anchors), and their strides, (1, anchors)."""
    centres, strides = [], []
    for stride in STRIDES:
        side = size.pixels // stride
        row, column = np.mgrid[0:side, 0:side]
        centres.append(np.stack([column.ravel() + 0.5, row.ravel() + 0.5]))
        strides.append(np.full(side * side, stride))
    return np.concatenate(centres, axis=1)[None].astype(np.float32), np.concatenate(strides)[None].astype(np.float32)


def make(size: Size, seed: int = 0) -> onnx.ModelProto:
    """The model, its weights in it."""
    graph = Graph(np.random.default_rng(seed))
    head(graph, features(graph, size), size)
    model = _model(graph, size)
    _settle(model, size, seed)
    return model


def _model(graph: Graph, size: Size) -> onnx.ModelProto:
    count = sum((size.pixels // stride) ** 2 for stride in STRIDES)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, size.pixels, size.pixels])
    output = helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 4 + size.classes, count])
    body = helper.make_graph(graph.nodes, "yolo11", [images], [output], graph.weights)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"random_weights": "true", "task": "detect", "stride": "32"})
    return model


def _settle(model: onnx.ModelProto, size: Size, seed: int) -> None:
    """Scales every level's last layers by what they answer to a drawn picture."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = [f"/model.23/cv{branch}.{level}.2" for branch in (2, 3) for level in range(len(STRIDES))]
    del shown.graph.output[:]
    for name in names:
        shown.graph.output.append(helper.make_tensor_value_info(f"{name}/Conv_output_0", TensorProto.FLOAT, None))
    answers = dict(zip(names, _run(shown, drawn(size.pixels, seed)), strict=True))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    least = float(np.log(SCORE / (1 - SCORE)))
    for name, logits in answers.items():
        deviation = float(logits.std())
        wanted = PEAKED if "cv2" in name else SPREAD
        scale = np.float32(np.round(wanted / deviation, 3))
        # Rounded, so that another processor's last bits make no other file.
        best = np.quantile(logits.max(axis=1) if "cv3" in name else logits, 1 - SHARE) * scale
        shift = np.float32(np.round(least - best, 2)) if "cv3" in name else np.float32(0)
        weight, bias = (numpy_helper.to_array(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        weights[f"{name}.weight"].CopyFrom(numpy_helper.from_array(weight * scale, f"{name}.weight"))
        weights[f"{name}.bias"].CopyFrom(numpy_helper.from_array(bias * scale + shift, f"{name}.bias"))


def _run(model: onnx.ModelProto, images: Floats) -> list[Floats]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"images": images}))


def drawn(pixels: int, seed: int) -> Floats:
    """A picture of soft spots between grey bars, as a network is fed it: (1, 3, pixels, pixels), 0 to 1."""
    generator = np.random.default_rng(seed)
    row, column = np.mgrid[0:pixels, 0:pixels] / pixels
    picture = np.full((3, pixels, pixels), 0.3)
    for _ in range(40):
        x, y = generator.random(), generator.random()
        radius = 0.01 + 0.15 * generator.random()
        spot = np.exp(-(((column - x) ** 2 + (row - y) ** 2) / radius**2))
        picture += generator.uniform(-0.8, 0.8, (3, 1, 1)) * spot
    picture += generator.normal(0, 0.03, picture.shape)
    bars = pixels // 8
    picture[:, :bars] = picture[:, -bars:] = 114 / 255
    found: Floats = np.clip(picture, 0, 1)[None].astype(np.float32)
    return found


def write(path: Path, size: str, seed: int = 0) -> None:
    """Writes a model of one of the sizes."""
    path.write_bytes(make(SIZES[size], seed).SerializeToString(deterministic=True))


def main(arguments: list[str] | None = None) -> int:
    """Write a model and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="n", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args(arguments)
    write(options.out, options.size, options.seed)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, random weights")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
