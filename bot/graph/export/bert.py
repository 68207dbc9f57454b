"""BERT (Devlin et al., 2018), and the sentence encoders made of it, as transformers builds it."""

from __future__ import annotations

from typing import Literal

from bot.graph.export.config import Depth, Length, Probability, Small, UpstreamConfig, Vocabulary, Width, read_config
from bot.graph.export.interface import Architecture, Exportable, Files
from bot.graph.export.text_encoder import TextParameters, describe, read_encoder


class BertConfig(UpstreamConfig):
    """Of config.json, what the network is built from."""

    vocab_size: Vocabulary
    hidden_size: Width
    num_hidden_layers: Depth
    num_attention_heads: Depth
    intermediate_size: Width
    max_position_embeddings: Length
    type_vocab_size: Depth = 2
    hidden_act: Literal["gelu", "relu", "gelu_new"] = "gelu"
    hidden_dropout_prob: Probability = 0.1
    layer_norm_eps: Small = 1e-12


def load(files: Files, parameters: TextParameters) -> Exportable:
    """Reads `config` and `weights`; all tokens are of the first segment."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertModel

    config = read_config(files["config"], BertConfig, "bert")
    theirs = TheirConfig(**{**config.model_dump(), "attn_implementation": "eager"})
    backbone, random = read_encoder(
        files, lambda: BertModel(theirs, add_pooling_layer=False), prefix="bert.", unused=("pooler.", "cls.")
    )
    return describe(
        backbone,
        parameters,
        vocabulary=config.vocab_size,
        width=config.hidden_size,
        longest=config.max_position_embeddings,
        random_weights=random,
    )


ARCHITECTURE = Architecture("bert", load, TextParameters, packages=("transformers", "safetensors"))
