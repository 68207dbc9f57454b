"""Wall time, processor time and peak memory of conversions of large files, beside onnxconverter-common's.

    python tools/make_random_faceage.py --size full --out FOLDER
    python benchmarks/graph/streaming.py FOLDER

Every conversion is a process of its own, and what is measured is all of it, from the start of the interpreter: for the
bot, its worker's task without the sandbox. The peak is the kernel's high-water mark of that process's resident memory.
The runs are interleaved and each is repeated; the table shows medians. Files are read from the page cache, which is
warmed before each run. The bot syncs what it writes, onnxconverter-common does not: on a busy disk that is most of the
bot's wall time, which is why megabytes per second of processor time stand beside those per second.

Two files of more than 4 GB, with their weights outside, are made to see that neither memory nor throughput depends on
the size: a stack of matrices and LayerNorms for float16, and for rebuild the DINOv3 with four times as many blocks.
They have no peer: what holds a whole model in memory would need more of it than most machines have.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

SOURCE = "faceage_dino_fp32.onnx"
KEEP = ["LayerNormalization", "Softmax", "Add", "Mul"]
PEER = "onnxconverter-common"
BOT: dict[str, tuple[str, dict[str, Any]]] = {
    "bot float16": ("float16", {"keep": KEEP}),
    "bot rebuild": ("rebuild", {"architecture": "dinov3"}),
}
LAYERS, WIDTH = 34, 4096
"""Of the stack beyond 4 GB: each layer has two matrices of 64 MiB."""

TIMES = 4
"""How often the blocks of the network are repeated for a DINOv3 beyond 4 GB."""

BOUNDS = {"bot float16": (120, 1 / 6), "bot rebuild": (300, 1 / 4)}
"""MB of peak memory, and share of the peer's wall time."""


def main() -> None:
    """Convert, compare with the bounds, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the full-size random-weight model lies")
    parser.add_argument("--scratch", type=Path, help="for what is written, 9 GB (default: a temporary folder)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "graph_streaming.json")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], Path(options.one[1]), Path(options.one[2]))
        return
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        result = measure(options, Path(scratch))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    show(result)
    sys.exit(0 if all(bound["kept"] for bound in result["bounds"].values()) else 1)


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """All runs, and what they come to."""
    beside = external_copy(options.folder / SOURCE, scratch / "beside")
    large, deep = large_model(scratch / "large"), deep_network(options.folder / SOURCE, scratch / "deep")
    plan = [(PEER, options.folder / SOURCE), *((name, options.folder / SOURCE) for name in BOT)]
    plan += [("bot rebuild", beside), ("bot float16", large), ("bot rebuild", deep)]
    plan += [("imports alone", options.folder / SOURCE)]
    runs: dict[tuple[str, Path], list[dict[str, Any]]] = {each: [] for each in plan}
    load = os.getloadavg()[0]
    for _ in range(options.repeats):
        for (name, source), found in runs.items():
            found.append(in_a_process(name, source, scratch / "out"))
            print(f"{name:22} {source.parent.name:10} {found[-1]}", flush=True)
    rows = [row(name, source, found, options.folder) for (name, source), found in runs.items()]
    return {
        "what": "conversion of large files to float16, and their rebuild, without holding them in memory",
        "command": f"python benchmarks/graph/streaming.py FOLDER --repeats {options.repeats}",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "load_before": load},
        "versions": {name: version(name) for name in ("onnx", "numpy", "protobuf", "onnxconverter-common")},
        "rows": rows,
        "bounds": {name: bound(rows, name) for name in BOUNDS},
    }


def row(name: str, source: Path, found: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Medians of one conversion of one file."""
    size = sum(each.stat().st_size for each in source.parent.iterdir() if each.name.startswith(source.name))
    wall = statistics.median(each["wall_s"] for each in found)
    spent = statistics.median(each["processor_s"] for each in found)
    return {
        "what": name,
        "file": "one file" if source.parent == folder else f"external data, {source.parent.name}",
        "source_bytes": size,
        "result_bytes": found[-1]["result_bytes"],
        "wall_s": round(wall, 2),
        "processor_s": round(spent, 2),
        "peak_mb": round(max(each["peak_mb"] for each in found), 1),
        "mb_per_s": round(size / 1e6 / wall),
        "mb_per_processor_s": round(size / 1e6 / spent),
        "every_wall_s": [each["wall_s"] for each in found],
    }


def bound(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Whether a conversion of the single file is within its bounds."""
    single = {each["what"]: each for each in rows if each["file"] == "one file"}
    share = single[name]["wall_s"] / single[PEER]["wall_s"]
    megabytes, most = BOUNDS[name]
    kept = single[name]["peak_mb"] < megabytes and share < most
    return {"peak_mb_below": megabytes, "share_of_peer_below": round(most, 4), "share": round(share, 4), "kept": kept}


def in_a_process(name: str, source: Path, folder: Path) -> dict[str, Any]:
    """One conversion, measured from outside but for its peak, which it reads of itself at its end."""
    folder.mkdir(exist_ok=True)
    for each in source.parent.iterdir():
        if each.name.startswith(source.name):
            warm(each)
    before = os.times()
    started = time.perf_counter()
    command = [sys.executable, __file__, str(source.parent), "--one", name, str(source), str(folder / "result.onnx")]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    wall, after = time.perf_counter() - started, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    size = sum(each.stat().st_size for each in folder.iterdir())
    for each in folder.iterdir():
        each.unlink()
    peak = json.loads(answer.stdout.splitlines()[-1])["peak_mb"]
    return {"wall_s": round(wall, 2), "processor_s": round(spent, 2), "peak_mb": peak, "result_bytes": size}


def warm(path: Path) -> None:
    """Reads a file into the page cache."""
    with path.open("rb", buffering=0) as stream:
        buffer = bytearray(1 << 22)
        while stream.readinto(buffer):
            pass


def one(name: str, source: Path, output: Path) -> None:
    """The child: converts, and says how much memory it had at most."""
    peers: dict[str, Callable[[Path, Path], None]] = {PEER: convert_with_common, "imports alone": import_alone}
    if name in peers:
        peers[name](source, output)
    else:
        from bot.graph import tasks

        step, parameters = BOT[name]
        arguments = {"step": step, "source": str(source), "output": str(output), "parameters": parameters}
        arguments |= {"scratch": str(output.parent), "feeds": None, "code": None}
        tasks.step(arguments, lambda done, total, what: None)
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    print(json.dumps({"peak_mb": round(peak * 1024 / 1e6, 1)}))


def convert_with_common(source: Path, output: Path) -> None:
    """As its own documentation says to use it."""
    import onnx
    from onnxconverter_common import float16

    warnings.simplefilter("ignore")
    onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), output)


def import_alone(source: Path, output: Path) -> None:
    """What the bot's conversion imports, and nothing done with it."""
    from bot.graph import tasks
    from bot.graph.steps import load_step

    load_step("float16", None)
    output.write_bytes(tasks.__name__.encode())


def external_copy(source: Path, folder: Path) -> Path:
    """The same model with its weights in a second file."""
    from bot.graph.model_file import read_model, write_model

    write_model(read_model(source), folder / source.name, beside=True)
    return folder / source.name


def large_model(folder: Path) -> Path:
    """A model of more than 4 GB; its matrices differ in name alone, as neither reading nor rounding knows."""
    import numpy as np
    from onnx import TensorProto, helper

    folder.mkdir()
    matrix = (np.random.default_rng(0).standard_normal((WIDTH, WIDTH)) * 0.02).astype(np.float32)
    vector = np.ones(WIDTH, np.float32)
    tensors, nodes, value = [], [], "x"
    with (folder / "large.onnx.data").open("wb") as stream:

        def tensor(name: str, array: Any) -> str:
            made = TensorProto(name=name, dims=array.shape, data_type=TensorProto.FLOAT)
            made.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "large.onnx.data"), ("offset", stream.tell()), ("length", array.nbytes)):
                made.external_data.add(key=key, value=str(text))
            stream.write(array.data)
            tensors.append(made)
            return name

        for layer in range(LAYERS):
            gain, bias = tensor(f"gain{layer}", vector), tensor(f"bias{layer}", vector)
            nodes.append(helper.make_node("LayerNormalization", [value, gain, bias], [f"n{layer}"]))
            nodes.append(helper.make_node("MatMul", [f"n{layer}", tensor(f"a{layer}", matrix)], [f"h{layer}"]))
            nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"]))
            nodes.append(helper.make_node("MatMul", [f"r{layer}", tensor(f"b{layer}", matrix)], [f"m{layer}"]))
            nodes.append(helper.make_node("Add", [value, f"m{layer}"], [f"y{layer}"]))
            value = f"y{layer}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (folder / "large.onnx").write_bytes(model.SerializeToString())
    return folder / "large.onnx"


def deep_network(source: Path, folder: Path) -> Path:
    """The network of a file with its blocks several times over, each with weights of its own; more than 4 GB."""
    from onnx import NodeProto

    from bot.graph.model_file import read_model, write_model
    from bot.graph.rebuild.folding import fold
    from bot.graph.rebuild.network import DINOV3, read_network

    model = read_model(source)
    graph = model.proto.graph
    stream = read_network(fold(model, 2), DINOV3).stream
    first, last = stream[0].name, stream[-1].name
    blocks = between(graph.node, first, last)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    place = 1 + max(number for number, node in enumerate(graph.node) if last in node.output)
    behind = [NodeProto.FromString(node.SerializeToString()) for node in graph.node[place:]]
    del graph.node[place:]
    end = last
    for time_ in range(1, TIMES):
        names = {name: f"{name}/{time_}" for node in blocks for name in node.output if name} | {first: end}
        for node in blocks:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.name}/{time_}"
            for index, name in enumerate(node.input):
                if name in weights and name not in names:
                    names[name] = f"{name}/{time_}"
                    tensor = graph.initializer.add()
                    tensor.CopyFrom(weights[name])
                    tensor.name = names[name]
                    payload = model.payload_of(weights[name])
                    if payload is not None:
                        model.point(tensor, payload)
                copy.input[index] = names.get(name, name)
            copy.output[:] = [names.get(name, name) for name in node.output]
        end = names[last]
    for node in behind:
        node.input[:] = [end if name == last else name for name in node.input]
    graph.node.extend(behind)
    del graph.value_info[:]
    folder.mkdir()
    write_model(model, folder / "deep.onnx", beside=True)
    return folder / "deep.onnx"


def between(nodes: Any, first: str, last: str) -> list[Any]:
    """The nodes that compute one value out of another, in order."""
    after = {first}
    for node in nodes:
        if after & set(node.input):
            after |= set(node.output)
    needed, found = {last}, []
    for node in reversed(nodes):
        if needed & set(node.output) and after & set(node.output):
            needed |= set(node.input) - {first}
            found.append(node)
    return found[::-1]


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def show(result: dict[str, Any]) -> None:
    """Prints the table."""
    print(f"\n{'':22}{'file':26}{'GB':>6}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}{'MB/s':>7}{'MB/cpu s':>10}")
    for each in result["rows"]:
        numbers = f"{each['source_bytes'] / 1e9:6.2f}{each['wall_s']:9.2f}{each['processor_s']:9.2f}"
        print(
            f"{each['what']:22}{each['file']:26}{numbers}{each['peak_mb']:9.1f}{each['mb_per_s']:7}{each['mb_per_processor_s']:10}"
        )
    for name, each in result["bounds"].items():
        wanted = f"below {each['peak_mb_below']} MB and {each['share_of_peer_below']:.3f} of {PEER}'s time"
        print(f"{name}: {each['share']:.3f} of its time; {wanted}: {'kept' if each['kept'] else 'NOT KEPT'}")


if __name__ == "__main__":
    main()
