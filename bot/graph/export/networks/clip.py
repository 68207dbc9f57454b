"""CLIP's encoder of pictures, a vision transformer (Radford et al., 2021, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

HEAD_WIDTH = 64
"""Channels of an attention head, in every CLIP."""


@dataclass(frozen=True)
class ClipShape:
    """The sizes of an encoder.

    Attributes:
        width: Channels of a token.
        hidden: Channels inside a block's perceptron.
        layers: Blocks.
        patch: Height and width of a patch, in pixels.
        size: Height and width of a picture, in pixels.
        embedding: Channels of the result.
    """

    width: int
    hidden: int
    layers: int
    patch: int
    size: int
    embedding: int


class PictureEncoder(nn.Module):
    """Pictures [B, 3, size, size] to embeddings [B, embedding], not normalised."""

    def __init__(self, shape: ClipShape) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, shape.width, shape.patch, shape.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(shape.width))
        self.positional_embedding = nn.Parameter(torch.empty((shape.size // shape.patch) ** 2 + 1, shape.width))
        self.ln_pre = nn.LayerNorm(shape.width)
        self.transformer = _Transformer(shape)
        self.ln_post = nn.LayerNorm(shape.width)
        self.proj = nn.Parameter(torch.empty(shape.width, shape.embedding))

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Encodes pictures."""
        patches = self.conv1(pixel_values).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(patches.shape[0], 1, -1)
        tokens = self.transformer(self.ln_pre(torch.cat([first, patches], dim=1) + self.positional_embedding))
        return torch.matmul(self.ln_post(tokens[:, 0]), self.proj)


class _Transformer(nn.Module):
    def __init__(self, shape: ClipShape) -> None:
        super().__init__()
        self.resblocks = nn.Sequential(*(_Block(shape) for _ in range(shape.layers)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.resblocks(tokens)
        return mixed


class _Block(nn.Module):
    def __init__(self, shape: ClipShape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width)
        self.attn = _Attention(shape.width)
        self.ln_2 = nn.LayerNorm(shape.width)
        self.mlp = _Perceptron(shape)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attn(self.ln_1(tokens))
        result: torch.Tensor = tokens + self.mlp(self.ln_2(tokens))
        return result


class _Attention(nn.Module):
    """Attention of all tokens to all, its three projections in one tensor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length, width = tokens.shape
        parts = functional.linear(tokens, self.in_proj_weight, self.in_proj_bias)
        heads = parts.reshape(batch, length, 3, width // HEAD_WIDTH, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(heads[0] * HEAD_WIDTH**-0.5, heads[1].transpose(-1, -2))
        mixed = torch.matmul(scores.softmax(dim=-1), heads[2])
        result: torch.Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return result


class _Perceptron(nn.Module):
    def __init__(self, shape: ClipShape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.width, shape.hidden)
        self.c_proj = nn.Linear(shape.hidden, shape.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inner = self.c_fc(tokens)
        # CLIP was trained with this approximation of GELU (Hendrycks and Gimpel, 2016, section 2).
        result: torch.Tensor = self.c_proj(inner * torch.sigmoid(1.702 * inner))
        return result
