"""The network of the FaceAge recipe with random weights: its sizes, its modules, its parameters.

The backbone is the real one, transformers' DINOv3ViTModel, built from a configuration: registers, layer scale, rotary
positions, eager attention. The weights are drawn here and not by transformers, so that a change of its initialisation
does not change our files, and so that the network has the two properties for which it is made:

*   **One massive activation.** The MLP of the first block lifts one channel of the residual stream to about 1.57e5 for
    every token, and it stays there. Half precision ends at 65504, so a conversion that carries the residual stream in
    half precision fails on this network as it does on the real one. No weight is above 1e4, where one of the common
    converters would clip it without a word, and no MatMul gives more than 65504: it is the multiplication by the layer
    scale that passes the limit.
*   **It listens to the picture.** Every LayerNorm behind that channel gives outputs of order one, so that ages differ
    from picture to picture and each block has its part in them.

Nothing in it was trained. An age from it says nothing about a person.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from random_faceage.configuration_faceage_dino import FaceAgeDinoConfig
    from random_faceage.modeling_faceage_dino import FaceAgeDinoModel

MASSIVE_ACTIVATION = 1.57e5
"""What the massive channel of the residual stream carries from the first block on."""

AGE_COUNT = 100
"""Number of CORAL thresholds: is the person older than 0, 1, ... 99 years?"""

AGE_SCALE = 2.0
"""A factor on the age head, which decides what a rounding error costs in years.

Chosen once, for both sizes, so that the usual two-step conversion to half precision is off by about as much as it is on
the real network, where 0.012 years in the mean were measured. `make_random_faceage.py --calibrate` measures again.
"""

_IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)

# A LayerNorm subtracts the mean, and the massive channel alone makes the mean of D channels MASSIVE_ACTIVATION / D. The
# ordinary channels are this many times smaller than that mean. Smaller still, and their bits drown in it; that would
# make the network more delicate than any that was trained.
_MEAN_TO_ORDINARY = 2.4

# The massive channel is made by one hidden unit of the first block's MLP: 40 (bias) times 50 (weight) times the layer
# scale.
_MASSIVE_BIAS, _MASSIVE_WEIGHT = 40.0, 50.0

# Logit of "older than k years" falls by this much from one k to the next, so that one unit of the head's projection is
# worth five years in the middle of the range.
_THRESHOLD_STEP = 0.2
_MEAN_AGE = 38.0


@dataclass(frozen=True)
class Size:
    """The dimensions of one variant.

    Attributes:
        name: What the command line calls it.
        hidden: Width of the residual stream.
        layers: Number of blocks.
        heads: Number of attention heads.
        massive_channel: The channel of the residual stream that carries the massive activation.
        patch: Side of a patch in pixels.
        image: Side of the input picture in pixels.
        registers: Number of register tokens.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    massive_channel: int
    patch: int = 16
    image: int = 224
    registers: int = 4

    @property
    def intermediate(self) -> int:
        """Width of the MLP's hidden layer."""
        return 4 * self.hidden

    @property
    def ordinary(self) -> float:
        """Standard deviation of the residual stream's ordinary channels, as far as the weights decide it."""
        return MASSIVE_ACTIVATION / (self.hidden * _MEAN_TO_ORDINARY)

    @property
    def block_output(self) -> float:
        """Standard deviation of what half a block adds to the residual stream.

        All blocks together add about as much as there was, however many they are. If each block of a deep network
        added as much as each of a shallow one, rounding errors would grow from block to block as in no trained network.
        """
        return 0.87 * self.ordinary * self.layers**-0.5


SIZES = {
    "mini": Size("mini", hidden=64, layers=3, heads=4, massive_channel=37),
    "full": Size("full", hidden=1024, layers=24, heads=16, massive_channel=757),
}


def configuration(size: Size, seed: int) -> FaceAgeDinoConfig:
    """The network's configuration, as its config.json states it."""
    from random_faceage.configuration_faceage_dino import FaceAgeDinoConfig

    return FaceAgeDinoConfig(
        backbone={
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_register_tokens": size.registers,
            "image_size": size.image,
            "patch_size": size.patch,
        },
        num_ages=AGE_COUNT,
        random_weights_seed=seed,
        architectures=["FaceAgeDinoModel"],
        auto_map={
            "AutoConfig": "configuration_faceage_dino.FaceAgeDinoConfig",
            "AutoModel": "modeling_faceage_dino.FaceAgeDinoModel",
        },
    )


def build(size: Size, seed: int) -> FaceAgeDinoModel:
    """The network with the weights that belong to a seed, ready for inference.

    Its forward takes `face` (Bx3x224x224, float32) and returns `age_logits` (BxAGE_COUNT) and `gender_logits` (Bx2).
    """
    import torch

    from random_faceage.modeling_faceage_dino import FaceAgeDinoModel

    network = FaceAgeDinoModel(configuration(size, seed)).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(torch.from_numpy(_weight(name, tuple(parameter.shape), size, seed)))
        _make_massive(network, size)
        _aim(network, size)
    return network


def pictures(count: int, seed: int, side: int = 224) -> np.ndarray:
    """Synthetic pictures: smooth coloured blots, each with a brightness and tint of its own.

    Args:
        count: How many.
        seed: The same seed gives the same pictures.
        side: Side in pixels.

    Returns:
        count x 3 x side x side, float32, normalised as the network wants it.
    """
    rng = np.random.default_rng([seed, 7])
    coarse = rng.normal(0.0, 0.18, (count, 3, 8, 8)) + rng.normal(0.0, 0.12, (count, 1, 8, 8))
    base = rng.uniform(0.2, 0.75, (count, 1, 1, 1)) + rng.normal(0.0, 0.06, (count, 3, 1, 1))
    position = np.linspace(0.0, 7.0, side)
    weights = np.maximum(0.0, 1.0 - np.abs(position[:, None] - np.arange(8)[None, :]))
    smooth = np.einsum("yi,ncij,xj->ncyx", weights, coarse, weights)
    pixels = np.clip(base + smooth, 0.0, 1.0).astype(np.float32)
    return (pixels - _IMAGENET_MEAN[:, None, None]) / _IMAGENET_STD[:, None, None]


def ages(age_logits: np.ndarray) -> np.ndarray:
    """Ages in years (shape B, float64) from CORAL logits (shape BxAGE_COUNT): the sum of their sigmoids."""
    return (1.0 / (1.0 + np.exp(-age_logits.astype(np.float64)))).sum(axis=1)


def _weight(name: str, shape: tuple[int, ...], size: Size, seed: int) -> np.ndarray:
    """The values of one parameter: drawn for its name, so that no parameter depends on how many come before it."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    noise = rng.standard_normal(shape, dtype=np.float32)
    parts = name.split(".")
    kind, field = parts[-2], parts[-1]
    if field in ("cls_token", "register_tokens", "mask_token"):
        return noise * np.float32(size.ordinary)
    if field == "lambda1":
        return np.float32(size.block_output**0.5) * (1 + np.float32(0.1) * noise)
    if kind == "patch_embeddings":
        return noise * np.float32(size.ordinary * (0.1 if field == "bias" else (3 * size.patch**2) ** -0.5))
    if kind in ("norm", "norm1", "norm2"):
        return _norm_weight(name, noise, size)
    if field == "bias":
        return noise * np.float32(0.1)
    # A block's two outputs are multiplied by the layer scale; each factor carries the root of what a block should add.
    gain = size.block_output**0.5 if kind in ("o_proj", "down_proj") else 1.0
    return noise * np.float32(gain * shape[-1] ** -0.5)


def _norm_weight(name: str, noise: np.ndarray, size: Size) -> np.ndarray:
    """Gain and bias of a LayerNorm that give outputs of order one, whether or not the massive channel is there yet."""
    before = name.startswith(("backbone.model.layer.0.", "norm."))
    is_bias = name.endswith(".bias")
    if before:
        return noise * np.float32(0.1) if is_bias else 1 + np.float32(0.1) * noise
    # The massive channel makes the deviation MASSIVE_ACTIVATION / sqrt(D) and every ordinary channel -1 / sqrt(D - 1).
    typical = np.float32(size.hidden**0.5 * _MEAN_TO_ORDINARY)
    values = typical * (1 + np.float32(0.1) * noise)
    if is_bias:
        values = typical * np.float32((size.hidden - 1) ** -0.5) + np.float32(0.1) * noise
    values[size.massive_channel] = 0.0 if is_bias else 0.05
    return values


def _make_massive(network: FaceAgeDinoModel, size: Size) -> None:
    """Let hidden unit 0 of the first block's MLP drive the massive channel, and nothing else."""
    block = network.backbone.model.layer[0]
    channel = size.massive_channel
    block.mlp.up_proj.weight[0] *= 0.1
    block.mlp.up_proj.bias[0] = _MASSIVE_BIAS
    block.mlp.down_proj.weight[:, 0] = 0.0
    block.mlp.down_proj.weight[channel, 0] = _MASSIVE_WEIGHT
    block.mlp.down_proj.bias[channel] = 0.0
    block.layer_scale2.lambda1[channel] = MASSIVE_ACTIVATION / (_MASSIVE_BIAS * _MASSIVE_WEIGHT)


def _aim(network: FaceAgeDinoModel, size: Size) -> None:
    """Turn the two heads into decisions: ages around `_MEAN_AGE`, and as many of one gender as of the other.

    CORAL ranks with one direction and a hundred thresholds, so all rows of the age head are the same. Of the hundred
    rows drawn it is the one along which synthetic pictures differ most; the runner-up decides the gender. Where the
    average picture lies is measured, and rounded so coarsely that no processor rounds it otherwise.
    """
    import torch

    faces = torch.from_numpy(pictures(12, seed=0, side=size.image))
    features = network.norm(network.backbone(faces).pooler_output)
    age, gender = network.age_head, network.gender_head
    by_spread = torch.argsort((features @ age.weight.T).std(0), descending=True)
    age_row, gender_row = age.weight[by_spread[0]].clone(), age.weight[by_spread[1]].clone()
    age.weight[:] = age_row * AGE_SCALE
    gender.weight[:] = torch.stack([-gender_row, gender_row])
    thresholds = _THRESHOLD_STEP * (_MEAN_AGE - 0.5 - torch.arange(AGE_COUNT))
    age.bias.copy_(thresholds - torch.round((features @ age.weight[0]).mean() * 8) / 8)
    gender.bias.copy_(-torch.round((features @ gender.weight.T).mean(0) * 16) / 16)
