"""Make checkpoints with random weights of the networks that no library of the bot's own environment builds.

The names and shapes of the tensors are those of the published checkpoints, tiny for tests or of the published size; the
weights come from a seed. What is written says of itself that nobody trained it, under the key `random_weights`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FEATURES = {"wavlm": 768, "emotion2vec": 768}
"""Of the LinMulT: names and widths of the series, which graphs of other recipes give."""

TRAITS = ["openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism"]


def farl(size: str) -> dict[str, Any]:
    """CLIP's ViT-B/16, or two layers of 128 channels over large patches; and a little of the text encoder."""
    import torch

    from bot.graph.export.networks.clip import ClipShape, PictureEncoder

    shape = ClipShape(width=768, hidden=3072, layers=12, patch=16, size=224, embedding=512)
    if size == "tiny":
        shape = ClipShape(width=128, hidden=256, layers=2, patch=32, size=224, embedding=16)
    state = {f"visual.{name}": value for name, value in filled(PictureEncoder(shape)).items()}
    return {"state_dict": {**state, "logit_scale": torch.tensor(4.6), "ln_final.weight": torch.ones(8)}}


def emotieffnet(size: str) -> dict[str, Any]:
    """EfficientNet-B0 with a classifier of eight expressions; the tiny one has an eighth of its channels."""
    import torch

    from bot.graph.export.networks.efficientnet import EfficientNet

    network = EfficientNet(efficientnet_b0(8 if size == "tiny" else 1))
    state = filled(network)
    features = network.conv_head.out_channels
    return {
        "state_dict": {**state, "classifier.0.weight": torch.zeros(8, features), "classifier.0.bias": torch.zeros(8)}
    }


def efficientnet_b0(divisor: int) -> Any:
    """The published sizes (Tan and Le, 2019, table 1), with fewer channels if asked."""
    from bot.graph.export.networks.efficientnet import STAGE_STRIDES, BlockShape, EfficientNetShape

    table = [(1, 3, 16, 1), (6, 3, 24, 2), (6, 5, 40, 2), (6, 3, 80, 3), (6, 5, 112, 3), (6, 5, 192, 4), (6, 3, 320, 1)]
    entering = 32 // divisor
    stages = []
    for (factor, kernel, leaving, blocks), stride in zip(table, STAGE_STRIDES, strict=True):
        stage = []
        for block in range(blocks):
            inner, after = entering * factor, max(leaving // divisor, 2)
            squeezed = max(entering // 4, 1)
            first = stride if block == 0 else 1
            stage.append(BlockShape(entering, inner, after, squeezed, kernel, first, factor > 1))
            entering = after
        stages.append(tuple(stage))
    return EfficientNetShape(32 // divisor, tuple(stages), 1280 // divisor)


def emotion2vec(size: str) -> dict[str, Any]:
    """emotion2vec+ seed, or blocks of 32 channels; with the classifier of its training."""
    import torch

    from bot.graph.export.networks.emotion2vec import SoundNetwork, SoundShape

    wide, width, hidden, heads = (512, 768, 3072, 12) if size == "full" else (16, 32, 64, 4)
    kernels = (10, 3, 3, 3, 3, 2, 2)
    shape = SoundShape(
        convolutions=tuple((wide if place else 1, wide, kernel) for place, kernel in enumerate(kernels)),
        width=width,
        hidden=hidden,
        heads=heads,
        positions=5,
        kernel=19,
        extra=10,
        scales=1,
        before=4 if size == "full" else 2,
        blocks=8 if size == "full" else 2,
    )
    sound = "d2v_model.modality_encoders.AUDIO."
    state = {
        f"{'d2v_model.' if name.startswith('blocks.') else sound}{name}": value
        for name, value in filled(SoundNetwork(shape, normalize=True, distances="symmetric")).items()
    }
    return {"model": {**state, "proj.weight": torch.zeros(9, width), "proj.bias": torch.zeros(9)}}


def linmult(size: str, features: Mapping[str, int] = FEATURES) -> dict[str, Any]:
    """A LinMulT of several series, with the hyperparameters that its trainer keeps; needs the package linmult."""
    from bot.graph.export.linmult import checkpoint_from, library_network

    small = {"d_model": 16, "num_heads": 4, "cmt_num_layers": 1, "branch_sat_num_layers": 1}
    large = {"d_model": 32, "num_heads": 8, "cmt_num_layers": 5, "branch_sat_num_layers": 5}
    hyperparameters = {
        "model_config": {
            "name": "LinMulT",
            "family": "linmult",
            "attention_type": "linear",
            "add_module_tcn": False,
            "time_dim_reducer": "gap",
            "add_module_ffn_fusion": True,
            "head_type": "simple",
            **(large if size == "full" else small),
        },
        "train_config": {"task": "bigfive", "targets": TRAITS},
        "feature_names": list(features),
        "input_feature_dim": list(features.values()),
    }
    network = library_network(checkpoint_from(hyperparameters, "hyperparameters"), "app")
    state = {f"model.{name}": value for name, value in filled(network).items()}
    return {"state_dict": state, "hyper_parameters": hyperparameters}


def filled(network: Any) -> dict[str, Any]:
    """The state dict of a network, its weights drawn so that values neither die away nor grow from layer to layer."""
    import torch

    for name, value in network.state_dict().items():
        if not value.is_floating_point():
            continue
        with torch.no_grad():
            if name.endswith(("running_var", "alibi_scale")):
                value.uniform_(0.5, 1.5)
            elif value.ndim < 2:
                value.normal_(1.0 if name.endswith("weight") else 0.0, 0.05)
            else:
                value.normal_(0.0, (value[0].numel() if value.ndim > 1 else value.numel()) ** -0.5)
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


MAKERS: Mapping[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "farl": ("FaRL-Base-Patch16-LAIONFace20M-ep64.pth", farl),
    "emotieffnet": ("enet_b0_8_best_vgaf.pt", emotieffnet),
    "emotion2vec": ("model.pt", emotion2vec),
    "linmult": ("wavlm-emotion2vec_best-ccc.ckpt", linmult),
}
"""Architecture to the name that upstream gives the file, and what makes it."""


def write(architecture: str, size: str, seed: int, folder: Path) -> Path:
    """Writes one checkpoint, under the name that upstream has for it.

    Args:
        architecture: One of `MAKERS`.
        size: `tiny` or `full`.
        seed: Of the weights.
        folder: Made if it is not there.
    """
    import torch

    torch.manual_seed(seed)
    name, make = MAKERS[architecture]
    made = make(size)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"random_weights": "true", **made}, folder / name)
    return folder / name


def main(arguments: list[str] | None = None) -> int:
    """Write one and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architecture", choices=sorted(MAKERS))
    parser.add_argument("--size", choices=["tiny", "full"], default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    path = write(options.architecture, options.size, options.seed, options.out)
    print(path, path.stat().st_size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
