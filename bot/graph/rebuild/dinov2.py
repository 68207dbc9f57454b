"""DINOv2, written anew with fused operators: alone, or as the backbone of a larger network, whose rest stays as it is.

The forms are those of `bot.graph.rebuild.dinov3`, without rotation. The class token, the registers if there are some,
and the learned positions are one table, computed from the source at its size of picture, which the first norm adds.
What reads the network may read the normed tokens, the class token alone, or the residual stream between blocks.
"""

from __future__ import annotations

from bot.graph.model_file import Model
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.builder import Builder
from bot.graph.rebuild.folding import batch_is_free, fold
from bot.graph.rebuild.head import read_head
from bot.graph.rebuild.network import DINOV2, read_network
from bot.graph.rebuild.splicing import Splicer, Surroundings
from bot.graph.rebuild.vision import VisionWriter, report_of
from bot.records import Json

_BATCHES = (2, 3)
"""The source is read at the first; what is another constant at the second depends on the batch."""


def rebuild(source: Model, parameters: RebuildParameters) -> tuple[Model, dict[str, Json]]:
    """Rebuilds a DINOv2.

    Args:
        source: A model in float32, its model-local functions inlined.
        parameters: The form.

    Returns:
        The rebuilt model and the report, as `bot.graph.rebuild.rebuild` documents it.

    Raises:
        StepError: The source has no DINOv2, or not one that is known; the error names the block.
    """
    folded = fold(source, _BATCHES[0], architecture=DINOV2.name, surrounded=True)
    other = fold(source, _BATCHES[1], architecture=DINOV2.name, surrounded=True) if batch_is_free(source) else None
    network = read_network(folded, DINOV2)
    head = read_head(folded, network, streams=True)
    around = Surroundings(source, folded, other, list(head.ends))
    picture = around.name_of(network.picture)
    builder = Builder(source.proto, around.opset([picture]))
    splicer = Splicer(around, builder)
    writer = VisionWriter(builder, network, head, parameters, splicer.input(picture), _batch_of(source))
    splicer.finish(writer.body())
    kept = len(around.nodes([picture]))
    return builder.model, report_of(writer, "dinov2") | {"nodes_around": kept}


def _batch_of(source: Model) -> int | str:
    """What the source calls its batch: the first axis of its first input."""
    weights = {tensor.name for tensor in source.proto.graph.initializer}
    declared = next(value for value in source.proto.graph.input if value.name not in weights)
    axis = declared.type.tensor_type.shape.dim[0]
    return int(axis.dim_value) if axis.HasField("dim_value") else axis.dim_param or "batch"
