"""ModernBERT (Warner et al., 2024) as transformers builds it; mmBERT (Marone et al., 2025) is one with more languages.

Most of its layers look at a window around each token only. The example is longer than the window, and among the lengths
that are tried there are shorter and longer ones.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bot.graph.export.building import build, without_prefix
from bot.graph.export.config import Depth, Length, Small, UpstreamConfig, Vocabulary, Width, read_config
from bot.graph.export.interface import Architecture, Exportable, Files
from bot.graph.export.text_encoder import TextParameters, describe
from bot.graph.export.weights import read_weights

KINDS = ("full_attention", "sliding_attention")

_Theta = Annotated[float, Field(ge=1.0, le=1e9)]
_Kind = Literal["full_attention", "sliding_attention"]


class RopeConfig(UpstreamConfig):
    """Rotary positions of one kind of layer, as newer configurations say it."""

    rope_type: Literal["default"] = "default"
    rope_theta: _Theta


class ModernBertConfig(UpstreamConfig):
    """Of config.json, what the network is built from."""

    vocab_size: Vocabulary
    hidden_size: Width
    intermediate_size: Width
    num_hidden_layers: Depth
    num_attention_heads: Depth
    max_position_embeddings: Length = 8192
    norm_eps: Small = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_activation: Literal["gelu"] = "gelu"
    local_attention: Annotated[int, Field(ge=2, le=65_536)] = 128
    global_attn_every_n_layers: Depth = 3
    global_rope_theta: _Theta = 160_000.0
    local_rope_theta: _Theta = 10_000.0
    rope_parameters: dict[_Kind, RopeConfig] | None = None
    layer_types: Annotated[tuple[_Kind, ...], Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _layers_agree(self) -> ModernBertConfig:
        if self.layer_types is not None and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError("layer_types should have one entry for each layer")
        return self


def load(files: Files, parameters: TextParameters) -> Exportable:
    """Reads `config` and `weights`."""
    from transformers import ModernBertConfig as TheirConfig
    from transformers import ModernBertModel

    config = read_config(files["config"], ModernBertConfig, "modernbert")
    said = config.model_dump(mode="json", exclude_none=True)
    theirs = TheirConfig(**{**said, "attn_implementation": "eager", "pad_token_id": None})
    weights = read_weights(files["weights"])
    backbone = build(
        lambda: ModernBertModel(theirs),
        without_prefix(weights.tensors, "model."),
        where=files["weights"].name,
        unused=("head.", "decoder.", "classifier."),
    )
    return describe(
        _traceable(backbone),
        parameters,
        vocabulary=config.vocab_size,
        width=config.hidden_size,
        longest=config.max_position_embeddings,
        beyond=config.local_attention,
        random_weights=weights.random,
    )


def _traceable(backbone: Any) -> Any:
    """The network, with masks of its own while it is traced.

    The library makes its masks by ways that a tracer does not follow, and goes through a set, whose order is another in
    every process. What the graph is held against afterwards is the library as it is.
    """
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    class Traceable(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            if not torch.jit.is_tracing():  # type: ignore[no-untyped-call, attr-defined]
                return self.backbone(input_ids=input_ids, attention_mask=attention_mask)
            masks = _masks(attention_mask, self.backbone.config.sliding_window)
            states = self.backbone.embeddings(input_ids=input_ids)
            places = torch.arange(input_ids.shape[1]).unsqueeze(0)
            turns = {kind: self.backbone.rotary_emb(states, places, kind) for kind in KINDS}
            for layer in self.backbone.layers:
                kind = layer.attention_type
                states = layer(states, attention_mask=masks[kind], position_embeddings=turns[kind])
            return BaseModelOutput(last_hidden_state=self.backbone.final_norm(states))

    return Traceable().eval()


def _masks(kept: Any, window: int) -> dict[str, Any]:
    """What is added to the scores of each kind of layer: 0 for what a token may look at, else a large negative number.

    Args:
        kept: int64 [batch, tokens], 1 for a token and 0 for padding.
        window: How far a token of a sliding layer looks to either side.

    Returns:
        float32 [batch, 1, tokens, tokens] by kind.
    """
    import torch

    lowest = torch.finfo(torch.float32).min
    place = torch.arange(kept.shape[1])
    near = (place[None, :] - place[:, None]).abs() <= window
    seen = (kept[:, None, None, :] > 0).expand(-1, -1, kept.shape[1], -1)
    return {
        "full_attention": torch.where(seen, 0.0, lowest),
        "sliding_attention": torch.where(seen & near[None, None], 0.0, lowest),
    }


ARCHITECTURE = Architecture("modernbert", load, TextParameters, packages=("transformers", "safetensors"))
