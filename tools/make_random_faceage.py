"""Make a FaceAge model with random weights: the real architecture, from the real library, for tests and benchmarks.

The network is a DINOv3 vision transformer (registers, layer scale, rotary positions) with a CORAL age head and a
gender head. One channel of its residual stream carries a massive activation of about 1.57e5, more than half precision
holds, so that what breaks the real network breaks this one. The weights are drawn from a seed: its ages are nobody's.
The file says so itself (`random_weights` in its metadata).

It writes into the folder OUT:

    faceage_dino_fp32.onnx          one self-contained file, opset 18, IR 10, the same bytes for the same seed
    config.json                     the network's dimensions
    preprocessor_config.json        how a picture is prepared
    modeling_faceage_dino.py        the network in torch
    configuration_faceage_dino.py   its configuration class
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from random_faceage import calibration, export, weights

COUNTED = ("MatMul", "LayerNormalization", "Softmax", "Gemm", "Conv")
CALIBRATION_SEEDS = range(5)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, make the model or the table, and return the exit code."""
    options = _parser().parse_args(arguments)
    size = weights.SIZES[options.size]
    if options.calibrate:
        return _calibrate(size, options.pictures)
    if options.out is None:
        print("Say where to write the model: --out FOLDER.", file=sys.stderr)
        return 2
    return _make(size, options.seed, options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Full size needs 6 GB of memory and about two minutes on two cores; mini takes a few seconds.",
    )
    parser.add_argument(
        "--size",
        choices=sorted(weights.SIZES),
        default="mini",
        help="mini: 3 layers, 64 wide, under 1 MB; full: ViT-L/16, 24 layers, 1024 wide, 1.2 GB (default: mini)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the weights are drawn from it (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go; it is made if it is not there")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="write nothing; for five seeds, print how far half precision moves the ages",
    )
    parser.add_argument(
        "--pictures", type=int, default=48, metavar="N", help="synthetic pictures to calibrate with (default: 48)"
    )
    return parser


def _make(size: weights.Size, seed: int, folder: Path) -> int:
    import onnx

    start = time.monotonic()
    print(f"Drawing the weights of the {size.name} network from seed {seed} and exporting it ...", flush=True)
    path = export.write_all(size, seed, folder)
    nodes = Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    print(f"{path}: {path.stat().st_size:,} bytes, {time.monotonic() - start:.0f} s")
    print(f"sha256 {digest}")
    print(", ".join(f"{nodes[kind]} {kind}" for kind in COUNTED), f"of {sum(nodes.values())} nodes")
    return 0


def _calibrate(size: weights.Size, pictures: int) -> int:
    scale = f"age head times {weights.AGE_SCALE:g}"
    print(f"Size {size.name}, {scale}, {pictures} synthetic pictures, ONNX Runtime on the CPU.")
    print("seed   age mean, std   male   two steps: mean, max   gender stays   plain gives NaN   casts removed")
    rows = []
    for seed in CALIBRATION_SEEDS:
        row = calibration.measure(size, seed, pictures)
        rows.append(row)
        print(
            f"{row.seed:4}   {row.age_mean:8.1f}, {row.age_std:3.1f}   {row.male:4.0%}"
            f"   {row.mean_difference:15.4f}, {row.max_difference:.4f}   {row.agreement:12.0%}"
            f"   {row.plain_nan:15.0%}   {row.up_casts:6} up, {row.down_casts} down",
            flush=True,
        )
    worst = max(row.mean_difference for row in rows)
    print(f"Worst mean difference of the five: {worst:.4f} years.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
