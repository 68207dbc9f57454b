"""XLM-RoBERTa (Conneau et al., 2019), and the multilingual sentence encoders made of it, as transformers builds it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bot.graph.export.config import Depth, Length, Small, UpstreamConfig, Vocabulary, Width, read_config
from bot.graph.export.interface import Architecture, Exportable, Files
from bot.graph.export.text_encoder import TextParameters, describe, read_encoder


class XlmRobertaConfig(UpstreamConfig):
    """Of config.json, what the network is built from."""

    vocab_size: Vocabulary
    hidden_size: Width
    num_hidden_layers: Depth
    num_attention_heads: Depth
    intermediate_size: Width
    max_position_embeddings: Length
    pad_token_id: Annotated[int, Field(ge=0, le=1000)] = 1
    type_vocab_size: Depth = 1
    hidden_act: Literal["gelu", "relu", "gelu_new"] = "gelu"
    layer_norm_eps: Small = 1e-5


def load(files: Files, parameters: TextParameters) -> Exportable:
    """Reads `config` and `weights`.

    The network counts positions over the tokens that are no padding, from one past the padding's id on: it has fewer
    positions for texts than rows in its table.
    """
    from transformers import XLMRobertaConfig as TheirConfig
    from transformers import XLMRobertaModel

    config = read_config(files["config"], XlmRobertaConfig, "xlm-roberta")
    theirs = TheirConfig(**{**config.model_dump(), "attn_implementation": "eager"})
    backbone, random = read_encoder(
        files,
        lambda: XLMRobertaModel(theirs, add_pooling_layer=False),
        prefix="roberta.",
        unused=("pooler.", "lm_head."),
    )
    return describe(
        backbone,
        parameters,
        vocabulary=config.vocab_size,
        width=config.hidden_size,
        longest=config.max_position_embeddings - config.pad_token_id - 1,
        random_weights=random,
        notes=(f"Padding is the token {config.pad_token_id}: positions are counted without it.",),
    )


ARCHITECTURE = Architecture("xlm_roberta", load, TextParameters, packages=("transformers", "safetensors"))
