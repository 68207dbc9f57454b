"""DINOv3, written anew with fused operators.

The residual stream is carried scaled by a power of two, in float32, with every epsilon scaled by its square, so that
each LayerNorm gives what it gave. A block is: SkipLayerNormalization (addition and norm), projections of query, key and
value, RotaryEmbedding, MultiHeadAttention, its output projection; SkipLayerNormalization, projection, BiasGelu,
projection. Layer scales and the scale are folded into the two output projections, their biases into the norms that
follow, and the bias of the values into the output projection's, since attention weights sum to one. Tokens without a
position have rows in the rotary tables that turn nothing. Where only the class token is read after the last block,
that block computes query and feed-forward layer for it alone. Every Reshape has a constant shape, the batch being -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.graph.inspection import census_of
from bot.graph.model_file import Model
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.builder import CONTRIB, Builder
from bot.graph.rebuild.folding import Folded, Value, batch_is_free, fold
from bot.graph.rebuild.head import CLASS, Head, HeadWriter, read_head
from bot.graph.rebuild.network import Block, Network, Projection, read_network
from bot.graph.rebuild.patterns import Norm
from bot.graph.rebuild.weights import MatrixPayload
from bot.graph.tensors import FLOAT, FLOAT16
from bot.records import Json

_BATCHES = (2, 3)
"""The source is read at the first; what is another constant at the second depends on the batch."""


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
        self.half = parameters.precision == "fp16"
        self.elem = FLOAT16 if self.half else FLOAT
        self.dtype: type[Any] = np.float16 if self.half else np.float32
        self.scale = parameters.residual_scale
        self.batch = _batch_of(source, network.picture.name)
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
        normed = self._norm(self.head.norm, "norm", (stream, branch, bias), ends=True)[0]
        return {value: self._begin(value, kind, normed) for value, kind in self.head.ends.items()}

    def _tokens(self) -> tuple[str, str, NDArray[np.float64] | None]:
        """The patches with empty rows in front, and a table that is added by the first norm."""
        network, builder = self.network, self.builder
        convolution = network.convolution
        weight = convolution.operands[1].read() * np.float32(self.scale)
        third = convolution.input(2)
        kernel, strides = list(weight.shape[2:]), convolution.attributes["strides"]
        inputs = [network.picture.name, builder.array("patches/weight", weight)]
        patches = builder.node("Conv", inputs, "patches/projection", kernel_shape=kernel, strides=strides)
        shape = np.array([-1, network.width, network.patches], np.int64)
        flat = builder.node("Reshape", [patches, builder.array("patches/shape", shape)], "patches/flat")
        rows = builder.node("Transpose", [flat], "patches/rows", perm=[0, 2, 1])
        room = np.array([0, len(network.prefix), 0, 0, 0, 0], np.int64)
        kind = (FLOAT, [self.batch, self.count, network.width])
        padded = builder.node("Pad", [rows, builder.array("tokens/room", room)], "tokens/padded", kind)
        table = np.zeros((1, self.count, network.width), np.float32)
        table[0, : len(network.prefix)] = network.prefix
        table[0, len(network.prefix) :] = 0 if third is None else third.read()
        return padded, builder.array("tokens/table", table * np.float32(self.scale)), None

    def _block(
        self, block: Block, name: str, before: tuple[str, str, NDArray[np.float64] | None], last: bool
    ) -> tuple[str, str, NDArray[np.float64] | None]:
        normed, stream = self._norm(block.first_norm, f"{name}/attention_norm", before)
        normed = self._narrow(normed, f"{name}/attention_in")
        asking = normed
        if last:
            asking = self._first_token(normed, f"{name}/class_in", self.elem)
            stream = self._first_token(stream, f"{name}/class_stream", FLOAT)
            self.count = 1
        mixed = self._attention(block, name, asking, normed)
        value_bias = block.value.bias @ block.output.linear.matrix().astype(np.float64)
        bias = (block.output.bias + block.output.factor * value_bias) * self.scale
        branch = self._back(block.output, f"{name}/attention_out", mixed)
        normed, stream = self._norm(block.second_norm, f"{name}/mlp_norm", (stream, branch, bias))
        normed = self._narrow(normed, f"{name}/mlp_in")
        hidden = self._project(block.up, f"{name}/mlp_up", normed)
        width = block.up.linear.shape[1]
        inputs = [hidden, self.builder.array(f"{name}/mlp_up/bias", block.up.bias.astype(self.dtype))]
        kind = (self.elem, [self.batch, self.count, width])
        active = self.builder.node("BiasGelu", inputs, f"{name}/mlp_gelu", kind, domain=CONTRIB)
        return stream, self._back(block.down, f"{name}/mlp_down", active), block.down.bias * self.scale

    def _attention(self, block: Block, name: str, asking: str, normed: str) -> str:
        builder, width = self.builder, self.network.width
        query = self._biased(block.query, f"{name}/query", asking)
        key = self._rotate(block, f"{name}/key_rotary", self._biased(block.key, f"{name}/key", normed))
        if asking == normed:  # the class token alone has no position to turn by
            query = self._rotate(block, f"{name}/query_rotary", query)
        value = self._project(block.value, f"{name}/value", normed)
        attention = block.attention
        attributes: dict[str, Any] = {"num_heads": attention.heads}
        if attention.scale != (width / attention.heads) ** -0.5:
            attributes["scale"] = attention.scale
        kind = (self.elem, [self.batch, self.count, width])
        inputs = [query, key, value]
        return builder.node("MultiHeadAttention", inputs, f"{name}/attention", kind, domain=CONTRIB, **attributes)

    def _rotate(self, block: Block, name: str, value: str) -> str:
        builder, attention = self.builder, block.attention
        still = len(self.network.prefix), attention.rotation.cos.shape[1]
        cos = np.concatenate([np.ones(still), attention.rotation.cos]).astype(self.dtype)
        sin = np.concatenate([np.zeros(still), attention.rotation.sin]).astype(self.dtype)
        inputs = [
            value,
            builder.array("rotary/start", np.zeros(1, np.int64)),
            builder.array("rotary/cos", cos),
            builder.array("rotary/sin", sin),
        ]
        kind = (self.elem, [self.batch, self.network.tokens, self.network.width])
        return builder.node("RotaryEmbedding", inputs, name, kind, domain=CONTRIB, num_heads=attention.heads)

    def _norm(
        self, norm: Norm, name: str, before: tuple[str, str, NDArray[np.float64] | None], ends: bool = False
    ) -> tuple[str, str]:
        """The addition of a branch to the residual stream, and the norm of the sum: both."""
        stream, branch, bias = before
        builder = self.builder
        inputs = [
            stream,
            branch,
            builder.array(f"{name}/gain", norm.gain.astype(np.float32)),
            builder.array(f"{name}/bias", norm.bias.astype(np.float32)),
        ]
        if bias is not None and bias.any():
            inputs.append(builder.array(f"{name}/added", bias.astype(np.float32)))
        normed, total = builder.fresh(name), "" if ends else builder.fresh(f"{name}/stream")
        kind = (FLOAT, [self.batch, self.count, self.network.width])
        epsilon = norm.epsilon * self.scale**2
        outputs = [normed] if ends else [normed, "", "", total]
        builder.node("SkipLayerNormalization", inputs, name, kind, domain=CONTRIB, outputs=outputs, epsilon=epsilon)
        if total:
            builder.declare(total, *kind)
        return normed, total

    def _narrow(self, value: str, name: str) -> str:
        return self.builder.node("Cast", [value], name, to=FLOAT16) if self.half else value

    def _project(self, projection: Projection, name: str, value: str) -> str:
        factor = projection.factor if (projection.factor != 1).any() else None
        payload = MatrixPayload(projection.linear, projection.columns, factor, self.half, name)
        return self.builder.node("MatMul", [value, self.builder.matrix(f"{name}/weight", payload)], name)

    def _biased(self, projection: Projection, name: str, value: str) -> str:
        made = self._project(projection, name, value)
        if not projection.bias.any():
            return made
        bias = self.builder.array(f"{name}/bias", projection.bias.astype(self.dtype))
        return self.builder.node("Add", [made, bias], f"{name}/biased")

    def _back(self, projection: Projection, name: str, value: str) -> str:
        """A projection back to the residual stream, with its layer scale and the stream's scale."""
        factor = projection.factor * self.scale
        payload = MatrixPayload(projection.linear, projection.columns, factor, self.half, name)
        folds = not self.half or payload.rounds_well()
        if not folds:
            self.unfolded.append(name)
            payload = MatrixPayload(projection.linear, projection.columns, None, self.half, name)
        made = self.builder.node("MatMul", [value, self.builder.matrix(f"{name}/weight", payload)], name)
        if self.half:
            made = self.builder.node("Cast", [made], f"{name}/wide", to=FLOAT)
        if not folds:
            scale = self.builder.array(f"{name}/scale", factor.astype(np.float32))
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


def _batch_of(source: Model, name: str) -> int | str:
    """What the source calls the picture's batch."""
    declared = next(value for value in source.proto.graph.input if value.name == name)
    axis = declared.type.tensor_type.shape.dim[0]
    return int(axis.dim_value) if axis.HasField("dim_value") else axis.dim_param or "batch"
