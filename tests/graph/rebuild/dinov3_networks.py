"""Small DINOv3 networks with random weights, made by transformers, and the many ways to write one."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Shape:
    """Dimensions of a network; `options` go to its configuration."""

    layers: int = 2
    width: int = 32
    heads: int = 4
    registers: int = 2
    image: int = 64
    options: tuple[tuple[str, Any], ...] = ()


USUAL = Shape()


def build(shape: Shape, seed: int = 0, head: bool = True, attention: str = "eager") -> Any:
    """A network whose residual stream, layer scales and biases are of ordinary size; in torch."""
    import torch
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    torch.manual_seed(seed)
    configuration = DINOv3ViTConfig(
        hidden_size=shape.width,
        intermediate_size=3 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_register_tokens=shape.registers,
        image_size=shape.image,
        patch_size=16,
        attn_implementation=attention,
        **dict(shape.options),
    )

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = DINOv3ViTModel(configuration)
            self.norm = torch.nn.LayerNorm(shape.width)
            self.first, self.second = torch.nn.Linear(shape.width, 7), torch.nn.Linear(shape.width, 2)

        def forward(self, face: Any) -> Any:
            found = self.backbone(face)
            if not head:
                return found.last_hidden_state, found.pooler_output
            features = self.norm(found.pooler_output)
            return self.first(features), self.second(features)

    network = Network().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            gains = name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "lambda1"))
            spread = 0.2 if gains or name.endswith("bias") else 1.0 if "token" in name else parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape) * spread + (1.0 if gains else 0.0))
    return network


def export(
    shape: Shape,
    path: Path,
    *,
    attention: str = "eager",
    dynamo: bool = True,
    opset: int = 18,
    head: bool = True,
    seed: int = 0,
) -> Path:
    """Writes a network as ONNX, with a free batch."""
    import torch

    network = build(shape, seed, head, attention)
    example = torch.zeros(2, 3, shape.image, shape.image)
    outputs = ["first", "second"]
    common: dict[str, Any] = {"opset_version": opset, "input_names": ["face"], "output_names": outputs}
    with quiet():
        if dynamo:
            shapes = {"face": {0: torch.export.Dim("batch")}}
            program = torch.onnx.export(network, (example,), dynamo=True, dynamic_shapes=shapes, **common)
            path.write_bytes(program.model_proto.SerializeToString())
        else:
            axes = {name: {0: "batch"} for name in ("face", *outputs)}
            torch.onnx.export(network, (example,), str(path), dynamo=False, dynamic_axes=axes, **common)
    return path


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what exporters print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def strip_names(model: onnx.ModelProto) -> None:
    """Renames every value but inputs and outputs, and drops all other names and notes."""
    graph = model.graph
    kept = {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        if name not in names:
            names[name] = name if name in kept else f"t{len(names)}"
        return names[name]

    for each in _graphs(graph):
        for tensor in each.initializer:
            tensor.name = new(tensor.name)
        for node in each.node:
            node.ClearField("name")
            node.ClearField("doc_string")
            del node.metadata_props[:]
            for names_of in (node.input, node.output):
                renamed = [new(name) for name in names_of]
                del names_of[:]
                names_of.extend(renamed)
        if each is not graph:
            for value in each.output:
                value.name = new(value.name)
        del each.value_info[:]
        each.name = "g"
    del model.metadata_props[:]


def permute(model: onnx.ModelProto, seed: int = 0) -> None:
    """Puts the nodes into another order that is topological too, and the initializers into any."""
    graph, rng = model.graph, random.Random(seed)
    made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer} | {""}
    waiting, ordered = list(graph.node), []
    while waiting:
        ready = [node for node in waiting if made.issuperset(_reads(node))]
        node = rng.choice(ready)
        waiting.remove(node)
        ordered.append(node)
        made.update(node.output)
    tensors = list(graph.initializer)
    rng.shuffle(tensors)
    for field, items in ((graph.node, ordered), (graph.initializer, tensors)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del field[:]
        field.extend(copies)


def _reads(node: onnx.NodeProto) -> set[str]:
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = {name for each in attribute.g.node for name in _reads(each)}
            own = {name for each in attribute.g.node for name in each.output}
            own |= {tensor.name for tensor in attribute.g.initializer}
            found |= (inner | {value.name for value in attribute.g.output}) - own
    return found


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def unfold_constants(model: onnx.ModelProto) -> None:
    """Makes Constant nodes of half the weights, and stores every MatMul's matrix the other way round."""
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    before: list[onnx.NodeProto] = []
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name in tensors and len(tensors[name].dims) == 2 and not name.endswith("/turned"):
            turned = numpy_helper.from_array(numpy_helper.to_array(tensors[name]).T.copy(), f"{name}/turned")
            if turned.name not in tensors:
                tensors[turned.name] = turned
                graph.initializer.append(turned)
                before.append(helper.make_node("Transpose", [turned.name], [f"{name}/back"]))
            node.input[1] = f"{name}/back"
    chosen = [tensor for place, tensor in enumerate(graph.initializer) if place % 2]
    kept = [tensor for place, tensor in enumerate(graph.initializer) if not place % 2]
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in chosen]
    nodes = [*constants, *before, *graph.node]
    tensors_kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(copies)
    graph.initializer.extend(tensors_kept)


def decompose_norms(model: onnx.ModelProto, reciprocal: bool = False) -> None:
    """Writes every LayerNormalization as means, a root and a division, as exporters before opset 17 did."""
    graph = model.graph
    version = next(entry.version for entry in model.opset_import if entry.domain == "")
    graph.initializer.append(numpy_helper.from_array(np.array(2.0, np.float32), "two"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "last"))
    nodes = []
    for place, node in enumerate(graph.node):
        if node.op_type != "LayerNormalization":
            nodes.append(node)
            continue
        epsilon = next(each.f for each in node.attribute if each.name == "epsilon")
        graph.initializer.append(numpy_helper.from_array(np.array(epsilon, np.float32), f"epsilon{place}"))
        x, gain, bias = node.input

        def make(op: str, inputs: list[str], result: str, place: int = place, **attributes: Any) -> str:
            name = result if result in node.output else f"norm{place}/{result}"  # noqa: B023
            nodes.append(helper.make_node(op, inputs, [name], **attributes))
            return name

        def mean(value: str, result: str, make: Callable[..., str] = make) -> str:
            if version >= 18:
                return make("ReduceMean", [value, "last"], result, keepdims=1)
            return make("ReduceMean", [value], result, axes=[-1], keepdims=1)

        deviation = make("Sub", [x, mean(x, "mean")], "deviation")
        square = (
            make("Mul", [deviation, deviation], "square") if place % 2 else make("Pow", [deviation, "two"], "square")
        )
        root = make("Sqrt", [make("Add", [f"epsilon{place}", mean(square, "variance")], "sum")], "root")
        if reciprocal:
            normed = make("Mul", [make("Reciprocal", [root], "inverse"), deviation], "normed")
        else:
            normed = make("Div", [deviation, root], "normed")
        make("Add", [make("Mul", [normed, gain], "gained"), bias], node.output[0])
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def optimise(source: Path, target: Path, level: str = "ORT_ENABLE_BASIC") -> Path:
    """Lets ONNX Runtime fold constants and write the graph as it would run it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return target


def slim(model: onnx.ModelProto) -> onnx.ModelProto:
    """Lets onnxslim fold constants, drop what is not needed and fuse what it knows."""
    import onnxslim

    with quiet():
        slimmed = onnxslim.slim(model)
    assert isinstance(slimmed, onnx.ModelProto)
    return slimmed


def run(path: Path, pictures: np.ndarray) -> list[np.ndarray]:
    """What a model answers, on ONNX Runtime's CPU provider."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: pictures}))
