"""Writes projections of normed values, and makes good in them what the norm's rounding changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bot.graph.rebuild.builder import Builder
from bot.graph.rebuild.calibration import lost
from bot.graph.rebuild.patterns import Vector
from bot.graph.rebuild.reading import Projection
from bot.graph.rebuild.rounding import Normed
from bot.graph.rebuild.weights import MatrixPayload


class Projections:
    """Projections of one precision."""

    def __init__(self, builder: Builder, half: bool) -> None:
        """Writes into a graph.

        Args:
            builder: The graph.
            half: In float16.
        """
        self.builder = builder
        self.half = half
        self.dtype: type[Any] = np.float16 if half else np.float32

    def payload(self, projection: Projection, name: str, normed: Normed) -> MatrixPayload:
        """The matrix with which a projection reads a normed value."""
        factor = projection.factor if (projection.factor != 1).any() else None
        return MatrixPayload(projection.linear, projection.columns, factor, self.half, name, normed.rows)

    def bias(self, projection: Projection, normed: Normed) -> Vector:
        """Its bias, shape (columns,), with what the normed value lacks and what rounding the matrix loses of it."""
        if self.half and normed.mean is not None:
            return projection.bias + lost(self.payload(projection, "", normed), normed.mean, normed)
        if normed.rest is None:
            return projection.bias
        matrix = projection.linear.matrix()[:, projection.columns].astype(np.float64)
        missing: Vector = (normed.rest @ matrix) * projection.factor
        return projection.bias + missing

    def product(self, projection: Projection, name: str, normed: Normed) -> str:
        """Writes the product alone, and returns its name."""
        weight = self.builder.matrix(f"{name}/weight", self.payload(projection, name, normed))
        return self.builder.node("MatMul", [normed.name, weight], name)

    def biased(self, projection: Projection, name: str, normed: Normed) -> str:
        """Writes the product, and the addition of the bias where there is one."""
        return self.add(self.product(projection, name, normed), name, self.bias(projection, normed))

    def add(self, value: str, name: str, bias: Vector) -> str:
        """Writes the addition of a bias, if it is one."""
        if not bias.any():
            return value
        constant = self.builder.array(f"{name}/bias", bias.astype(self.dtype))
        return self.builder.node("Add", [value, constant], f"{name}/biased")
