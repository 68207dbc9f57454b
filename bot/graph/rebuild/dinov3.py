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
picture and two at the final norm. What rounding the norms changes is then made good in the matrices (`rounding`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.inspection import census_of
from bot.graph.model_file import Model
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.attention import AttentionWriter
from bot.graph.rebuild.builder import CONTRIB, Builder
from bot.graph.rebuild.folding import Folded, Value, batch_is_free, fold
from bot.graph.rebuild.head import CLASS, Head, HeadWriter, read_head
from bot.graph.rebuild.network import Block, Network, Projection, read_network
from bot.graph.rebuild.patches import PatchWriter
from bot.graph.rebuild.patterns import Norm, Vector
from bot.graph.rebuild.projections import Projections
from bot.graph.rebuild.rounding import Normed, compensation, rounded
from bot.graph.rebuild.weights import MatrixPayload
from bot.graph.tensors import FLOAT, FLOAT16
from bot.records import Json

_BATCHES = (2, 3)
"""The source is read at the first; what is another constant at the second depends on the batch."""

Before = tuple[str, str, Vector | None]
"""What a norm reads: the residual stream, the branch that is added to it, and the branch's bias."""


def rebuild(source: Model, parameters: RebuildParameters) -> tuple[Model, dict[str, Json]]:
    """Rebuilds a DINOv3.

    Args:
        source: A model in float32, its model-local functions inlined.
        parameters: Precision and residual scale.

    Returns:
        The rebuilt model and the report, as `bot.graph.rebuild.rebuild` documents it.

    Raises:
        StepError: The source is not a DINOv3, or not one that is known; the error names the block.
    """
    folded = fold(source, _BATCHES[0])
    other = fold(source, _BATCHES[1]) if batch_is_free(source) else None
    network = read_network(folded)
    head = read_head(folded, network)
    writer = _Writer(source, network, head, parameters)
    names = writer.body()
    HeadWriter(writer.builder, folded, other, names).write()
    return writer.builder.model, _report(writer, folded)


def _report(writer: _Writer, folded: Folded) -> dict[str, Json]:
    network, census = writer.network, census_of(writer.builder.model.proto)
    attention = network.blocks[0].attention
    folds: list[Json] = []
    if not writer.unfolded and any((each.output.factor != 1).any() for each in network.blocks):
        folds.append("layer_scales")
    if any(each.value.bias.any() for each in network.blocks):
        folds.append("value_bias")
    return {
        "architecture": "dinov3",
        "precision": "fp16" if writer.half else "fp32",
        "layers": len(network.blocks),
        "heads": attention.heads,
        "width": network.width,
        "tokens": network.tokens,
        "register_tokens": len(network.prefix) - 1,
        "nodes": census.nodes,
        "casts": census.casts,
        "residual_scale": writer.scale,
        "epsilon_scale": writer.scale**2,
        "folded": folds,
        "layer_scales_not_folded": [*writer.unfolded],
        "residual": writer.parameters.residual,
        "attention": writer.parameters.attention,
        "patches": writer.parameters.patches,
        "norms_compensated": writer.parameters.compensate,
        "rotary_computed_in": attention.rotation.computed_in,
        "last_block_cls_only": writer.head.class_only,
        "constant_shapes": True,
    }


class _Writer:
    """Writes the network up to the final norm."""

    def __init__(self, source: Model, network: Network, head: Head, parameters: RebuildParameters) -> None:
        self.builder = Builder(source.proto)
        self.network = network
        self.head = head
        self.parameters = parameters
        self.half = parameters.precision == "fp16"
        self.elem = FLOAT16 if self.half else FLOAT
        self.projections = Projections(self.builder, self.half)
        self.half_stream = parameters.residual == "fp16"
        self.stream_elem = FLOAT16 if self.half_stream else FLOAT
        self.stream_dtype: type[Any] = np.float16 if self.half_stream else np.float32
        self.scale = float(parameters.residual_scale)
        self.batch = _batch_of(source, network.picture.name)
        self.attention = AttentionWriter(self.projections, network, parameters.attention, self.batch)
        self.unfolded: list[str] = []
        self.count = network.tokens

    def body(self) -> dict[Value, str]:
        """Writes it.

        Returns:
            The names of the values where the head begins.
        """
        stream, branch, bias = self._tokens()
        for number, block in enumerate(self.network.blocks):
            last = self.head.class_only and number == len(self.network.blocks) - 1
            stream, branch, bias = self._block(block, f"block_{number}", (stream, branch, bias), last)
        normed = self._final_norm(stream, branch, bias)
        return {value: self._begin(value, kind, normed) for value, kind in self.head.ends.items()}

    def _tokens(self) -> Before:
        """The patches with empty rows in front, and a table that is added by the first norm."""
        network, builder = self.network, self.builder
        rows = PatchWriter(builder, network, self.scale, self.parameters, self.stream_elem).write()
        room = np.array([0, len(network.prefix), 0, 0, 0, 0], np.int64)
        kind = (self.stream_elem, [self.batch, self.count, network.width])
        padded = builder.node("Pad", [rows, builder.array("tokens/room", room)], "tokens/padded", kind)
        third = network.convolution.input(2)
        table = np.zeros((1, self.count, network.width), np.float32)
        table[0, : len(network.prefix)] = network.prefix
        table[0, len(network.prefix) :] = 0 if third is None else third.read()
        scaled = (table * np.float32(self.scale)).astype(self.stream_dtype)
        return padded, builder.array("tokens/table", scaled), None

    def _block(self, block: Block, name: str, before: Before, last: bool) -> Before:
        normed, stream = self._norm(block.first_norm, f"{name}/attention_norm", before)
        normed = self._narrow(normed, f"{name}/attention_in")
        asking = normed
        if last:
            asking = replace(normed, name=self._first_token(normed.name, f"{name}/class_in", self.elem))
            stream = self._first_token(stream, f"{name}/class_stream", self.stream_elem)
            self.count = 1
        mixed = self.attention.write(block, name, asking, normed)
        value_bias = self.projections.bias(block.value, normed) @ block.output.linear.matrix().astype(np.float64)
        bias = (block.output.bias + block.output.factor * value_bias) * self.scale
        branch = self._back(block.output, f"{name}/attention_out", mixed)
        normed, stream = self._norm(block.second_norm, f"{name}/mlp_norm", (stream, branch, bias))
        normed = self._narrow(normed, f"{name}/mlp_in")
        hidden = self.projections.product(block.up, f"{name}/mlp_up", normed)
        up_bias = self.projections.bias(block.up, normed).astype(self.projections.dtype)
        inputs = [hidden, self.builder.array(f"{name}/mlp_up/bias", up_bias)]
        kind = (self.elem, [self.batch, self.count, block.up.linear.shape[1]])
        active = self.builder.node("BiasGelu", inputs, f"{name}/mlp_gelu", kind, domain=CONTRIB)
        return stream, self._back(block.down, f"{name}/mlp_down", active), block.down.bias * self.scale

    def _norm(self, norm: Norm, name: str, before: Before) -> tuple[Normed, str]:
        """The addition of a branch to the residual stream, and the norm of the sum: both."""
        if not self.half_stream:
            normed, total = self.builder.fresh(name), self.builder.fresh(f"{name}/stream")
            gain, bias = norm.gain.astype(np.float32), norm.bias.astype(np.float32)
            self._skip_norm(name, before, gain, bias, norm.epsilon, [normed, total])
            return Normed(normed), total
        normed, total = self.builder.fresh(name), self.builder.fresh(f"{name}/stream")
        gain16, bias16 = rounded(norm, name)
        self._skip_norm(name, before, gain16, bias16, norm.epsilon, [normed, total])
        made_good = compensation(norm, gain16, bias16) if self.parameters.compensate else (None, None)
        return Normed(normed, *made_good), total

    def _final_norm(self, stream: str, branch: str, bias: Vector | None) -> str:
        """In float32: what reads it is copied from the source, and cannot make good what was rounded."""
        if self.half_stream:
            stream = self.builder.node("Cast", [stream], "norm/wide_stream", to=FLOAT)
            branch = self.builder.node("Cast", [branch], "norm/wide_branch", to=FLOAT)
        norm = self.head.norm
        gain, shift = norm.gain.astype(np.float32), norm.bias.astype(np.float32)
        normed = self.builder.fresh("norm")
        self._skip_norm("norm", (stream, branch, bias), gain, shift, norm.epsilon, [normed])
        return normed

    def _skip_norm(
        self, name: str, before: Before, gain: NDArray[Any], bias: NDArray[Any], epsilon: float, results: list[str]
    ) -> None:
        """One SkipLayerNormalization in the precision of its gain; its results are the norm and, if named, the sum."""
        stream, branch, added = before
        builder = self.builder
        inputs = [stream, branch, builder.array(f"{name}/gain", gain), builder.array(f"{name}/bias", bias)]
        if added is not None and added.any():
            inputs.append(builder.array(f"{name}/added", added.astype(gain.dtype)))
        kind = (FLOAT16 if gain.dtype == np.float16 else FLOAT, [self.batch, self.count, self.network.width])
        outputs = [results[0], "", "", *results[1:]] if len(results) > 1 else results
        scaled = epsilon * self.scale**2
        builder.node("SkipLayerNormalization", inputs, name, kind, domain=CONTRIB, outputs=outputs, epsilon=scaled)
        for total in results[1:]:
            builder.declare(total, *kind)

    def _narrow(self, normed: Normed, name: str) -> Normed:
        if not self.half or self.half_stream:
            return normed
        return replace(normed, name=self.builder.node("Cast", [normed.name], name, to=FLOAT16))

    def _back(self, projection: Projection, name: str, value: str) -> str:
        """A projection back to the residual stream, with its layer scale and the stream's scale."""
        factor = projection.factor * self.scale
        payload = MatrixPayload(projection.linear, projection.columns, factor, self.half, name)
        apart: Vector | None = None
        if self.half and not payload.rounds_well():
            self.unfolded.append(name)
            apart = factor if not self.half_stream else _powers_of_two(factor, name)
            payload = replace(payload, factor=factor / apart if self.half_stream else None)
        made = self.builder.node("MatMul", [value, self.builder.matrix(f"{name}/weight", payload)], name)
        if self.half and not self.half_stream:
            made = self.builder.node("Cast", [made], f"{name}/wide", to=FLOAT)
        if apart is not None:
            scale = self.builder.array(f"{name}/scale", apart.astype(self.stream_dtype))
            made = self.builder.node("Mul", [made, scale], f"{name}/scaled")
        return made

    def _first_token(self, value: str, name: str, elem: int) -> str:
        zero, one = (self.builder.array(f"constant/{n}", np.array([n], np.int64)) for n in (0, 1))
        kind = (elem, [self.batch, 1, self.network.width])
        return self.builder.node("Slice", [value, zero, one, one], name, kind)

    def _begin(self, value: Value, kind: str, normed: str) -> str:
        """A value where the head begins, out of the normed tokens."""
        if kind != CLASS:
            return normed
        token = normed if self.count == 1 else self._first_token(normed, "class_token", FLOAT)
        if len(value.sizes) == 3:
            return token
        shape = self.builder.array("class_token/shape", np.array([-1, self.network.width], np.int64))
        return self.builder.node("Reshape", [token, shape], "class_token/flat")


def _powers_of_two(factor: Vector, name: str) -> Vector:
    """The power of two in each factor, which float16 multiplies by without rounding; 1 for a factor of zero.

    Raises:
        StepError: One is none of float16's.
    """
    powers: Vector = np.exp2(np.frexp(factor)[1].astype(np.float64))
    with np.errstate(over="ignore"):
        held = powers.astype(np.float16).astype(np.float64) == powers
    if not held.all():
        raise StepError(
            f"has a layer scale of {float(np.abs(factor[~held]).min()):.3g}, which float16 does not hold.",
            where=name,
            remedy="Use residual: fp32, or another residual_scale.",
        )
    return powers


def _batch_of(source: Model, name: str) -> int | str:
    """What the source calls the picture's batch."""
    declared = next(value for value in source.proto.graph.input if value.name == name)
    axis = declared.type.tensor_type.shape.dim[0]
    return int(axis.dim_value) if axis.HasField("dim_value") else axis.dim_param or "batch"
