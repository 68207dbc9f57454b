"""EmotiEffNet (Savchenko, 2022): what an EfficientNet that was taught expressions of faces says before it classifies.

Its checkpoints are whole pickled timm modules. They are read as tensors by timm's names, and the network is our own, in
`networks.efficientnet`; timm is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bot.errors import UpstreamError
from bot.graph.export.building import build
from bot.graph.export.interface import Architecture, Axis, Exportable, Files, Port
from bot.graph.export.pictures import smooth_pictures
from bot.graph.export.shapes import count, shape_of
from bot.graph.export.sidecar import Facts
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

if TYPE_CHECKING:
    from bot.graph.export.networks.efficientnet import BlockShape, EfficientNetShape


class EmotiEffNetParameters(Parameters):
    """What a recipe may say of it."""

    size: int = Field(default=224, ge=32, le=1024, description="Height and width of the pictures, in pixels.")


def load(files: Files, parameters: EmotiEffNetParameters) -> Exportable:
    """Reads `weights`; the classifier is left out."""
    from bot.graph.export.networks.efficientnet import EfficientNet

    where = files["weights"].name
    weights = read_weights(files["weights"])
    shape = shape_from(weights.tensors, where)
    network = build(lambda: EfficientNet(shape), weights.tensors, where=where, unused=("classifier.",))
    size = parameters.size
    return Exportable(
        module=network,
        inputs=(Port("pixel_values", "float32", ("batch", 3, size, size)),),
        outputs=(Port("features", "float32", ("batch", shape.features)),),
        axes=(Axis("batch", traced=2, sizes=(1, 3)),),
        example=lambda sizes, generator: {"pixel_values": smooth_pictures(sizes["batch"], size, generator)},
        facts=Facts(
            feature_names=("picture",),
            output_names=("penultimate_features",),
            normalizations=("",),
            sample_rates=(None,),
            notes=("The means over the picture that the classifier would read.",),
        ),
        random_weights=weights.random,
    )


def shape_from(tensors: Mapping[str, Any], where: str) -> EfficientNetShape:
    """The sizes of the network that the tensors are for.

    Raises:
        UpstreamError: They are of no such network.
    """
    from bot.graph.export.networks.efficientnet import STAGE_STRIDES, EfficientNetShape

    stages = count(tensors, "blocks.")
    if stages != len(STAGE_STRIDES):
        raise UpstreamError(f"has {stages} stages; an EfficientNet has {len(STAGE_STRIDES)}", where=where)
    return EfficientNetShape(
        stem=shape_of(tensors, "conv_stem.weight", 4, where)[0],
        stages=tuple(
            tuple(
                _block_shape(tensors, f"blocks.{stage}.{block}.", stride if block == 0 else 1, where)
                for block in range(count(tensors, f"blocks.{stage}."))
            )
            for stage, stride in enumerate(STAGE_STRIDES)
        ),
        features=shape_of(tensors, "conv_head.weight", 4, where)[0],
    )


def _block_shape(tensors: Mapping[str, Any], prefix: str, stride: int, where: str) -> BlockShape:
    from bot.graph.export.networks.efficientnet import BlockShape

    expands = f"{prefix}conv_pwl.weight" in tensors
    inner, _, kernel, _ = shape_of(tensors, f"{prefix}conv_dw.weight", 4, where)
    last = "conv_pwl" if expands else "conv_pw"
    return BlockShape(
        entering=shape_of(tensors, f"{prefix}conv_pw.weight", 4, where)[1] if expands else inner,
        inner=inner,
        leaving=shape_of(tensors, f"{prefix}{last}.weight", 4, where)[0],
        squeezed=shape_of(tensors, f"{prefix}se.conv_reduce.weight", 4, where)[0],
        kernel=kernel,
        stride=stride,
        expands=expands,
    )


ARCHITECTURE = Architecture("emotieffnet", load, EmotiEffNetParameters, packages=("safetensors",))
