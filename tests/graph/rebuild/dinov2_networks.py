"""Small DINOv2 networks with random weights, made by transformers, with heads that people put on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dinov3_networks import quiet


@dataclass(frozen=True)
class Shape:
    """Dimensions of a network; `options` go to its configuration."""

    layers: int = 2
    width: int = 32
    heads: int = 4
    registers: int = 0
    image: int = 56
    trained_image: int = 84
    options: tuple[tuple[str, Any], ...] = ()


USUAL = Shape()
PATCH = 14


def build(shape: Shape, seed: int = 0, head: str = "tokens", attention: str = "eager") -> Any:
    """A network whose residual stream, layer scales, positions and biases are of ordinary size; in torch.

    Its positions are those of larger pictures, and interpolated, as in most uses of DINOv2.

    Args:
        shape: Its dimensions.
        seed: Of the weights.
        head: `tokens`, its own outputs; `classes`, what transformers classifies by; `saliency`, pictures out of a
            decoder, in front of which pictures are normalised; `dense`, the residual stream after every block.
        attention: How transformers computes it.
    """
    import torch
    from transformers import Dinov2Config, Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    torch.manual_seed(seed)
    common = dict(
        hidden_size=shape.width,
        mlp_ratio=3,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        image_size=shape.trained_image,
        patch_size=PATCH,
        attn_implementation=attention,
        **dict(shape.options),
    )
    if shape.registers:
        configuration = Dinov2WithRegistersConfig(num_register_tokens=shape.registers, **common)
        backbone = Dinov2WithRegistersModel(configuration)
    else:
        backbone = Dinov2Model(Dinov2Config(**common))

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone
            self.classes = torch.nn.Linear(2 * shape.width, 5)
            self.up = torch.nn.ConvTranspose2d(shape.width, 3, 2, stride=2)
            self.last = torch.nn.Conv2d(3, 1, 2, stride=2)

        def forward(self, picture: Any) -> Any:
            if head == "saliency":
                picture = (picture - 0.45) / 0.22
            found = self.backbone(picture, output_hidden_states=head == "dense")
            tokens = found.last_hidden_state
            patches = tokens[:, 1 + shape.registers :]
            if head == "dense":
                return tuple(found.hidden_states)
            if head == "tokens":
                return tokens, found.pooler_output
            if head == "class":
                return found.pooler_output * 2
            if head == "classes":
                return self.classes(torch.cat([tokens[:, 0], patches.mean(dim=1)], dim=1))
            side = shape.image // PATCH
            grid = patches.transpose(1, 2).reshape(tokens.shape[0], shape.width, side, side)
            large = torch.nn.functional.interpolate(self.up(grid), scale_factor=2.0, mode="bilinear")
            return torch.sigmoid(self.last(large))

    network = Network().eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            gains = name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "lambda1"))
            embedded = "token" in name or "position" in name
            spread = 0.2 if gains or name.endswith("bias") else 0.7 if embedded else parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape) * spread + (1.0 if gains else 0.0))
    return network


def export(
    shape: Shape,
    path: Path,
    *,
    attention: str = "eager",
    dynamo: bool = True,
    opset: int = 18,
    head: str = "tokens",
    seed: int = 0,
) -> Path:
    """Writes a network as ONNX, with a free batch."""
    import torch

    network = build(shape, seed, head, attention)
    example = torch.zeros(2, 3, shape.image, shape.image)
    count = {"tokens": 2, "dense": shape.layers + 1}.get(head, 1)
    outputs = [f"out{number}" for number in range(count)]
    common: dict[str, Any] = {"opset_version": opset, "input_names": ["picture"], "output_names": outputs}
    with quiet():
        if dynamo:
            shapes = {"picture": {0: torch.export.Dim("batch")}}
            program = torch.onnx.export(network, (example,), dynamo=True, dynamic_shapes=shapes, **common)
            path.write_bytes(program.model_proto.SerializeToString())
        else:
            axes = {name: {0: "batch"} for name in ("picture", *outputs)}
            torch.onnx.export(network, (example,), str(path), dynamo=False, dynamic_axes=axes, **common)
    return path
