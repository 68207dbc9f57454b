"""What networks are made of, found by structure: projections, normalisations, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.graph.rebuild.folding import Folded, Operation, Value

Vector = NDArray[np.float64]

_LEADING_AXES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""They keep the order of numbers: with the last axis unchanged, only the leading ones are regrouped."""


@dataclass(frozen=True)
class Linear:
    """`y = (x @ weight) * factor + bias`, per channel.

    Attributes:
        input: x.
        weight: A constant matrix.
        transposed: The weight is stored as (out, in).
        factor: Shape (out,).
        bias: Shape (out,).
        base: The MatMul or Gemm.
    """

    input: Value
    weight: Value
    transposed: bool
    factor: Vector
    bias: Vector
    base: Operation

    @property
    def shape(self) -> tuple[int, int]:
        """(in, out)."""
        rows, columns = self.weight.sizes
        return (columns, rows) if self.transposed else (rows, columns)

    def matrix(self) -> NDArray[np.float32]:
        """The weight as (in, out), without the factor."""
        array = self.weight.read()
        return array.T if self.transposed else array


@dataclass(frozen=True)
class Norm:
    """A LayerNorm over the last axis: its input, its parameters of shape (width,), and its epsilon."""

    input: Value
    gain: Vector
    bias: Vector
    epsilon: float


def regrouped(value: Value) -> Value:
    """The value before reshapes that leave the last axis as it is."""
    while (
        value.producer is not None
        and value.producer.op in _LEADING_AXES
        and value.producer.operands[0].width == value.width
    ):
        value = value.producer.operands[0]
    return value


def linear_ending_at(value: Value, *, whole_vectors: bool = False) -> Linear | None:
    """The projection that ends here, with all biases, scales and reshapes that follow it.

    Args:
        value: Its result.
        whole_vectors: Scales and biases count only where they have one number per channel.

    Returns:
        None if something else ends here.
    """
    width = value.width
    value, factor, bias = _affine(value, whole_vectors)
    base = value.producer
    if base is None or base.op not in ("MatMul", "Gemm"):
        return None
    left, weight = base.inputs[0], base.inputs[1]
    if left is None or weight is None or left.constant or not weight.constant or len(weight.sizes) != 2:
        return None
    transposed = False
    if base.op == "Gemm":
        if base.attributes.get("transA", 0):
            return None
        transposed = bool(base.attributes.get("transB", 0))
        third = base.input(2)
        if third is not None:
            added = vector_of(third, width) if third.constant else None
            if added is None:
                return None
            bias = bias + factor * base.attributes.get("beta", 1.0) * added
        factor = factor * base.attributes.get("alpha", 1.0)
    return Linear(regrouped(left), weight, transposed, factor, bias, base)


def norm_ending_at(value: Value) -> Norm | None:
    """The LayerNorm that ends here, one operator or many; None if something else does."""
    width = value.width
    if width < 2:
        return None
    value, factor, bias = _affine(value, False)
    base = value.producer
    if base is None:
        return None
    if base.op == "LayerNormalization":
        source = base.operands[0]
        if base.attributes.get("axis", -1) not in (-1, len(source.sizes) - 1):
            return None
        gain = vector_of(base.operands[1], width)
        third = base.input(2)
        shift = np.zeros(width) if third is None else vector_of(third, width)
        if gain is None or shift is None:
            return None
        return Norm(source, gain * factor, shift * factor + bias, float(base.attributes.get("epsilon", 1e-5)))
    found = _decomposed(base)
    return None if found is None else Norm(found[0], factor, bias, found[1])


def _affine(value: Value, whole_vectors: bool) -> tuple[Value, Vector, Vector]:
    """Goes back over additions and multiplications by constants per channel: `result = value * factor + bias`."""
    width = value.width
    factor, bias = np.ones(width), np.zeros(width)
    while True:
        value = regrouped(value)
        operation = value.producer
        if operation is None or operation.op not in ("Add", "Sub", "Mul", "Div"):
            return value, factor, bias
        first, second = operation.operands
        if first.constant == second.constant:
            return value, factor, bias
        other, constant = (second, first) if first.constant else (first, second)
        numbers = vector_of(constant, width)
        fits = numbers is not None and not (whole_vectors and constant.elements != width)
        if not fits or numbers is None or other.width != width or (operation.op == "Div" and first.constant):
            return value, factor, bias
        if operation.op == "Add":
            bias = bias + factor * numbers
        elif operation.op == "Sub":
            bias = bias + factor * (numbers if first.constant else -numbers)
            factor = -factor if first.constant else factor
        else:
            factor = factor * numbers if operation.op == "Mul" else factor / numbers
        value = other


def vector_of(constant: Value, width: int) -> Vector | None:
    """A constant as one number per channel; None if it varies along another axis too."""
    if not constant.constant or constant.elements not in (1, width) or constant.elem != 1:
        return None
    if constant.elements != 1 and constant.width != width:
        return None
    return np.broadcast_to(constant.read().reshape(-1).astype(np.float64), (width,))


def _decomposed(base: Operation) -> tuple[Value, float] | None:
    """Input and epsilon of `(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε)`."""
    if base.op not in ("Div", "Mul"):
        return None
    for place in (0, 1) if base.op == "Mul" else (0,):
        deviation, root = base.operands[place], base.operands[1 - place]
        if base.op == "Mul":
            inverse = _made_by(root, "Reciprocal")
            if inverse is None:
                continue
            root = inverse.operands[0]
        source = _deviation(deviation)
        epsilon = _root_of_mean_square(root, deviation)
        if source is not None and epsilon is not None:
            return source, epsilon
    return None


def _deviation(value: Value) -> Value | None:
    """x of `x - mean(x)`."""
    minus = _made_by(value, "Sub")
    if minus is None:
        return None
    source, mean = minus.operands
    average = _mean(mean)
    return source if average is not None and average is source else None


def _root_of_mean_square(value: Value, deviation: Value) -> float | None:
    """Epsilon of `sqrt(mean(deviation²) + ε)`."""
    root = _made_by(value, "Sqrt", "Pow")
    if root is None or (root.op == "Pow" and _scalar(root.operands[1]) != 0.5):
        return None
    total = _made_by(root.operands[0], "Add")
    if total is None:
        return None
    for place in (0, 1):
        epsilon, variance = _scalar(total.operands[place]), _mean(total.operands[1 - place])
        if epsilon is not None and variance is not None and _is_square(variance, deviation):
            return epsilon
    return None


def _is_square(value: Value, of: Value) -> bool:
    square = _made_by(value, "Pow", "Mul")
    if square is None:
        return False
    first, second = square.operands
    if square.op == "Mul":
        return _same(first, of) and _same(second, of)
    return _same(first, of) and _scalar(second) == 2.0


def _same(first: Value, second: Value) -> bool:
    """Whether two values are one, or two computations of the same deviation from the mean."""
    if first is second:
        return True
    one, other = _deviation(first), _deviation(second)
    return one is not None and one is other


def _mean(value: Value) -> Value | None:
    """x of a mean over the last axis that keeps it."""
    mean = _made_by(value, "ReduceMean")
    if mean is None or not mean.attributes.get("keepdims", 1):
        return None
    source, given = mean.operands[0], mean.input(1)
    axes = mean.attributes.get("axes") if given is None else given.read().reshape(-1) if given.constant else None
    last = len(source.sizes) - 1
    return source if axes is not None and [int(axis) % (last + 1) for axis in axes] == [last] else None


def _scalar(value: Value) -> float | None:
    return float(value.read().reshape(-1)[0]) if value.constant and value.elements == 1 else None


def _made_by(value: Value, *ops: str) -> Operation | None:
    return value.producer if value.producer is not None and value.producer.op in ops else None


@dataclass(frozen=True)
class Region:
    """The operations between some values and one that is computed from them.

    Attributes:
        operations: In the order of the graph.
        ends: Where it begins: the values, with what was found to end at each.
        foreign: A value without a producer that it reaches, if it does.
    """

    operations: list[Operation]
    ends: dict[Value, Any]
    foreign: Value | None


def region_before(value: Value, folded: Folded, begins: Callable[[Value], Any], limit: int = 200) -> Region:
    """Goes back from a value to those at which something ends that was looked for.

    Args:
        value: Where to begin.
        folded: The graph, for the order.
        begins: What ends at a value; None to go on.
        limit: Operations after which to give up.
    """
    found: dict[Value, Any] = {}
    inside: dict[Operation, None] = {}
    waiting, seen = [value], {value}
    foreign = None
    while waiting and len(inside) <= limit:
        here = waiting.pop()
        end = begins(here)
        if end is not None:
            found[here] = end
            continue
        if here.producer is None:
            foreign = here
            continue
        inside.setdefault(here.producer)
        for operand in here.producer.operands:
            if not operand.constant and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    order = {operation: place for place, operation in enumerate(folded.operations)}
    ranked = sorted(inside, key=order.__getitem__)

    def rank(item: tuple[Value, Any]) -> int:
        """Where the operation stands at which an end was found; an input stands before all."""
        value, end = item
        origin = getattr(end, "base", value.producer)
        return -1 if origin is None else order[origin]

    return Region(ranked, dict(sorted(found.items(), key=rank)), foreign)


def readers_of(value: Value, *ops: str) -> Iterator[Operation]:
    """Those readers that are of these operators."""
    return (reader for reader in value.readers if reader.op in ops)
