from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bot.graph.model_file import read_model, write_model

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS, MATRICES = 2048, 4096, 6
WEIGHTS = ROWS * COLUMNS * 4 * MATRICES
"""200 MB."""

CHILD = """
import json, sys
from pathlib import Path
from bot.graph import tasks

def convert(source, output):
    arguments = {**json.loads(sys.argv[1]), "source": source, "output": output}
    tasks.step({**arguments, "scratch": "", "feeds": None, "code": None}, lambda done, total, what: None)
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

print(json.dumps([convert(*pair) for pair in (sys.argv[2:4], sys.argv[4:6])]))
"""


def peaks(step: str, parameters: dict[str, Any], *paths: Path) -> list[int]:
    """Bytes of memory at most after each of two conversions in one process: source, output, source, output."""
    given = json.dumps({"step": step, "parameters": parameters})
    command = [sys.executable, "-c", CHILD, given, *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    return list(json.loads(answer.stdout))


def stack(folder: Path, rows: int, columns: int) -> Path:
    """Matrices around LayerNorms, with their weights in a sparse file beside the graph: all zero but for a few."""
    folder.mkdir()
    name = "stack.onnx.data"
    nodes, tensors, place = [], [], 0
    with (folder / name).open("wb") as stream:
        for number in range(MATRICES):
            shape = (rows, columns) if number % 2 == 0 else (columns, rows)
            tensor = TensorProto(name=f"w{number}", dims=shape, data_type=TensorProto.FLOAT)
            tensor.data_location = TensorProto.EXTERNAL
            length = rows * columns * 4
            for key, value in (("location", name), ("offset", place), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            stream.seek(place)
            stream.write(np.array([1.0, 3e-6, -2.5], np.float32).data)
            place += length
            tensors.append(tensor)
            gain = helper.make_tensor(f"g{number}", TensorProto.FLOAT, [shape[0]], [1.0] * shape[0])
            tensors.append(gain)
            nodes.append(helper.make_node("LayerNormalization", [f"x{number}", gain.name], [f"n{number}"]))
            nodes.append(helper.make_node("MatMul", [f"n{number}", tensor.name], [f"x{number + 1}"]))
        stream.truncate(place)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", rows]) for name in ("x0", f"x{MATRICES}")]
    graph = helper.make_graph(nodes, "stack", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "stack.onnx").write_bytes(model.SerializeToString())
    return folder / "stack.onnx"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel's high-water mark is read from /proc")
@pytest.mark.parametrize("beside", [True, False], ids=["weights beside the graph", "one file"])
def test_memory_does_not_grow_with_the_weights(beside: bool, tmp_path: Path) -> None:
    """A conversion of 200 MB takes 32 MB more, at its peak, than one of a few kB in the same process before it."""
    small, large = stack(tmp_path / "small", 16, 8), stack(tmp_path / "large", ROWS, COLUMNS)
    if not beside:
        write_model(read_model(large), tmp_path / "one.onnx")
        large = tmp_path / "one.onnx"
        assert large.stat().st_size > WEIGHTS
    outputs = [tmp_path / "small.onnx", tmp_path / "large.onnx"]
    before, after = peaks("float16", {"keep": ["LayerNormalization"]}, small, outputs[0], large, outputs[1])
    assert after - before < 32e6 < WEIGHTS / 6
    assert WEIGHTS / 2 < outputs[1].stat().st_size < WEIGHTS / 2 + 1e6
    tensor = next(each for each in onnx.load(outputs[1]).graph.initializer if each.name.startswith("w3"))
    assert tensor.data_type == TensorProto.FLOAT16
    assert tensor.raw_data[:6] == np.array([1.0, 3e-6, -2.5], np.float16).tobytes()
    assert not any(tensor.raw_data[6:])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel's high-water mark is read from /proc")
def test_memory_does_not_grow_with_weights_in_eight_bits(tmp_path: Path) -> None:
    small, large = stack(tmp_path / "small", 64, 64), stack(tmp_path / "large", ROWS, COLUMNS)
    outputs = [tmp_path / "small.onnx", tmp_path / "large.onnx"]
    before, after = peaks("quantize_weights", {}, small, outputs[0], large, outputs[1])
    assert after - before < 32e6 < WEIGHTS / 6
    assert WEIGHTS / 4 < outputs[1].stat().st_size < WEIGHTS / 4 + 1e6
    tensor = next(each for each in onnx.load(outputs[1]).graph.initializer if each.name == "w3_int8")
    assert tensor.raw_data[:3] == np.array([127, 127, -127], np.int8).tobytes()  # each is the largest of its channel
    assert not any(tensor.raw_data[3:])
