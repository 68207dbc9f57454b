"""WavLM (Chen et al., 2021) as transformers builds it: one hidden state of a waveform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bot.errors import UpstreamError
from bot.graph.export.building import build, without_prefix
from bot.graph.export.config import Depth, Small, UpstreamConfig, Width, read_config
from bot.graph.export.interface import Architecture, Axis, Exportable, Files, Port
from bot.graph.export.sidecar import Facts
from bot.graph.export.sounds import voices
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

RATE = 16_000

_Widths = Annotated[tuple[Width, ...], Field(min_length=1, max_length=32)]
_Steps = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1, max_length=32)]


class WavLMParameters(Parameters):
    """What a recipe may say of it."""

    hidden_state: int = Field(
        ge=0,
        description="Which of the hidden states: 0 is what goes into the first layer, N what comes out of layer N.",
    )


class WavLMConfig(UpstreamConfig):
    """Of config.json, what the network is built from."""

    hidden_size: Width
    num_hidden_layers: Depth
    num_attention_heads: Depth
    intermediate_size: Width
    hidden_act: Literal["gelu"] = "gelu"
    layer_norm_eps: Small = 1e-5
    feat_extract_norm: Literal["group", "layer"] = "group"
    feat_extract_activation: Literal["gelu"] = "gelu"
    conv_dim: _Widths = (512,) * 7
    conv_stride: _Steps = (5, 2, 2, 2, 2, 2, 2)
    conv_kernel: _Steps = (10, 3, 3, 3, 3, 2, 2)
    conv_bias: bool = False
    num_conv_pos_embeddings: Annotated[int, Field(ge=1, le=1024)] = 128
    num_conv_pos_embedding_groups: Depth = 16
    num_buckets: Annotated[int, Field(ge=2, le=4096)] = 320
    max_bucket_distance: Annotated[int, Field(ge=2, le=65_536)] = 800
    do_stable_layer_norm: bool = False

    @model_validator(mode="after")
    def _convolutions_agree(self) -> WavLMConfig:
        if not len(self.conv_dim) == len(self.conv_stride) == len(self.conv_kernel):
            raise ValueError("conv_dim, conv_stride and conv_kernel should be of one length")
        return self

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        hop = 1
        for stride in self.conv_stride:
            hop *= stride
        return hop

    @property
    def shortest(self) -> int:
        """Samples that give one frame."""
        samples = 1
        for stride, kernel in zip(reversed(self.conv_stride), reversed(self.conv_kernel), strict=True):
            samples = (samples - 1) * stride + kernel
        return samples


def load(files: Files, parameters: WavLMParameters) -> Exportable:
    """Reads `config` and `weights`; layers above the hidden state are left out."""
    config = read_config(files["config"], WavLMConfig, "wavlm")
    if parameters.hidden_state > config.num_hidden_layers:
        raise UpstreamError(
            f"has {config.num_hidden_layers} layers, and the recipe asks for hidden state {parameters.hidden_state}",
            where=files["config"].name,
        )
    weights = read_weights(files["weights"])
    module = _hidden_state(_backbone(config, parameters.hidden_state, weights.tensors, files), parameters.hidden_state)
    step = config.hop
    return Exportable(
        module=module,
        inputs=(Port("waveform", "float32", ("batch", "samples")),),
        outputs=(Port("features", "float32", ("batch", "frames", config.hidden_size)),),
        axes=(
            Axis("batch", traced=2, sizes=(1, 3)),
            Axis(
                "samples",
                traced=config.shortest + 50 * step,
                sizes=(config.shortest + 3, config.shortest + 23 * step + 7, config.shortest + 131 * step),
                minimum=config.shortest,
            ),
        ),
        example=lambda sizes, generator: {"waveform": voices(sizes["batch"], sizes["samples"], RATE, generator)},
        facts=Facts(
            feature_names=("waveform",),
            output_names=(f"hidden_state_{parameters.hidden_state}",),
            normalizations=("",),
            sample_rates=(RATE,),
            frame_rates=(RATE / step,),
            notes=(
                f"hidden_states[{parameters.hidden_state}] of the model, counted from the input of the first layer.",
            ),
        ),
        random_weights=weights.random,
    )


def _backbone(config: WavLMConfig, hidden_state: int, tensors: Mapping[str, Any], files: Files) -> Any:
    from transformers import WavLMConfig as TheirConfig
    from transformers import WavLMModel

    # With "stable" layer norm the last hidden state is normalised and the others are not: one layer more is kept.
    layers = min(hidden_state + config.do_stable_layer_norm, config.num_hidden_layers)
    theirs = TheirConfig(**{**config.model_dump(), "num_hidden_layers": max(layers, 1)}, apply_spec_augment=False)
    given = without_prefix(tensors, "wavlm.")
    given.pop("masked_spec_embed", None)
    given = {_parametrized(name): value for name, value in given.items()}
    left_out = tuple(f"encoder.layers.{layer}." for layer in range(max(layers, 1), config.num_hidden_layers))

    def make() -> Any:
        model = WavLMModel(theirs)
        if hasattr(model, "masked_spec_embed"):  # for training only
            del model.masked_spec_embed
        return model

    backbone = build(make, given, where=files["weights"].name, unused=left_out)
    _plain_convolution(backbone)
    return backbone


def _parametrized(name: str) -> str:
    """Older files name the two factors of a normalised weight otherwise than torch does now."""
    old = "encoder.pos_conv_embed.conv."
    names = {f"{old}weight_g": f"{old}parametrizations.weight.original0"}
    names[f"{old}weight_v"] = f"{old}parametrizations.weight.original1"
    return names.get(name, name)


def _plain_convolution(backbone: Any) -> None:
    """Multiplies out the normalised weight of the position convolution, once."""
    from torch.nn.utils import parametrize

    convolution = backbone.encoder.pos_conv_embed.conv
    if parametrize.is_parametrized(convolution):
        parametrize.remove_parametrizations(convolution, "weight", leave_parametrized=True)


def _hidden_state(backbone: Any, index: int) -> Any:
    import torch

    class HiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, waveform: torch.Tensor) -> torch.Tensor:
            states: torch.Tensor = self.backbone(waveform, output_hidden_states=True).hidden_states[index]
            return states

    return HiddenState().eval()


ARCHITECTURE = Architecture("wavlm", load, WavLMParameters, packages=("transformers", "safetensors"))
