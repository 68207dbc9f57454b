"""BERT, written anew with fused operators, for texts of any length, with whatever follows it left as it is.

A block is: Attention (query, key and value out of one matrix, and what is done with them under the mask), its output
projection, SkipLayerNormalization; projection, BiasGelu or FastGelu, projection, SkipLayerNormalization. No shape is
computed but, in half precision, the length of the text. In float32 the embeddings and their norm are one
EmbedLayerNormalization. CUDA's kernel of it sums in half before ONNX Runtime 1.27, so that in half precision they are
looked up in float16 tables (which are half of a small model) and added in the precision of the residual stream.

Positions may be chosen by ids that the graph computes or is given, as those of an XLM-RoBERTa are, which counts them
without padding: what computes them stays as it is, in front of the embeddings.

What is masked gets the score that the source gives it, so that a text of nothing but padding gives the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.half.constants import ConvertedPayload
from bot.graph.inspection import census_of
from bot.graph.model_file import Model
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.builder import CONTRIB, Builder
from bot.graph.rebuild.encoder import Encoder, Layer, Lookup, read_encoder
from bot.graph.rebuild.folding import Folded, Value, batch_is_free, fold, length_is_free
from bot.graph.rebuild.patterns import Norm, Vector
from bot.graph.rebuild.reading import Projection
from bot.graph.rebuild.rounding import rounded
from bot.graph.rebuild.splicing import Splicer, Surroundings
from bot.graph.rebuild.vision import GELU
from bot.graph.rebuild.weights import MatrixPayload, PackedPayload
from bot.graph.tensors import FLOAT, FLOAT16, float16_fit, to_float16
from bot.records import Json

_SIZES = ((2, 7), (3, 11))
"""Batch and length at which the source is read, and at which it is looked at again."""

_INT32 = 6


def rebuild(source: Model, parameters: RebuildParameters) -> tuple[Model, dict[str, Json]]:
    """Rebuilds a BERT.

    Args:
        source: A model in float32, its model-local functions inlined.
        parameters: Precision, and that of the residual stream.

    Returns:
        The rebuilt model and the report, as `bot.graph.rebuild.rebuild` documents it.

    Raises:
        StepError: The source has no BERT, or not one that is known; the error names the block.
    """
    folded = fold(source, *_SIZES[0], architecture="BERT", surrounded=True)
    free = batch_is_free(source) or length_is_free(source)
    other = fold(source, *_SIZES[1], architecture="BERT", surrounded=True) if free else None
    encoder = read_encoder(folded, other)
    ends = _ends(folded, encoder)
    around = Surroundings(source, folded, other, ends)
    inputs = [around.name_of(value) for value in _inputs(encoder)]
    builder = Builder(source.proto, around.opset(inputs))
    splicer = Splicer(around, builder)
    given = {value: splicer.input(name) for value, name in zip(_inputs(encoder), inputs, strict=True)}
    writer = _Writer(source, builder, encoder, parameters, given, _axes_of(source, encoder))
    splicer.finish(writer.write(ends))
    return builder.model, _report(writer, len(around.nodes(inputs)))


def _inputs(encoder: Encoder) -> list[Value]:
    found = [encoder.words.ids, encoder.types.ids if encoder.types else None, encoder.position_ids, encoder.mask]
    return list(dict.fromkeys(value for value in found if value is not None))


def _ends(folded: Folded, encoder: Encoder) -> list[Value]:
    """The normed values that are read by what follows the network.

    Raises:
        StepError: The outputs read something inside the network.
    """
    ends: dict[Value, None] = {}
    waiting = list(folded.outputs.values())
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        if value in encoder.hidden:
            ends[value] = None
        elif value in encoder.inside:
            text = f"outputs: expected them to read what blocks give, found {value.name!r} inside one."
            raise StepError(f"is not a BERT that this step can rebuild. {text}", where=folded.where)
        else:
            operands = value.producer.operands if value.producer is not None and not value.constant else []
            new = [operand for operand in operands if operand not in seen]
            seen.update(new)
            waiting += new
    return sorted(ends, key=encoder.hidden.index)


def _axes_of(source: Model, encoder: Encoder) -> list[int | str]:
    """What the source calls its batch and the length of its texts."""
    for value in source.proto.graph.input:
        if value.name in (encoder.words.ids.name, encoder.mask.name if encoder.mask else ""):
            axes = value.type.tensor_type.shape.dim
            names = ("batch", "length")
            return [
                axis.dim_value if axis.HasField("dim_value") else axis.dim_param or name
                for axis, name in zip(axes, names, strict=True)
            ]
    return ["batch", "length"]


def _report(writer: _Writer, kept: int) -> dict[str, Json]:
    encoder, census = writer.encoder, census_of(writer.builder.model.proto)
    attention = encoder.layers[0].attention
    return {
        "architecture": "bert",
        "precision": "fp16" if writer.half else "fp32",
        "residual": "fp16" if writer.half_stream else "fp32",
        "layers": len(encoder.layers),
        "heads": attention.heads,
        "width": encoder.width,
        "positions": len(encoder.positions),
        "vocabulary": encoder.words.table.sizes[0],
        "token_types": encoder.types.table.sizes[0] if encoder.types else 0,
        "masked": encoder.mask is not None,
        "masked_by_length": attention.by_length,
        "fully_masked": attention.empty,
        "activation": encoder.layers[0].up.kind,
        "nodes": census.nodes,
        "casts": census.casts,
        "nodes_around": kept,
    }


class _Writer:
    """Writes the network."""

    def __init__(
        self,
        source: Model,
        builder: Builder,
        encoder: Encoder,
        parameters: RebuildParameters,
        given: dict[Value, str],
        axes: list[int | str],
    ) -> None:
        self.source = source
        self.builder = builder
        self.encoder = encoder
        self.given = given
        self.half = parameters.precision == "fp16"
        self.half_stream = parameters.residual == "fp16"
        self.elem: int = FLOAT16 if self.half else FLOAT
        self.dtype: type[Any] = np.float16 if self.half else np.float32
        self.stream_elem: int = FLOAT16 if self.half_stream else FLOAT
        self.stream_dtype: type[Any] = np.float16 if self.half_stream else np.float32
        self.axes = axes
        self.kind = (self.stream_elem, [*axes, encoder.width])

    def write(self, ends: list[Value]) -> dict[Value, str]:
        """Writes it up to the last value that is read.

        Returns:
            The names of the ends, in float32.
        """
        encoder = self.encoder
        mask = self._mask()
        value = self._embeddings_in_half() if self.half else self._embeddings()
        names = [value]
        for number, layer in enumerate(encoder.layers):
            value = self._layer(layer, f"block_{number}", value, mask)
            names.append(value)
        return {end: self._end(names[encoder.hidden.index(end)]) for end in ends}

    def _mask(self) -> str:
        """The mask as attention reads it: a number for each token, or the length of each text; empty for none."""
        if self.encoder.mask is None:
            return ""
        mask = self._whole_number(self.encoder.mask, "mask")
        if not self.encoder.layers[0].attention.by_length:
            return mask
        one = self.builder.array("constant/1", np.array([1], np.int64))
        return self.builder.node("ReduceSum", [mask, one], "mask/lengths", keepdims=0)

    def _end(self, value: str) -> str:
        if not self.half_stream:
            return value
        return self.builder.node("Cast", [value], f"{value}/wide", to=FLOAT)

    def _whole_number(self, value: Value, name: str) -> str:
        """An input as the fused operators read it: int32."""
        given = self.given[value]
        return given if value.elem == _INT32 else self.builder.node("Cast", [given], name, to=_INT32)

    def _embeddings(self) -> str:
        """Sum and norm of the embeddings, in one operator."""
        encoder, builder = self.encoder, self.builder
        words, types = encoder.words, encoder.types
        gain, bias = (each.astype(np.float32) for each in (encoder.norm.gain, encoder.norm.bias))
        inputs = [
            self._whole_number(words.ids, "words/ids"),
            self._whole_number(types.ids, "types/ids") if types else "",
            self._table(words, "words/table"),
            builder.array("positions/table", encoder.positions),
            self._table(types, "types/table") if types else "",
            builder.array("embeddings/gain", gain),
            builder.array("embeddings/bias", bias),
            *(["", self._whole_number(encoder.position_ids, "positions/ids")] if encoder.position_ids else []),
        ]
        # The second result is a length per text, which nothing reads; older runtimes want it to be named.
        outputs = [builder.fresh("embeddings"), builder.fresh("embeddings/lengths")]
        epsilon = encoder.norm.epsilon
        builder.node(
            "EmbedLayerNormalization", inputs, "embeddings", self.kind, domain=CONTRIB, outputs=outputs, epsilon=epsilon
        )
        builder.declare(outputs[1], _INT32, self.axes[:1])
        return outputs[0]

    def _embeddings_in_half(self) -> str:
        """Rows of float16 tables, added and normed in the stream's precision."""
        encoder, builder = self.encoder, self.builder
        rows = self._rows(encoder.words, "words")
        if encoder.types is not None:
            rows = builder.node("Add", [rows, self._rows(encoder.types, "types")], "embeddings/sum")
        if encoder.position_ids is not None:
            table = self._held(encoder.positions, "positions/table", self.stream_dtype)
            given = self.given[encoder.position_ids]
            places = builder.node("Gather", [table, given], "positions", self.kind, axis=0)
            return self._norm(encoder.norm, "embeddings", rows, places, None)
        places = self._held(encoder.positions[None], "positions/table", self.stream_dtype)
        if isinstance(self.axes[1], str) or self.axes[1] != len(encoder.positions):
            shape = builder.node("Shape", [self.given[encoder.words.ids]], "positions/shape")
            zero, one, two = (builder.array(f"constant/{n}", np.array([n], np.int64)) for n in (0, 1, 2))
            length = builder.node("Slice", [shape, one, two, zero], "positions/length")
            kind = (self.stream_elem, [1, self.axes[1], encoder.width])
            places = builder.node("Slice", [places, zero, length, one], "positions", kind)
        return self._norm(encoder.norm, "embeddings", rows, places, None)

    def _rows(self, lookup: Lookup, name: str) -> str:
        inputs = [self._table(lookup, f"{name}/table"), self.given[lookup.ids]]
        rows = self.builder.node("Gather", inputs, f"{name}/rows", axis=0)
        return rows if self.half_stream else self.builder.node("Cast", [rows], f"{name}/wide", to=FLOAT)

    def _table(self, lookup: Lookup, name: str) -> str:
        """A table of embeddings, which may be most of a model: it stays on disk until it is written."""
        tensor = lookup.table.tensor
        payload = None if tensor is None else self.source.payload_of(tensor)
        if tensor is None or payload is None:
            return self._held(lookup.table.read(), name, self.dtype)
        if not self.half:
            return self.builder.weight(name, FLOAT, tensor.dims, payload)
        for piece in self.source.pieces(tensor):
            _check_range(piece, name)
        return self.builder.weight(name, FLOAT16, tensor.dims, ConvertedPayload(payload, half=True, saturate=False))

    def _held(self, table: NDArray[Any], name: str, dtype: type[Any]) -> str:
        if dtype is np.float16:
            _check_range(table, name)
        return self.builder.array(name, to_float16(table) if dtype is np.float16 else table.astype(np.float32))

    def _layer(self, layer: Layer, name: str, value: str, mask: str) -> str:
        narrow = self._narrow(value, f"{name}/attention_in")
        mixed = self._attention(layer, name, narrow, mask)
        branch = self._project(layer.output, f"{name}/attention_out", mixed)
        value = self._norm(layer.first_norm, f"{name}/attention_norm", value, self._wide(branch), layer.output.bias)
        narrow = self._narrow(value, f"{name}/mlp_in")
        hidden = self._project(layer.up.projection, f"{name}/mlp_up", narrow)
        bias = self.builder.array(f"{name}/mlp_up/bias", layer.up.projection.bias.astype(self.dtype))
        kind = (self.elem, [*self.axes, layer.up.projection.linear.shape[1]])
        active = self.builder.node(GELU[layer.up.kind], [hidden, bias], f"{name}/mlp_gelu", kind, domain=CONTRIB)
        branch = self._project(layer.down, f"{name}/mlp_down", active)
        return self._norm(layer.second_norm, f"{name}/mlp_norm", value, self._wide(branch), layer.down.bias)

    def _attention(self, layer: Layer, name: str, value: str, mask: str) -> str:
        parts = (layer.query, layer.key, layer.value)
        payloads = tuple(self._payload(part, f"{name}/qkv") for part in parts)
        weight = PackedPayload(payloads, np.arange(3 * self.encoder.width))
        bias = np.concatenate([part.bias for part in parts]).astype(self.dtype)
        inputs = [
            value,
            self.builder.matrix(f"{name}/qkv/weight", weight),
            self.builder.array(f"{name}/qkv/bias", bias),
            *([mask] if layer.attention.masked else []),
        ]
        attention = layer.attention
        attributes: dict[str, Any] = {"num_heads": attention.heads}
        if attention.masked:
            attributes["mask_filter_value"] = attention.masked_score
        if attention.scale != (self.encoder.width / attention.heads) ** -0.5:
            attributes["scale"] = attention.scale
        kind = (self.elem, [*self.axes, self.encoder.width])
        return self.builder.node("Attention", inputs, f"{name}/attention", kind, domain=CONTRIB, **attributes)

    def _payload(self, projection: Projection, name: str) -> MatrixPayload:
        factor = projection.factor if (projection.factor != 1).any() else None
        return MatrixPayload(projection.linear, projection.columns, factor, self.half, name)

    def _project(self, projection: Projection, name: str, value: str) -> str:
        weight = self.builder.matrix(f"{name}/weight", self._payload(projection, name))
        return self.builder.node("MatMul", [value, weight], name)

    def _norm(self, norm: Norm, name: str, value: str, branch: str, added: Vector | None) -> str:
        """The norm of a sum, in the precision of the residual stream."""
        builder = self.builder
        held: tuple[NDArray[Any], NDArray[Any]] = rounded(norm, name) if self.half_stream else (norm.gain, norm.bias)
        gain, bias = (each.astype(self.stream_dtype) for each in held)
        inputs = [value, branch, builder.array(f"{name}/gain", gain), builder.array(f"{name}/bias", bias)]
        if added is not None and added.any():
            inputs.append(builder.array(f"{name}/added", added.astype(self.stream_dtype)))
        return builder.node("SkipLayerNormalization", inputs, name, self.kind, domain=CONTRIB, epsilon=norm.epsilon)

    def _narrow(self, value: str, name: str) -> str:
        return self.builder.node("Cast", [value], name, to=FLOAT16) if self.elem != self.stream_elem else value

    def _wide(self, value: str) -> str:
        return self.builder.node("Cast", [value], f"{value}/wide", to=FLOAT) if self.elem != self.stream_elem else value


def _check_range(embeddings: NDArray[Any], name: str) -> None:
    """Raises a StepError where float16 cannot hold one of them."""
    if not np.isfinite(embeddings).all() or float16_fit(embeddings).overflowed:
        raise StepError("has an embedding beyond float16's range.", where=name, remedy="Use precision: fp32.")
