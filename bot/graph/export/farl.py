"""The picture encoder of OpenAI's CLIP (Radford et al., 2021), whose layout FaRL (Zheng et al., 2022) keeps.

FaRL is on no Hub and brings no code that could be installed, so its network is our own, in `networks.clip`. Width,
depth, patch and picture size are read off the tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bot.errors import UpstreamError
from bot.graph.export.building import build, l2_normalized
from bot.graph.export.interface import Architecture, Axis, Exportable, Files, Port
from bot.graph.export.pictures import smooth_pictures
from bot.graph.export.shapes import count, shape_of
from bot.graph.export.sidecar import Facts
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

if TYPE_CHECKING:
    from bot.graph.export.networks.clip import ClipShape

PREFIX = "visual."


class FarlParameters(Parameters):
    """What a recipe may say of it."""

    normalize: bool = Field(default=True, description="Divides the embedding by its Euclidean norm.")


def load(files: Files, parameters: FarlParameters) -> Exportable:
    """Reads `weights`; the text encoder and the heads of the pre-training are left out."""
    from bot.graph.export.networks.clip import PictureEncoder

    where = files["weights"].name
    weights = read_weights(files["weights"])
    tensors = {
        name.removeprefix(PREFIX): value for name, value in weights.tensors.items() if name.startswith(PREFIX)
    } or dict(weights.tensors)
    shape = shape_from(tensors, where)
    encoder = build(lambda: PictureEncoder(shape), tensors, where=where)
    return Exportable(
        module=_embedding(encoder, normalize=parameters.normalize),
        inputs=(Port("pixel_values", "float32", ("batch", 3, shape.size, shape.size)),),
        outputs=(Port("embedding", "float32", ("batch", shape.embedding)),),
        axes=(Axis("batch", traced=2, sizes=(1, 3)),),
        example=lambda sizes, generator: {"pixel_values": smooth_pictures(sizes["batch"], shape.size, generator)},
        facts=Facts(
            feature_names=("picture",),
            output_names=("image_embedding",),
            normalizations=("l2" if parameters.normalize else "",),
            sample_rates=(None,),
            notes=("The CLS token after the last normalisation, projected into the space of pictures and texts.",),
        ),
        random_weights=weights.random,
    )


def shape_from(tensors: Mapping[str, Any], where: str) -> ClipShape:
    """The sizes of the network that the tensors are for.

    Args:
        tensors: Of the picture encoder, without `visual.`.
        where: Name of the file, for errors.

    Raises:
        UpstreamError: They are of no such network.
    """
    from bot.graph.export.networks.clip import HEAD_WIDTH, ClipShape

    width, channels, patch, across = shape_of(tensors, "conv1.weight", 4, where)
    positions, _ = shape_of(tensors, "positional_embedding", 2, where)
    side = round((positions - 1) ** 0.5)
    if channels != 3 or across != patch or side < 1 or side * side + 1 != positions or width % HEAD_WIDTH:
        raise UpstreamError(
            f"is no picture encoder of CLIP: patches are {channels}×{patch}×{across}, tokens have {width} channels, "
            f"and there are {positions} positions",
            where=where,
        )
    return ClipShape(
        width=width,
        hidden=shape_of(tensors, "transformer.resblocks.0.mlp.c_fc.weight", 2, where)[0],
        layers=count(tensors, "transformer.resblocks."),
        patch=patch,
        size=side * patch,
        embedding=shape_of(tensors, "proj", 2, where)[1],
    )


def _embedding(encoder: Any, *, normalize: bool) -> Any:
    import torch

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            embedding: torch.Tensor = self.encoder(pixel_values)
            return l2_normalized(embedding) if normalize else embedding

    return Embedding().eval()


ARCHITECTURE = Architecture("farl", load, FarlParameters, packages=("safetensors",))
