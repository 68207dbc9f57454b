"""Torch modules as they are exported: what an architecture has to say of itself, and where each is found.

One short module per architecture. It builds the torch module from upstream's weights and its own, typed reading of the
configuration, and describes it: inputs and outputs with named axes, the sizes at which the export is held against
torch, example inputs, and what a consumer has to know. Nothing of upstream is run. Importing this package imports no
torch.
"""

from __future__ import annotations

from bot.graph.export.interface import Architecture, Axis, Case, Exportable, Files, Port
from bot.graph.export.registry import ARCHITECTURES, find_architecture

__all__ = ["ARCHITECTURES", "Architecture", "Axis", "Case", "Exportable", "Files", "Port", "find_architecture"]
