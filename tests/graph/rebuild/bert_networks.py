"""Small BERTs with random weights, made by transformers, with what stands around them in models that people publish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dinov3_networks import quiet


@dataclass(frozen=True)
class Shape:
    """Dimensions of a network; `options` go to its configuration.

    An XLM-RoBERTa has one type of tokens, and counts positions over what is no padding, from behind its number on.
    """

    layers: int = 2
    width: int = 32
    heads: int = 4
    words: int = 50
    positions: int = 40
    options: tuple[tuple[str, Any], ...] = ()
    xlm: bool = False


USUAL = Shape()
XLM = Shape(positions=42, options=(("type_vocab_size", 1), ("pad_token_id", 1)), xlm=True)
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def build(shape: Shape, seed: int = 0, attention: str = "eager", head: str = "pooler", inputs: int = 3) -> Any:
    """A network whose biases, gains and embeddings are of ordinary size; in torch.

    Args:
        shape: Its dimensions.
        seed: Of the weights.
        attention: How transformers computes it.
        head: `pooler`, BERT's own beside the last hidden values; `sentence`, the masked mean, of length one; `hidden`,
            all hidden values.
        inputs: How many of `INPUTS` it takes.
    """
    import torch
    from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

    torch.manual_seed(seed)
    configuration = (XLMRobertaConfig if shape.xlm else BertConfig)(
        vocab_size=shape.words,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=3 * shape.width,
        max_position_embeddings=shape.positions,
        attn_implementation=attention,
        **dict(shape.options),
    )

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = (XLMRobertaModel if shape.xlm else BertModel)(configuration)

        def forward(self, *given: Any) -> Any:
            found = self.bert(**dict(zip(INPUTS, given, strict=False)), output_hidden_states=head == "hidden")
            if head == "hidden":
                return tuple(found.hidden_states)
            if head == "pooler":
                return found.last_hidden_state, found.pooler_output
            share = given[1].unsqueeze(-1).expand(found.last_hidden_state.size()).float()
            mean = (found.last_hidden_state * share).sum(1) / share.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2, dim=1)

    network = Network().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            gain = name.endswith("LayerNorm.weight")
            spread = (
                0.2 if gain or name.endswith("bias") else 0.5 if "embedding" in name else parameter.shape[-1] ** -0.5
            )
            parameter.copy_(torch.randn(parameter.shape) * spread + (1.0 if gain else 0.0))
    return network


def export(
    shape: Shape,
    path: Path,
    *,
    attention: str = "eager",
    dynamo: bool = True,
    opset: int = 18,
    head: str = "pooler",
    inputs: int = 3,
    seed: int = 0,
    free: bool = True,
) -> Path:
    """Writes a network as ONNX, batch and length free, or fixed at 2 and 9."""
    import torch

    network = build(shape, seed, attention, head, inputs)
    ids = torch.randint(0, shape.words, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    example = (ids, mask, ids % 2, torch.arange(9).expand(2, 9).contiguous())[:inputs]
    names = list(INPUTS[:inputs])
    count = {"pooler": 2, "sentence": 1, "hidden": shape.layers + 1}[head]
    common: dict[str, Any] = {"opset_version": opset, "input_names": names}
    common["output_names"] = [f"out{number}" for number in range(count)]
    with quiet():
        if dynamo:
            axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
            dynamic = (tuple(axes for _ in names),) if free else None
            program = torch.onnx.export(network, example, dynamo=True, dynamic_shapes=dynamic, **common)
            path.write_bytes(program.model_proto.SerializeToString())
        else:
            kinds = {0: "batch", 1: "sequence"}
            dynamic_axes = dict.fromkeys(names, kinds) | {f"out{n}": {0: "batch"} for n in range(count)}
            torch.onnx.export(
                network, example, str(path), dynamo=False, dynamic_axes=dynamic_axes if free else None, **common
            )
    return path


def texts(batch: int = 3, length: int = 9, seed: int = 0) -> dict[str, np.ndarray]:
    """Random texts, the later ones padded at their end."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    for number in range(batch):
        mask[number, max(1, length - 2 * number) :] = 0
    ids, types = rng.integers(0, USUAL.words, (batch, length)), rng.integers(0, 2, (batch, length))
    places = rng.integers(0, USUAL.positions, (batch, length))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "position_ids": places}


def run(path: Path, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What a model answers, on ONNX Runtime's CPU provider."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    feeds = {each.name: given[each.name].astype(kinds[each.type]) for each in session.get_inputs()}
    return list(session.run(None, feeds))


def with_int32_inputs(model: onnx.ModelProto) -> None:
    """As mobile exports have them: ids and mask are int32, cast where they are read."""
    graph = model.graph
    for value in graph.input:
        value.type.tensor_type.elem_type = onnx.TensorProto.INT32
        for node in graph.node:
            for place, name in enumerate(node.input):
                if name == value.name:
                    node.input[place] = f"{name}/wide"
        graph.node.insert(0, onnx.helper.make_node("Cast", [value.name], [f"{value.name}/wide"], to=7))
