"""Writes a vision transformer with fused operators, in the forms that `bot.graph.rebuild.dinov3` describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.inspection import census_of
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.attention import AttentionWriter
from bot.graph.rebuild.builder import CONTRIB, Builder
from bot.graph.rebuild.calibration import Means, lost
from bot.graph.rebuild.folding import Value
from bot.graph.rebuild.head import CLASS, STREAM, Head
from bot.graph.rebuild.network import Block, Network
from bot.graph.rebuild.patches import PatchWriter
from bot.graph.rebuild.patterns import Norm, Vector
from bot.graph.rebuild.projections import Projections
from bot.graph.rebuild.reading import Projection
from bot.graph.rebuild.rounding import Normed, compensation, rounded
from bot.graph.rebuild.weights import MatrixPayload
from bot.graph.tensors import FLOAT, FLOAT16
from bot.records import Json

Before = tuple[str, str, Vector | None]
"""What a norm reads: the residual stream, the branch that is added to it, and the branch's bias."""


GELU = {"erf": "BiasGelu", "tanh": "FastGelu"}
"""ONNX Runtime's operator for each kind of GELU, with its bias."""


def report_of(writer: VisionWriter, architecture: str) -> dict[str, Json]:
    """What every vision transformer's report says."""
    network, census = writer.network, census_of(writer.builder.model.proto)
    folds: list[Json] = []
    if not writer.unfolded and any((each.output.factor != 1).any() for each in network.blocks):
        folds.append("layer_scales")
    if any(each.value.bias.any() for each in network.blocks):
        folds.append("value_bias")
    return {
        "architecture": architecture,
        "precision": "fp16" if writer.half else "fp32",
        "layers": len(network.blocks),
        "heads": network.blocks[0].attention.heads,
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
        "residual_every": writer.parameters.residual_every,
        "attention": writer.parameters.attention,
        "patches": writer.parameters.patches,
        "norms_compensated": writer.parameters.compensate,
        "calibrated": writer.parameters.calibrate,
        "last_block_cls_only": writer.head.class_only,
        "constant_shapes": True,
    }


class VisionWriter:
    """Writes the network up to the final norm."""

    def __init__(
        self,
        builder: Builder,
        network: Network,
        head: Head,
        parameters: RebuildParameters,
        picture: str,
        batch: int | str,
        means: Means | None = None,
    ) -> None:
        """Writes into a graph.

        Args:
            builder: The graph.
            network: What is written.
            head: What is read of it.
            parameters: Say the form.
            picture: The name of the picture.
            batch: What the graph calls its batch.
            means: What the projections read on average, if rounding their matrices is to be made good.
        """
        self.means = means or {}
        self.places: dict[str, str] = {}
        self.builder = builder
        self.network = network
        self.picture = picture
        self.head = head
        self.parameters = parameters
        self.half = parameters.precision == "fp16"
        self.elem = FLOAT16 if self.half else FLOAT
        self.projections = Projections(self.builder, self.half)
        self.half_stream = parameters.residual == "fp16"
        self.stream_elem = FLOAT16 if self.half_stream else FLOAT
        self.stream_dtype: type[Any] = np.float16 if self.half_stream else np.float32
        self.scale = float(parameters.residual_scale)
        self.batch = batch
        self.attention = AttentionWriter(self.projections, network, parameters.attention, self.batch)
        self.unfolded: list[str] = []
        self.count = network.tokens
        self.sums: list[str] = []

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
        patches = PatchWriter(builder, network, self.scale, self.parameters, self.stream_elem)
        rows = patches.write(self.picture)
        room = np.array([0, len(network.prefix), 0, 0, 0, 0], np.int64)
        kind = (self.stream_elem, [self.batch, self.count, network.width])
        padded = builder.node("Pad", [rows, builder.array("tokens/room", room)], "tokens/padded", kind)
        third = network.convolution.input(2)
        table = network.table[None].copy()
        table[0, len(network.prefix) :] += 0 if third is None else third.read()
        scaled = table * np.float32(self.scale)
        if patches.cells:
            mean = self._mean("patches", patches.cells)
            scaled[0, len(network.prefix) :] += 0 if mean is None else patches.lost(mean).astype(np.float32)
        return padded, builder.array("tokens/table", scaled.astype(self.stream_dtype)), None

    def _mean(self, place: str, value: str) -> Vector | None:
        """The mean of what a projection reads, if it is known; and notes where it reads it."""
        self.places[place] = value
        return self.means.get(place)

    def _block(self, block: Block, name: str, before: Before, last: bool) -> Before:
        normed, stream = self._norm(block.first_norm, f"{name}/attention_norm", before)
        self.sums.append(stream)
        normed = self._narrow(normed, f"{name}/attention_in")
        normed = replace(normed, mean=self._mean(f"{name}/attention_in", normed.name))
        asking = normed
        if last:
            first = self._first_token(normed.name, f"{name}/class_in", self.elem)
            asking = replace(normed, name=first, mean=self._mean(f"{name}/class_in", first))
            stream = self._first_token(stream, f"{name}/class_stream", self.stream_elem)
            self.count = 1
        mixed = self._attend(block, name, asking, normed)
        value_bias = self.projections.bias(block.value, normed) @ block.output.linear.matrix().astype(np.float64)
        bias = (block.output.bias + block.output.factor * value_bias) * self.scale
        branch, lost_bias = self._back(block.output, f"{name}/attention_out", mixed)
        bias = bias + lost_bias
        normed, stream = self._norm(block.second_norm, f"{name}/mlp_norm", (stream, branch, bias))
        normed = self._narrow(normed, f"{name}/mlp_in")
        normed = replace(normed, mean=self._mean(f"{name}/mlp_in", normed.name))
        hidden = self.projections.product(block.up, f"{name}/mlp_up", normed)
        up_bias = self.projections.bias(block.up, normed).astype(self.projections.dtype)
        inputs = [hidden, self.builder.array(f"{name}/mlp_up/bias", up_bias)]
        kind = self._kind(self.elem, block.up.linear.shape[1])
        active = self.builder.node(GELU[block.activation], inputs, f"{name}/mlp_gelu", kind, domain=CONTRIB)
        branch, lost_bias = self._back(block.down, f"{name}/mlp_down", active)
        return stream, branch, block.down.bias * self.scale + lost_bias

    def _attend(self, block: Block, name: str, asking: Normed, normed: Normed) -> str:
        return self.attention.write(block, name, asking, normed)

    def _kind(self, elem: int, width: int) -> tuple[int, list[int | str]]:
        """Dtype and shape of tokens."""
        return elem, [self.batch, self.count, width]

    def _norm(self, norm: Norm, name: str, before: Before) -> tuple[Normed, str]:
        """The addition of a branch to the residual stream, and the norm of the sum: both."""
        total = self.builder.fresh(f"{name}/stream")
        return self._normed(norm, name, before, [total]), total

    def _normed(self, norm: Norm, name: str, before: Before, totals: list[str]) -> Normed:
        """The norm of the residual stream and a branch; their sum as well, if it has a name."""
        results = [self.builder.fresh(name), *totals]
        if not self.half_stream:
            gain, bias = norm.gain.astype(np.float32), norm.bias.astype(np.float32)
            self._skip_norm(name, before, gain, bias, norm.epsilon, results)
            return Normed(results[0])
        gain16, bias16 = rounded(norm, name)
        self._skip_norm(name, before, gain16, bias16, norm.epsilon, results)
        made_good = compensation(norm, gain16, bias16) if self.parameters.compensate else (None, None)
        return Normed(results[0], *made_good)

    def _final_norm(self, stream: str, branch: str, bias: Vector | None) -> str:
        """The final norm, and the sum in front of it where that is read: the name of the norm, empty for none.

        They are in float32: what reads them is copied from the source, and cannot make good what was rounded.
        """
        if self.half_stream:
            stream = self.builder.node("Cast", [stream], "norm/wide_stream", to=FLOAT)
            branch = self.builder.node("Cast", [branch], "norm/wide_branch", to=FLOAT)
        norm = self.head.norm
        if norm is None:
            total = self.builder.node("Add", [stream, branch], "stream/sum")
            if bias is not None and bias.any():
                added = self.builder.array("stream/added", bias.astype(np.float32))
                total = self.builder.node("Add", [total, added], "stream/last")
            self.sums.append(total)
            return ""
        gain, shift = norm.gain.astype(np.float32), norm.bias.astype(np.float32)
        results = [self.builder.fresh("norm")]
        if self.network.last in self.head.ends:
            results.append(self.builder.fresh("norm/stream"))
            self.sums.append(results[1])
        self._skip_norm("norm", (stream, branch, bias), gain, shift, norm.epsilon, results)
        return results[0]

    def _skip_norm(
        self, name: str, before: Before, gain: NDArray[Any], bias: NDArray[Any], epsilon: float, results: list[str]
    ) -> None:
        """One SkipLayerNormalization in the precision of its gain; its results are the norm and, if named, the sum."""
        stream, branch, added = before
        builder = self.builder
        inputs = [stream, branch, builder.array(f"{name}/gain", gain), builder.array(f"{name}/bias", bias)]
        if added is not None and added.any():
            inputs.append(builder.array(f"{name}/added", added.astype(gain.dtype)))
        kind = self._kind(FLOAT16 if gain.dtype == np.float16 else FLOAT, self.network.width)
        outputs = [results[0], "", "", *results[1:]] if len(results) > 1 else results
        scaled = epsilon * self.scale**2
        builder.node("SkipLayerNormalization", inputs, name, kind, domain=CONTRIB, outputs=outputs, epsilon=scaled)
        for total in results[1:]:
            builder.declare(total, *kind)

    def _narrow(self, normed: Normed, name: str) -> Normed:
        if not self.half or self.half_stream:
            return normed
        return replace(normed, name=self.builder.node("Cast", [normed.name], name, to=FLOAT16))

    def _back(self, projection: Projection, name: str, value: str) -> tuple[str, Vector | float]:
        """A projection back to the residual stream, with its layer scale and the stream's scale.

        Returns:
            Its name, and what is to be added to its bias for what rounding the matrix loses.
        """
        factor = projection.factor * self.scale
        payload = MatrixPayload(projection.linear, projection.columns, factor, self.half, name)
        apart: Vector | None = None
        if self.half and not payload.rounds_well():
            self.unfolded.append(name)
            apart = factor if not self.half_stream else _powers_of_two(factor, name)
            payload = replace(payload, factor=factor / apart if self.half_stream else None)
        made = self._product(name, value, self.builder.matrix(f"{name}/weight", payload), apart)
        mean = self._mean(name, value)
        if mean is None or not self.half:
            return made, 0.0
        return made, lost(payload, mean) * (1.0 if apart is None else apart)

    def _product(self, name: str, value: str, weight: str, apart: Vector | None) -> str:
        """The product that goes back to the stream, multiplied by what is not folded into the weight."""
        made = self.builder.node("MatMul", [value, weight], name)
        if self.half and not self.half_stream:
            made = self.builder.node("Cast", [made], f"{name}/wide", to=FLOAT)
        if apart is None:
            return made
        scale = self.builder.array(f"{name}/scale", apart.astype(self.stream_dtype))
        return self.builder.node("Mul", [made, scale], f"{name}/scaled")

    def _first_token(self, value: str, name: str, elem: int) -> str:
        zero, one = (self.builder.array(f"constant/{n}", np.array([n], np.int64)) for n in (0, 1))
        kind = (elem, [self.batch, 1, self.network.width])
        return self.builder.node("Slice", [value, zero, one, one], name, kind)

    def _begin(self, value: Value, kind: str, normed: str) -> str:
        """A value where the head begins, out of the normed tokens or the residual stream."""
        if kind == STREAM:
            return self._unscaled(self.network.stream.index(value))
        if kind != CLASS:
            return normed
        token = normed if self.count == 1 else self._first_token(normed, "class_token", FLOAT)
        if len(value.sizes) == 3:
            return token
        shape = self.builder.array("class_token/shape", np.array([-1, self.network.width], np.int64))
        return self.builder.node("Reshape", [token, shape], "class_token/flat")

    def _unscaled(self, number: int) -> str:
        """The residual stream after so many blocks, as the source has it."""
        builder, name, last = self.builder, self.sums[number], number == len(self.network.blocks)
        if self.half_stream and not last:
            name = builder.node("Cast", [name], f"stream_{number}/wide", to=FLOAT)
        factor = builder.array("stream/unscale", np.array(1.0 / self.scale, np.float32))
        return builder.node("Mul", [name, factor], f"stream_{number}") if self.scale != 1.0 else name


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
