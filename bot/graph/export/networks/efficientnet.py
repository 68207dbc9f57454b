"""EfficientNet (Tan and Le, 2019), with the tensor names of timm and the padding of TensorFlow, where it was trained.

A block's kernel, its channels and whether it expands stand in the shapes of its tensors. Its stride does not: the seven
stages of every EfficientNet have the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

STAGE_STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage; the others keep the size."""

STEM_STRIDE = 2
EPSILON = 1e-3
"""Of the batch normalisations, in every network that was trained in TensorFlow."""


@dataclass(frozen=True)
class BlockShape:
    """The sizes of a block.

    Attributes:
        entering: Channels in.
        inner: Channels of the depthwise convolution; as many as come in if the block does not expand.
        leaving: Channels out.
        squeezed: Channels between the two layers of the gate.
        kernel: Of the depthwise convolution.
        stride: Of the depthwise convolution.
        expands: There is a convolution before the depthwise one.
    """

    entering: int
    inner: int
    leaving: int
    squeezed: int
    kernel: int
    stride: int
    expands: bool


@dataclass(frozen=True)
class EfficientNetShape:
    """The sizes of a network.

    Attributes:
        stem: Channels of the first convolution.
        stages: The blocks of each stage.
        features: Channels of the result.
    """

    stem: int
    stages: tuple[tuple[BlockShape, ...], ...]
    features: int


class EfficientNet(nn.Module):
    """Pictures [B, 3, H, W] to features [B, features]: all but the classifier."""

    def __init__(self, shape: EfficientNetShape) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(3, shape.stem, 3, STEM_STRIDE)
        self.bn1 = _norm(shape.stem)
        self.blocks = nn.Sequential(*(nn.Sequential(*map(_block, stage)) for stage in shape.stages))
        self.conv_head = SameConv2d(shape.stages[-1][-1].leaving, shape.features, 1)
        self.bn2 = _norm(shape.features)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Gives the means over the picture of the last layer's channels."""
        values = functional.silu(self.bn1(self.conv_stem(pixel_values)))
        values = functional.silu(self.bn2(self.conv_head(self.blocks(values))))
        return values.mean(dim=(2, 3))


class SameConv2d(nn.Conv2d):
    """A convolution without bias whose result has ceil(size / stride) rows and columns.

    Where the padding is uneven, the odd row is at the bottom and the odd column on the right, as in TensorFlow.
    """

    def __init__(self, entering: int, leaving: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(entering, leaving, kernel, stride, groups=groups, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Pads and convolves."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        pads: list[int] = []
        # int: a tracer would put the arithmetic on a size that is fixed into the graph.
        for size in (int(values.shape[3]), int(values.shape[2])):
            needed = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [needed // 2, needed - needed // 2]
        return super().forward(functional.pad(values, pads) if any(pads) else values)


class _Gate(nn.Module):
    """Squeeze and excitation (Hu et al., 2018): each channel is scaled by what all of the picture says of it."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, squeezed, 1)
        self.conv_expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        whole = functional.silu(self.conv_reduce(values.mean(dim=(2, 3), keepdim=True)))
        return values * torch.sigmoid(self.conv_expand(whole))


class _DepthwiseBlock(nn.Module):
    """A block that does not expand: depthwise, gate, pointwise."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.conv_dw = SameConv2d(shape.inner, shape.inner, shape.kernel, shape.stride, groups=shape.inner)
        self.bn1 = _norm(shape.inner)
        self.se = _Gate(shape.inner, shape.squeezed)
        self.conv_pw = SameConv2d(shape.inner, shape.leaving, 1)
        self.bn2 = _norm(shape.leaving)
        self.skips = _skips(shape)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        inner = self.se(functional.silu(self.bn1(self.conv_dw(values))))
        result: torch.Tensor = self.bn2(self.conv_pw(inner))
        return values + result if self.skips else result


class _ExpandingBlock(nn.Module):
    """An inverted residual (Sandler et al., 2018): pointwise up, depthwise, gate, pointwise down."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.conv_pw = SameConv2d(shape.entering, shape.inner, 1)
        self.bn1 = _norm(shape.inner)
        self.conv_dw = SameConv2d(shape.inner, shape.inner, shape.kernel, shape.stride, groups=shape.inner)
        self.bn2 = _norm(shape.inner)
        self.se = _Gate(shape.inner, shape.squeezed)
        self.conv_pwl = SameConv2d(shape.inner, shape.leaving, 1)
        self.bn3 = _norm(shape.leaving)
        self.skips = _skips(shape)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        inner = functional.silu(self.bn1(self.conv_pw(values)))
        inner = self.se(functional.silu(self.bn2(self.conv_dw(inner))))
        result: torch.Tensor = self.bn3(self.conv_pwl(inner))
        return values + result if self.skips else result


def _block(shape: BlockShape) -> nn.Module:
    return _ExpandingBlock(shape) if shape.expands else _DepthwiseBlock(shape)


def _skips(shape: BlockShape) -> bool:
    return shape.stride == 1 and shape.entering == shape.leaving


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON)
