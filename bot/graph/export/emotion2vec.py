"""emotion2vec (Ma et al., 2024): frame features of a waveform.

Its checkpoints are whole pickled training states and its code is none that can be installed with the rest, so its
network is our own, in `networks.emotion2vec`. Depths, widths and kernels are read off the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bot.errors import UpstreamError
from bot.graph.export.building import build, without_prefix
from bot.graph.export.interface import Architecture, Axis, Exportable, Files, Port
from bot.graph.export.shapes import count, shape_of
from bot.graph.export.sidecar import Facts
from bot.graph.export.sounds import voices
from bot.graph.export.weights import read_weights
from bot.graph.parameters import Parameters

if TYPE_CHECKING:
    from bot.graph.export.networks.emotion2vec import SoundShape

RATE = 16_000
SOUND = "modality_encoders.AUDIO."
_TRAINING_ONLY = ("proj.", "decoder.", "modality_encoders.", "shared_decoder.", "recon_proj.", "dino_head.", "_ema")
"""Beginnings of names that are none of the network's: its classifier, its decoders, its teacher."""


class Emotion2vecParameters(Parameters):
    """What a recipe may say of it."""

    normalize: bool = Field(
        default=True,
        description="Brings each waveform to mean 0 and variance 1 within the graph, as the network was trained.",
    )
    distances: Literal["symmetric", "signed"] = Field(
        default="symmetric",
        description="How attention counts distances. symmetric: as the network was trained, the further away the less. "
        "signed: as the package exordium 2 does, which favours later frames and counts the extra tokens too; for "
        "consumers that were trained on its features.",
    )


def load(files: Files, parameters: Emotion2vecParameters) -> Exportable:
    """Reads `weights`; the teacher, the decoder and the classifier are left out."""
    from bot.graph.export.networks.emotion2vec import STRIDES, SoundNetwork

    where = files["weights"].name
    weights = read_weights(files["weights"])
    tensors = {
        name.removeprefix(SOUND): value
        for name, value in without_prefix(weights.tensors, "d2v_model.", "model.").items()
    }
    shape = shape_from(tensors, where)
    network = build(
        lambda: SoundNetwork(shape, parameters.normalize, parameters.distances),
        tensors,
        where=where,
        unused=_TRAINING_ONLY,
    )
    step = math.prod(STRIDES)
    others = (shape.shortest, shape.shortest + 23 * step + 7, shape.shortest + 131 * step)
    return Exportable(
        module=network,
        inputs=(Port("waveform", "float32", ("batch", "samples")),),
        outputs=(Port("features", "float32", ("batch", "frames", shape.width)),),
        axes=(
            Axis("batch", traced=2, sizes=(1, 3)),
            Axis("samples", traced=shape.shortest + 50 * step, sizes=others, minimum=shape.shortest),
        ),
        example=lambda sizes, generator: {"waveform": voices(sizes["batch"], sizes["samples"], RATE, generator)},
        facts=Facts(
            feature_names=("waveform",),
            output_names=("frame_features",),
            normalizations=("",),
            sample_rates=(RATE,),
            frame_rates=(RATE / step,),
            notes=(
                "What comes out of the last block, without the extra tokens.",
                "Each waveform is normalised within the graph."
                if parameters.normalize
                else "Waveforms go in as they are; the network was trained on normalised ones.",
                f"Distances in attention are {parameters.distances}.",
            ),
        ),
        random_weights=weights.random,
    )


def shape_from(tensors: Mapping[str, Any], where: str) -> SoundShape:
    """The sizes of the network that the tensors are for.

    Args:
        tensors: Without the names of the training around the network.
        where: Name of the file, for errors.

    Raises:
        UpstreamError: They are of no such network.
    """
    from bot.graph.export.networks.emotion2vec import POSITION_GROUPS, SoundShape

    positions = "relative_positional_encoder."
    shape = SoundShape(
        convolutions=_convolutions(tensors, where),
        width=shape_of(tensors, "project_features.2.weight", 2, where)[0],
        hidden=shape_of(tensors, "blocks.0.mlp.fc1.weight", 2, where)[0],
        heads=shape_of(tensors, "alibi_scale", 5, where)[2],
        positions=count(tensors, positions, first=1),
        kernel=shape_of(tensors, f"{positions}1.0.weight", 3, where)[2],
        extra=shape_of(tensors, "extra_tokens", 3, where)[1],
        scales=shape_of(tensors, "alibi_scale", 5, where)[0],
        before=count(tensors, "context_encoder.blocks."),
        blocks=count(tensors, "blocks."),
    )
    layers = shape.before + shape.blocks
    if shape.width % shape.heads or shape.width % POSITION_GROUPS or shape.scales not in (1, layers):
        raise UpstreamError(
            f"has {shape.width} channels for {shape.heads} heads and {POSITION_GROUPS} groups, and {shape.scales} "
            f"scales of distances for {layers} layers, which do not go together",
            where=where,
        )
    return shape


def _convolutions(tensors: Mapping[str, Any], where: str) -> tuple[tuple[int, int, int], ...]:
    """Of each convolution over the waveform: channels in, channels out, kernel."""
    from bot.graph.export.networks.emotion2vec import STRIDES

    found: list[tuple[int, int, int]] = []
    before = 1
    for layer in range(len(STRIDES)):
        leaving, entering, kernel = shape_of(tensors, f"local_encoder.conv_layers.{layer}.0.weight", 3, where)
        if entering != before:
            raise UpstreamError(f"convolution {layer} reads {entering} channels and is given {before}", where=where)
        found.append((entering, leaving, kernel))
        before = leaving
    return tuple(found)


ARCHITECTURE = Architecture("emotion2vec", load, Emotion2vecParameters, packages=("safetensors",))
