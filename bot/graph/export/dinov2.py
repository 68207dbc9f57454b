"""DINOv2 (Oquab et al., 2023) as transformers builds it: the CLS token of pictures of one size."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bot.errors import UpstreamError
from bot.graph.export.building import build, l2_normalized, without_prefix
from bot.graph.export.config import Depth, Length, Small, UpstreamConfig, Width, read_config
from bot.graph.export.interface import Architecture, Axis, Exportable, Files, Port
from bot.graph.export.pictures import smooth_pictures
from bot.graph.export.sidecar import Facts
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

RENAMED = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}
"""What published files call the projections, and what transformers calls them from version 5 on."""


class Dinov2Parameters(Parameters):
    """What a recipe may say of it."""

    size: int = Field(default=224, ge=14, le=4096, description="Height and width of the pictures, in pixels.")
    normalize: bool = Field(default=True, description="Divides the embedding by its Euclidean norm.")


class Dinov2Config(UpstreamConfig):
    """Of config.json, what the network is built from."""

    hidden_size: Width
    num_hidden_layers: Depth
    num_attention_heads: Depth
    mlp_ratio: Depth = 4
    hidden_act: Literal["gelu"] = "gelu"
    layer_norm_eps: Small = 1e-6
    image_size: Length = 518
    patch_size: Depth = 14
    num_channels: Literal[3] = 3
    qkv_bias: bool = True
    layerscale_value: float = Field(default=1.0, ge=0.0, le=1e3)
    use_swiglu_ffn: bool = False


def load(files: Files, parameters: Dinov2Parameters) -> Exportable:
    """Reads `config` and `weights`."""
    from transformers import Dinov2Config as TheirConfig
    from transformers import Dinov2Model

    config = read_config(files["config"], Dinov2Config, "dinov2")
    if parameters.size % config.patch_size:
        raise UpstreamError(
            f"cuts pictures into patches of {config.patch_size} pixels, and {parameters.size} is no multiple of that",
            where=files["config"].name,
            remedy="Give export_torch another size.",
        )
    theirs = TheirConfig(**{**config.model_dump(), "attn_implementation": "eager"})
    weights = read_weights(files["weights"])
    tensors = without_prefix(weights.tensors, "dinov2.")
    backbone = build(
        lambda: Dinov2Model(theirs),
        tensors,
        where=files["weights"].name,
        unused=("classifier.", "head."),
        renamed=RENAMED,
    )
    _fix_positions(backbone, parameters.size)
    return Exportable(
        module=_cls_token(backbone, normalize=parameters.normalize),
        inputs=(Port("pixel_values", "float32", ("batch", 3, parameters.size, parameters.size)),),
        outputs=(Port("embedding", "float32", ("batch", config.hidden_size)),),
        axes=(Axis("batch", traced=2, sizes=(1, 3)),),
        example=lambda sizes, generator: {"pixel_values": smooth_pictures(sizes["batch"], parameters.size, generator)},
        facts=Facts(
            feature_names=("picture",),
            output_names=("cls_token",),
            normalizations=("l2" if parameters.normalize else "",),
            sample_rates=(None,),
            notes=("The CLS token after the last normalisation of the backbone.",),
        ),
        random_weights=weights.random,
    )


def _fix_positions(backbone: Any, size: int) -> None:
    """Interpolates the position embeddings to the one size here, so that no graph has to do it again and again."""
    import torch

    embeddings = backbone.embeddings
    patches = (size // backbone.config.patch_size) ** 2
    with torch.no_grad():
        given = torch.zeros(1, patches + 1, backbone.config.hidden_size)
        positions = embeddings.interpolate_pos_encoding(given, size, size).detach()
    embeddings.interpolate_pos_encoding = lambda *_: positions


def _cls_token(backbone: Any, *, normalize: bool) -> Any:
    import torch

    class ClsToken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            token: torch.Tensor = self.backbone(pixel_values=pixel_values).last_hidden_state[:, 0]
            return l2_normalized(token) if normalize else token

    return ClsToken().eval()


ARCHITECTURE = Architecture("dinov2", load, Dinov2Parameters, packages=("transformers", "safetensors"))
