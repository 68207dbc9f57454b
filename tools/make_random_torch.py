"""Make torch checkpoints of real architectures with random weights, for recipes that export from torch.

The transformers library builds each network from its own configuration, tiny for tests or of the published size, and
initialises it from a seed. What is written says of itself that nobody trained it: in the metadata of safetensors, or
under the key `random_weights` of a pickled state dict.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = "all human beings are born free and equal in dignity rights they endowed with reason the of to"
WORDS = TEXT.split()


def wavlm(size: str) -> tuple[Any, Any]:
    """WavLM base+, or as many layers of 32 channels."""
    from transformers import WavLMConfig, WavLMModel

    tiny = {"hidden_size": 32, "num_hidden_layers": 12, "num_attention_heads": 2, "intermediate_size": 64}
    tiny |= {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    config = WavLMConfig(**(tiny if size == "tiny" else {}))
    return config, WavLMModel(config)


def dinov2(size: str) -> tuple[Any, Any]:
    """DINOv2 base, or two layers of 32 channels over pictures of 56 pixels."""
    from transformers import Dinov2Config, Dinov2Model

    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56}
    config = Dinov2Config(**(tiny if size == "tiny" else {"image_size": 518}))
    return config, Dinov2Model(config)


def bert(size: str) -> tuple[Any, Any]:
    """BERT of six layers of 384 channels, or two of 32 with a vocabulary of its own."""
    from transformers import BertConfig, BertModel

    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    tiny |= {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 96}
    small = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    config = BertConfig(**(tiny if size == "tiny" else small))
    return config, BertModel(config)


def xlm_roberta(size: str) -> tuple[Any, Any]:
    """XLM-RoBERTa base, or two layers of 32 channels with a vocabulary of its own."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    tiny = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    tiny |= {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 132}
    full = {"vocab_size": 250_002, "max_position_embeddings": 514}
    config = XLMRobertaConfig(**(tiny if size == "tiny" else full), type_vocab_size=1, layer_norm_eps=1e-5)
    return config, XLMRobertaModel(config)


def modernbert(size: str) -> tuple[Any, Any]:
    """mmBERT base, or three layers of 32 channels that look 8 tokens far, with a vocabulary of its own."""
    from transformers import ModernBertConfig, ModernBertModel

    tiny = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
    tiny |= {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 128, "local_attention": 16}
    full = {"vocab_size": 256_000, "local_rope_theta": 160_000.0}
    special = dict.fromkeys(("pad_token_id", "eos_token_id", "bos_token_id", "cls_token_id", "sep_token_id"), 0)
    config = ModernBertConfig(**(tiny if size == "tiny" else full), **special)
    return config, ModernBertModel(config)


MAKERS: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "wavlm": wavlm,
    "dinov2": dinov2,
    "bert": bert,
    "xlm_roberta": xlm_roberta,
    "modernbert": modernbert,
}
PICKLED = {"wavlm": "pytorch_model.bin"}
"""Architectures whose upstream publishes pickled weights, and what it calls them."""


def write(architecture: str, size: str, seed: int, folder: Path) -> list[Path]:
    """Writes config.json and the weights, under the names that upstream has for them.

    Args:
        architecture: One of `MAKERS`.
        size: `tiny` or `full`.
        seed: Of the weights.
        folder: Made if it is not there.

    Returns:
        What was written.
    """
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    config, model = MAKERS[architecture](size)
    folder.mkdir(parents=True, exist_ok=True)
    said = {**config.to_dict(), "architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(said, indent=2, sort_keys=True, default=str) + "\n", "utf-8")
    state = _as_published(model)
    weights = folder / PICKLED.get(architecture, "model.safetensors")
    if architecture in PICKLED:
        torch.save({"random_weights": "true", **state}, weights)
    else:
        save_file(state, weights, metadata={"random_weights": "true", "format": "pt"})
    return [folder / "config.json", weights]


def _as_published(model: Any) -> dict[str, Any]:
    """The weights by the names that published files have for them, which are not those of every version's modules."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        state = load_file(Path(folder) / "model.safetensors")
    factors = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    for new, old in factors.items():
        state = {name.replace(new, old): value for name, value in state.items()}
    return dict(sorted(state.items()))


def write_tokenizer(path: Path) -> Path:
    """Writes a tokenizer.json for the tiny BERT: whole words, those that it does not know are one token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*special, *WORDS])}, special[1]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Write one and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architecture", choices=sorted(MAKERS))
    parser.add_argument("--size", choices=["tiny", "full"], default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    for path in write(options.architecture, options.size, options.seed, options.out):
        print(path, path.stat().st_size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
