"""A data2vec 2.0 network of sound (Baevski et al., 2023), as emotion2vec (Ma et al., 2024) uses it.

Convolutions make frames of a waveform; further convolutions along time say where a frame stands; two stacks of
transformer blocks follow, in whose attention a head counts far frames for less (ALiBi: Press et al., 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

STRIDES = (5, 2, 2, 2, 2, 2, 2)
"""Of the convolutions that make frames of samples: 50 frames a second of 16 kHz."""

POSITION_GROUPS = 16


@dataclass(frozen=True)
class SoundShape:
    """The sizes of a network.

    Attributes:
        convolutions: Of each over the waveform: channels in, channels out, kernel.
        width: Channels of a frame.
        hidden: Channels inside a block's perceptron.
        heads: Of attention.
        positions: Convolutions along the frames.
        kernel: Of each of those.
        extra: Tokens that are put before the frames.
        scales: How many learnt scales of the distances there are: one, or one for each block.
        before: Blocks of the first stack.
        blocks: Blocks of the second.
    """

    convolutions: tuple[tuple[int, int, int], ...]
    width: int
    hidden: int
    heads: int
    positions: int
    kernel: int
    extra: int
    scales: int
    before: int
    blocks: int

    @property
    def shortest(self) -> int:
        """Samples that give one frame."""
        samples = 1
        for (_, _, kernel), stride in zip(reversed(self.convolutions), reversed(STRIDES), strict=True):
            samples = (samples - 1) * stride + kernel
        return samples


def slopes(heads: int) -> list[float]:
    """How steeply each head's attention falls with distance (Press et al., 2022, section 3 and their appendix).

    A geometric sequence; where the number of heads is no power of two, every other one of the next power's is added.
    """
    whole = int(2 ** math.floor(math.log2(heads)))
    first = [2.0 ** (-8.0 * (head + 1) / whole) for head in range(whole)]
    between = [2.0 ** (-4.0 * (head + 1) / whole) for head in range(2 * whole)]
    return first + between[0::2][: heads - whole]


class SoundNetwork(nn.Module):
    """Waveforms [B, samples] to features [B, frames, width].

    Args:
        shape: The sizes.
        normalize: Bring each waveform to mean 0 and variance 1 first.
        distances: `symmetric`, as trained; `signed` counts later frames for more, and the extra tokens as frames.
    """

    slopes: torch.Tensor

    def __init__(self, shape: SoundShape, normalize: bool, distances: Literal["symmetric", "signed"]) -> None:
        super().__init__()
        self.shape, self.normalize, self.distances = shape, normalize, distances
        features = shape.convolutions[-1][1]
        self.local_encoder = _LocalEncoder(shape)
        self.project_features = nn.ModuleDict({"1": nn.LayerNorm(features), "2": nn.Linear(features, shape.width)})
        self.relative_positional_encoder = _Positions(shape)
        self.extra_tokens = nn.Parameter(torch.empty(1, shape.extra, shape.width))
        self.alibi_scale = nn.Parameter(torch.empty(shape.scales, 1, shape.heads, 1, 1))
        self.context_encoder = _ContextEncoder(shape)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.blocks))

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        """Gives the features of frames, without those of the extra tokens."""
        if self.normalize:
            centred = waveform - waveform.mean(dim=1, keepdim=True)
            waveform = centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + 1e-5)
        frames = self.project_features["1"](self.local_encoder(waveform))
        frames = self.project_features["2"](frames)
        frames = frames + self.relative_positional_encoder(frames)
        tokens: torch.Tensor = torch.cat([self.extra_tokens.expand(frames.shape[0], -1, -1), frames], dim=1)
        tokens = self.context_encoder.norm(tokens)
        scales, distances = self.alibi_scale.clamp_min(0), self._distances(frames.shape[1])
        for place, block in enumerate([*self.context_encoder.blocks, *self.blocks]):
            tokens = block(tokens, distances * scales[place if self.shape.scales > 1 else 0])
        return tokens[:, self.shape.extra :]

    def _distances(self, frames: int) -> torch.Tensor:
        """What each head adds to its scores before the learnt scale, [heads, tokens, tokens]."""
        # Made here and not kept as a buffer: a network that is first made without memory has no buffers' values.
        slope = torch.tensor(slopes(self.shape.heads), dtype=torch.float32).view(-1, 1, 1)
        symmetric, extra = self.distances == "symmetric", self.shape.extra
        place = torch.arange(frames if symmetric else frames + extra, dtype=torch.float32)
        apart = place[None, :] - place[:, None]
        if symmetric:
            return functional.pad(-apart.abs() * slope, (extra, 0, extra, 0))
        return apart * slope


class _LocalEncoder(nn.Module):
    """Waveforms [B, samples] to [B, frames, channels]."""

    def __init__(self, shape: SoundShape) -> None:
        super().__init__()
        self.conv_layers = nn.ModuleList(
            _Convolution(entering, leaving, kernel, stride)
            for (entering, leaving, kernel), stride in zip(shape.convolutions, STRIDES, strict=True)
        )

    def forward(self, waveform: torch.Tensor) -> torch.Tensor:
        values = waveform.unsqueeze(1)
        for layer in self.conv_layers:
            values = layer(values)
        return values.transpose(1, 2)


class _Convolution(nn.ModuleDict):
    def __init__(self, entering: int, leaving: int, kernel: int, stride: int) -> None:
        norm = nn.ModuleDict({"1": nn.LayerNorm(leaving)})
        super().__init__({"0": nn.Conv1d(entering, leaving, kernel, stride, bias=False), "2": norm})

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        normalised = self["2"]["1"](self["0"](values).transpose(1, 2))  # type: ignore[index]
        return functional.gelu(normalised.transpose(1, 2))


class _Positions(nn.ModuleDict):
    """Convolutions along time whose result says where a frame stands among its neighbours."""

    def __init__(self, shape: SoundShape) -> None:
        def along_time() -> nn.Module:
            padding = shape.kernel // 2
            return nn.Conv1d(shape.width, shape.width, shape.kernel, padding=padding, groups=POSITION_GROUPS)

        super().__init__({str(number): nn.ModuleDict({"0": along_time()}) for number in range(1, shape.positions + 1)})
        self.width, self.surplus = shape.width, 1 - shape.kernel % 2

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        values = frames.transpose(1, 2)
        for layer in self.values():
            values = layer["0"](values)  # type: ignore[index]
            if self.surplus:
                values = values[..., :-1]
            normalised = functional.layer_norm(values.transpose(1, 2), (self.width,))
            values = functional.gelu(normalised.transpose(1, 2))
        return values.transpose(1, 2)


class _ContextEncoder(nn.Module):
    """The first stack, and the normalisation before it."""

    def __init__(self, shape: SoundShape) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.before))
        self.norm = nn.LayerNorm(shape.width)


class _Block(nn.Module):
    """Attention, then a perceptron, each followed by a normalisation."""

    def __init__(self, shape: SoundShape) -> None:
        super().__init__()
        self.attn = _Attention(shape.width, shape.heads)
        self.norm1 = nn.LayerNorm(shape.width)
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(shape.width, shape.hidden), "fc2": nn.Linear(shape.hidden, shape.width)}
        )
        self.norm2 = nn.LayerNorm(shape.width)

    def forward(self, tokens: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        tokens = self.norm1(tokens + self.attn(tokens, distances))
        inner = self.mlp["fc2"](functional.gelu(self.mlp["fc1"](tokens)))
        result: torch.Tensor = self.norm2(tokens + inner)
        return result


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        batch, length, width = tokens.shape
        head = width // self.heads
        parts = self.qkv(tokens).reshape(batch, length, 3, self.heads, head).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(parts[0] * head**-0.5, parts[1].transpose(-1, -2)) + distances
        mixed = torch.matmul(scores.softmax(dim=-1), parts[2])
        result: torch.Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return result
