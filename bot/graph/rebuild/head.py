"""What follows the last block: which tokens it reads, and a copy of it in the rebuilt graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bot.errors import StepError
from bot.graph.rebuild.builder import OPSET, Builder
from bot.graph.rebuild.folding import Folded, Operation, Value, evaluate
from bot.graph.rebuild.network import Network
from bot.graph.rebuild.patterns import Norm, norm_ending_at

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto

TOKENS, CLASS, STREAM = "tokens", "class", "stream"

_ONLY_TYPES_CHANGED = frozenset(
    {"Cast", "CastLike", "Constant", "ConstantOfShape", "Equal", "Flatten", "Identity", "Reshape", "Shape", "Size"}
    | {"Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators of which later versions take more dtypes and do the same."""


@dataclass(frozen=True)
class Head:
    """What reads the final norm.

    Attributes:
        norm: The final norm; None if nothing reads but the residual stream.
        ends: Values where the head begins, and what they are: the normed tokens, the normed class token, or, where that
            is allowed, the residual stream in front of a block or after the last.
        class_only: Nothing but the class token is read.
    """

    norm: Norm | None
    ends: dict[Value, str]
    class_only: bool


def read_head(folded: Folded, network: Network, streams: bool = False) -> Head:
    """Finds where the head begins.

    Args:
        folded: The graph.
        network: What was read out of it.
        streams: The head may read the residual stream between blocks, as heads for dense prediction do.

    Raises:
        StepError: There is no final norm, or more than one, or the outputs read something inside the network.
    """
    ends: dict[Value, str] = {}
    norms: list[Norm] = []
    waiting = list(folded.outputs.values())
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        if streams and value in network.stream:
            ends[value] = STREAM
            continue
        if streams and (value is network.picture or value in folded.inputs):
            continue
        if value in network.inside or value.producer is None:
            raise _refusal(folded, f"{value.name!r} read by the outputs past the final LayerNorm")
        found = _begins(value, network)
        if found is not None:
            norms.append(found[1])
            ends[value] = found[0]
            continue
        for operand in value.producer.operands:
            if not operand.constant and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    same = {(norm.gain.tobytes(), norm.bias.tobytes(), norm.epsilon) for norm in norms}
    if len(same) > 1 or (not same and STREAM not in ends.values()):
        raise _refusal(folded, f"{len(same)} final LayerNorms")
    return Head(norms[0] if norms else None, ends, all(kind == CLASS for kind in ends.values()))


def _refusal(folded: Folded, found: str) -> StepError:
    text = f"head: expected one LayerNorm over the last block's residual stream, and outputs from it; found {found}."
    return StepError(f"is not a {folded.architecture} that this step can rebuild. {text}", where=folded.where)


def _begins(value: Value, network: Network) -> tuple[str, Norm] | None:
    norm = norm_ending_at(value)
    if norm is not None and norm.input.shape == value.shape:
        if norm.input is network.last:
            return TOKENS, norm
        if _class_token_of(norm.input) is network.last:
            return CLASS, norm
    whole = _class_token_of(value)
    norm = None if whole is None else norm_ending_at(whole)
    if whole is not None and norm is not None and norm.input is network.last and whole.shape == network.last.shape:
        return CLASS, norm
    return None


def _class_token_of(value: Value) -> Value | None:
    """The tokens of which a value is the first; None if it is anything else."""
    operation = value.producer
    if operation is None or operation.op not in ("Gather", "Slice"):
        return None
    source = operation.operands[0]
    if len(source.sizes) != 3 or value.elements != source.sizes[0] * source.width:
        return None
    if not all(operand.constant for operand in operation.operands[1:]):
        return None
    batch, tokens, width = source.sizes
    numbers = np.arange(batch)[:, None, None] * tokens + np.arange(tokens)[None, :, None]
    numbers = np.broadcast_to(numbers, (batch, tokens, width)).astype(np.float32)
    (picked,) = evaluate([operation], {source: numbers}, [value])
    expected = np.broadcast_to(np.arange(batch)[:, None] * tokens, (batch, width))
    return source if np.array_equal(picked.reshape(batch, -1), expected) else None


def same_in_opset(node: NodeProto, version: int, opset: int) -> bool:
    """Whether an ONNX operator of one opset is the same in another."""
    from onnx import defs

    theirs, ours = (defs.get_schema(node.op_type, each) for each in (version, opset))
    same = theirs.since_version == ours.since_version or node.op_type in _ONLY_TYPES_CHANGED
    return same and all(attribute.name in ours.attributes for attribute in node.attribute)


class HeadWriter:
    """Copies the head, node by node, as it is."""

    def __init__(self, builder: Builder, folded: Folded, other: Folded | None, names: dict[Value, str]) -> None:
        """Begins a copy.

        Args:
            builder: The rebuilt graph.
            folded: The source.
            other: The source at another batch size, if its batch is free.
            names: Where the head begins: the names of these values in the rebuilt graph.
        """
        self.builder = builder
        self.folded = folded
        self.other = other
        self.names = names
        self.final: dict[Value, str] = {}

    def write(self) -> None:
        """Copies all that the outputs need, under the outputs' own names.

        Raises:
            StepError: An operator of it is not the same in the rebuilt graph's opset, or it computes with the batch.
        """
        for name, value in self.folded.outputs.items():
            if value not in self.names:
                self.final.setdefault(value, name)
        for name, value in self.folded.outputs.items():
            made = self._emit(value)
            if made != name:
                self.builder.node("Identity", [made], f"head/{name}", outputs=[name])

    def _emit(self, value: Value) -> str:
        if value not in self.names:
            if value.constant:
                self.names[value] = self._constant(value, 0)
            elif (norm := norm_ending_at(value)) is not None and norm.input.shape == value.shape:
                self.names[value] = self._norm(value, norm)
            elif value.producer is not None:
                self._copy(value.producer)
        return self.names[value]

    def _norm(self, value: Value, norm: Norm) -> str:
        gain = self.builder.array("head/norm/gain", norm.gain.astype(np.float32))
        bias = self.builder.array("head/norm/bias", norm.bias.astype(np.float32))
        inputs = [self._emit(norm.input), gain, bias]
        return self.builder.node(
            "LayerNormalization", inputs, "head/norm", outputs=[self._result(value)], axis=-1, epsilon=norm.epsilon
        )

    def _result(self, value: Value) -> str:
        return self.final[value] if value in self.final else self.builder.fresh("head/value")

    def _copy(self, operation: Operation) -> None:
        self._check_version(operation)
        inputs = []
        for place, operand in enumerate(operation.inputs):
            if operand is None:
                inputs.append("")
            elif operand.constant and operation.op == "Reshape" and place == 1:
                inputs.append(self._constant(operand, -1))
            else:
                inputs.append(self._emit(operand))
        given = iter(operation.outputs)
        results = [self._result(next(given)) if name else "" for name in operation.proto.output]
        for output, name in zip(operation.outputs, (name for name in results if name), strict=True):
            self.names[output] = name
        name = f"head/{operation.op}"
        self.builder.node(operation.op, inputs, self.builder.fresh(name), outputs=results, **operation.attributes)

    def _check_version(self, operation: Operation) -> None:
        if ":" in operation.op or not same_in_opset(operation.proto, operation.version, OPSET):
            text = f"head: {operation.op} of opset {operation.version} is another operator in opset {OPSET}."
            raise StepError(f"cannot be rebuilt. {text}", where=self.folded.where)

    def _constant(self, value: Value, batch: int) -> str:
        """A constant of the head, the same at every batch size; a Reshape may say -1 for the batch."""
        array: NDArray[np.generic] = value.read()
        twin = None if self.other is None else self.other.values.get(value.name)
        if twin is not None:
            there = twin.read()
            if array.shape != there.shape or not np.array_equal(array, there, equal_nan=array.dtype.kind == "f"):
                rest_differs = array.shape != there.shape or array.ndim != 1 or not np.array_equal(array[1:], there[1:])
                if batch == 0 or rest_differs:
                    raise StepError(
                        "cannot be rebuilt. head: it computes with the batch size, which is not constant.",
                        where=self.folded.where,
                    )
                array = array.copy()
                array[0] = batch
        return self.builder.array("head/constant", array)
