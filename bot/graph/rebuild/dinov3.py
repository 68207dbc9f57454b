"""DINOv3, written anew with fused operators.

The residual stream is carried scaled by a power of two, in float32, with every epsilon scaled by its square, so that
each LayerNorm gives what it gave. A block is: SkipLayerNormalization (addition and norm), projections of query, key and
value, RotaryEmbedding, MultiHeadAttention, its output projection; SkipLayerNormalization, projection, BiasGelu,
projection. Layer scales and the scale are folded into the two output projections, their biases into the norms that
follow, and the bias of the values into the output projection's, since attention weights sum to one. Tokens without a
position have rows in the rotary tables that turn nothing. Where only the class token is read after the last block,
that block computes query and feed-forward layer for it alone. Every Reshape has a constant shape, the batch being -1.

The parameters choose other forms of the same network: attention out of one packed projection (`attention`), patches
by a MatMul (`patches`), and the residual stream and its norms in float16 (`residual`), which leaves a cast of the
picture and two at the final norm. How often that stream is rounded can be chosen too (`residual_every`). What rounding
the norms changes is then made good in the matrices (`rounding`), and what rounding the matrices changes on average in
their biases (`calibration`).
"""

from __future__ import annotations

from bot.graph.model_file import Model
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.builder import Builder
from bot.graph.rebuild.calibration import Means, Measure
from bot.graph.rebuild.folding import batch_is_free, fold
from bot.graph.rebuild.head import HeadWriter, read_head
from bot.graph.rebuild.network import DINOV3, read_network
from bot.graph.rebuild.summing import SummingWriter
from bot.graph.rebuild.vision import VisionWriter, report_of
from bot.records import Json

_BATCHES = (2, 3)
"""The source is read at the first; what is another constant at the second depends on the batch."""


def rebuild(source: Model, parameters: RebuildParameters, measure: Measure) -> tuple[Model, dict[str, Json]]:
    """Rebuilds a DINOv3.

    Args:
        source: A model in float32, its model-local functions inlined.
        parameters: Which form of it.
        measure: Takes means of what projections read, for a form that is calibrated.

    Returns:
        The rebuilt model and the report, as `bot.graph.rebuild.rebuild` documents it.

    Raises:
        StepError: The source is not a DINOv3, or not one that is known; the error names the block.
    """
    folded = fold(source, _BATCHES[0])
    other = fold(source, _BATCHES[1]) if batch_is_free(source) else None
    network = read_network(folded, DINOV3)
    head = read_head(folded, network)
    picture = network.picture.name
    batch = _batch_of(source, picture)
    means: Means | None = None
    if parameters.calibrate:
        first = VisionWriter(Builder(source.proto), network, head, parameters.unrounded(), picture, batch)
        first.body()
        means = measure(first.builder.model, first.places)
    form = SummingWriter if parameters.residual_every else VisionWriter
    writer = form(Builder(source.proto), network, head, parameters, picture, batch, means)
    names = writer.body()
    HeadWriter(writer.builder, folded, other, names).write()
    report = report_of(writer, "dinov3")
    rotation = network.blocks[0].attention.rotation
    if rotation is not None:
        report["rotary_computed_in"] = rotation.computed_in
    return writer.builder.model, report


def _batch_of(source: Model, name: str) -> int | str:
    """What the source calls the picture's batch."""
    declared = next(value for value in source.proto.graph.input if value.name == name)
    axis = declared.type.tensor_type.shape.dim[0]
    return int(axis.dim_value) if axis.HasField("dim_value") else axis.dim_param or "batch"
