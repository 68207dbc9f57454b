"""Writes the patch embedding: by a convolution, or by a transposition and a MatMul, which GPUs do at full speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bot.errors import StepError
from bot.graph.parameters import RebuildParameters
from bot.graph.rebuild.builder import Builder
from bot.graph.rebuild.network import Network
from bot.graph.rebuild.patterns import Vector
from bot.graph.tensors import FLOAT, FLOAT16


class PatchWriter:
    """Writes patches as rows: batch x patches x width, multiplied by the scale of the residual stream, without bias.

    Attributes:
        half: In float16.
        cells: What the MatMul reads, batch x patches x numbers; empty for a convolution.
    """

    def __init__(
        self, builder: Builder, network: Network, scale: float, parameters: RebuildParameters, elem: int
    ) -> None:
        """Writes into a graph.

        Args:
            builder: The graph.
            network: What is read.
            scale: Of the residual stream.
            parameters: Say the form.
            elem: Dtype of the rows.
        """
        self.builder = builder
        self.network = network
        self.weight = network.convolution.operands[1].read() * np.float32(scale)
        self.by_matmul = parameters.patches == "matmul"
        self.elem = elem
        # A convolution stays in the stream's precision: a cast in front of it and one behind would buy nothing.
        self.half = elem == FLOAT16 or (self.by_matmul and parameters.precision == "fp16")
        self.cells = ""

    def write(self, picture: str) -> str:
        """Writes them, and returns the name of the rows.

        Args:
            picture: Its name.

        Raises:
            StepError: The picture is no whole number of patches, which only the convolution allows.
        """
        if self.half:
            picture = self.builder.node("Cast", [picture], "patches/picture", to=FLOAT16)
        rows = self._matmul(picture) if self.by_matmul else self._convolution(picture)
        if self.half and self.elem == FLOAT:
            rows = self.builder.node("Cast", [rows], "patches/wide", to=FLOAT)
        return rows

    def _convolution(self, picture: str) -> str:
        builder, network = self.builder, self.network
        weight = self.weight.astype(np.float16) if self.half else self.weight
        kernel, strides = list(weight.shape[2:]), network.convolution.attributes["strides"]
        inputs = [picture, builder.array("patches/weight", weight)]
        patches = builder.node("Conv", inputs, "patches/projection", kernel_shape=kernel, strides=strides)
        shape = np.array([-1, network.width, network.patches], np.int64)
        flat = builder.node("Reshape", [patches, builder.array("patches/shape", shape)], "patches/flat")
        return builder.node("Transpose", [flat], "patches/rows", perm=[0, 2, 1])

    def _matmul(self, picture: str) -> str:
        builder, network = self.builder, self.network
        _, channels, height, width = network.picture.sizes
        down, across = self.weight.shape[2:]
        if height % down or width % across:
            raise StepError(
                f"has pictures of {height} x {width} pixels, no whole number of patches of {down} x {across}.",
                where="patch embedding",
                remedy="Use patches: conv.",
            )
        cut = np.array([-1, channels, height // down, down, width // across, across], np.int64)
        cells = builder.node("Reshape", [picture, builder.array("patches/cells", cut)], "patches/cut")
        cells = builder.node("Transpose", [cells], "patches/turned", perm=[0, 2, 4, 1, 3, 5])
        shape = np.array([-1, network.patches, channels * down * across], np.int64)
        self.cells = builder.node("Reshape", [cells, builder.array("patches/shape", shape)], "patches/flat")
        matrix = self._matrix()
        matrix = matrix.astype(np.float16) if self.half else matrix
        return builder.node("MatMul", [self.cells, builder.array("patches/weight", matrix)], "patches/projection")

    def _matrix(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.weight.reshape(self.network.width, -1).T)

    def lost(self, mean: Vector) -> Vector:
        """What rounding the matrix loses of the mean patch: shape (width,)."""
        matrix = self._matrix()
        difference: Vector = mean @ (matrix.astype(np.float64) - matrix.astype(np.float16).astype(np.float64))
        return difference
