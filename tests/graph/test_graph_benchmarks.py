"""The graph benchmarks: what they count and compare is right, and what needs a GPU says so where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "graph"))

import cuda
import device
import judging
import peer_table
import peers
import work

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks" / "graph"
MINI = ROOT / "tests" / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"


def save(path: Path, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **weights: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, 1, None) for name in outputs],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


# --- work ------------------------------------------------------------------------------------------------------------


def test_operations_of_every_product(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], strides=[2, 2], group=2),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["h"], transB=1),
        helper.make_node("MatMul", ["h", "m"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    kernel, first, second = np.zeros((4, 1, 2, 2)), np.zeros((10, 36)), np.zeros((10, 3))
    path = save(tmp_path / "m.onnx", nodes, {"x": ["n", 2, 6, 6]}, ["z"], k=kernel, g=first, m=second)
    # A convolution of 4 x 3 x 3 results over one channel of 2 x 2 each, then 36 to 10, then 10 to 3.
    assert work.operations(onnx.load(path), 1) == 2 * (36 * 4 + 36 * 10 + 10 * 3)
    assert work.operations(onnx.load(path), 7) == 7 * work.operations(onnx.load(path), 1)


def test_operations_of_a_vision_transformer_are_those_of_the_formula() -> None:
    """24 D² a token and block for the projections, 4 N² D for scores and values: as papers count them, times two."""
    width, layers, tokens, patches, batch = 64, 3, 201, 196, 2
    blocks = layers * (tokens * 24 * width**2 + 4 * tokens**2 * width)
    embedding = 2 * patches * width * 3 * 16 * 16
    head = work.operations(onnx.load(MINI), batch) / batch - blocks - embedding
    assert 0 <= head < 0.001 * blocks


def test_products_that_cannot_be_counted_are_no_zero(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "y"], ["z"])], {"x": [2, 3], "y": []}, ["z"])
    proto = onnx.load(path)
    proto.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(ValueError, match="the shape of"):
        work.operations(proto, 1)
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["b"])], "b", [], [helper.make_empty_tensor_value_info("b")]
    )
    proto.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch))
    del proto.graph.node[0]
    with pytest.raises(ValueError, match="has products inside"):
        work.operations(proto, 1)


def test_bytes_that_a_run_cannot_do_without(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["z"])], {"x": [4, 8]}, ["z"], w=np.ones((8, 2))
    )
    feeds, answers = {"x": np.ones((4, 8), np.float32)}, {"z": np.ones((4, 2), np.float32)}
    assert work.least_bytes(path, feeds, answers) == path.stat().st_size + 4 * (4 * 8 + 4 * 2)


def test_shares_of_the_peaks() -> None:
    found = cuda.shares(2.0, 10**9, 10**6, {"flops_per_s": 1e12, "bytes_per_s": 1e9})
    assert found == {"ms": 2.0, "share_of_fp16_peak": 0.5, "share_of_bandwidth": 0.5}
    assert "share_of_fp16_peak" not in cuda.shares(2.0, None, 1, {"flops_per_s": 1.0, "bytes_per_s": 1.0})


# --- the device ------------------------------------------------------------------------------------------------------


def test_bound_inputs_and_outputs_give_the_plain_answer() -> None:
    """The very path that a GPU takes, on the CPU: two batch sizes of one session, each with places of its own."""
    here = device.Device("cpu", threads=1)
    session = here.open(MINI)
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((size, 3, 224, 224)).astype(np.float32) for size in (1, 2)]
    bound = [here.bind(session, {"face": array}, number) for number, array in enumerate(batches, start=1)]
    for each in (*bound, *reversed(bound)):
        each.run()
    for each, array in zip(bound, batches, strict=True):
        expected = session.run(None, {"face": array})
        for name, want in zip(["age_logits", "gender_logits"], expected, strict=True):
            assert np.abs(each.answers()[name] - want).max() < 1e-5
    assert min(device.in_turns([each.run for each in bound], 0.0, warmup=1, least=3)) > 0


def test_a_gpu_is_told_what_a_cuda_graph_needs() -> None:
    assert device.Device("cuda").provider_options() == {"enable_cuda_graph": "0"}
    told = device.Device("cuda", graphs=True, strict=True).provider_options()
    assert told == {"enable_cuda_graph": "1", "enable_skip_layer_norm_strict_mode": "1"}
    assert device.Device("cpu", graphs=True).provider_options() == {}


def test_the_models_of_the_peaks_compute_what_they_say(tmp_path: Path) -> None:
    here = device.Device("cpu", threads=1)
    eye = np.eye(16, dtype=np.float16) * 2
    product = device._bound(here, tmp_path / "p.onnx", device.product_model(16, 3), {"x": eye, "w": eye})
    product.run()
    assert np.array_equal(next(iter(product.answers().values())), eye * 8)
    copied = device._bound(here, tmp_path / "c.onnx", device.copy_model(5), {"x": np.arange(5, dtype=np.float16)})
    copied.run()
    assert np.array_equal(copied.answers()["y"], -np.arange(5, dtype=np.float16))
    found = device.peaks(here, tmp_path, size=64, numbers=4096, seconds=0.0)
    assert min(found.values()) > 0


def test_without_a_gpu_there_are_no_figures(tmp_path: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        device.require_cuda()
        return
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "cuda.py"), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "no figures: " in done.stderr
    assert "NVIDIA GPU" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_whole_way_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tools of a small model: files are made, bound, timed with their shares, and compared with the source."""
    place = lay_out(tmp_path / "faceage-mini")
    arguments = ["cuda.py", str(tmp_path), "--provider", "cpu", "--models", "faceage-mini", "--peers", "bot-rebuild"]
    arguments += ["bot-rebuild-packed", "--seconds", "0", "--batches", "1", "2", "--peak-size", "64"]
    arguments += ["--peak-numbers", "4096", "--out", str(tmp_path / "out.json")]
    before, sys.argv = sys.argv, arguments
    try:
        assert cuda.main() == 0
    finally:
        sys.argv = before
    found = json.loads((tmp_path / "out.json").read_text())
    files = found["models"]["faceage-mini"]["files"]
    assert set(files) == {"source", "bot-rebuild", "bot-rebuild-packed"}
    for batch in ("1", "2"):
        row = files["bot-rebuild"]["batches"][batch]["plain"]
        assert row["ms"] > 0
        assert row["share_of_fp16_peak"] > 0
    assert files["bot-rebuild"]["accuracy"]["years_mean"] < 0.05
    assert files["source"]["accuracy"]["relative"] < 1e-5
    assert "Packed QKV" in files["bot-rebuild-packed"]["batches"]["1"]["plain"]["reason"]
    assert "| bot-rebuild | 1 |" in capsys.readouterr().out
    assert place.exists()


def lay_out(place: Path) -> Path:
    """A model's folder as material.py lays it out, with noise for pictures."""
    place.mkdir(parents=True)
    (place / "source.onnx").write_bytes(MINI.read_bytes())
    rng = np.random.default_rng(0)
    faces = rng.standard_normal((3, 3, 224, 224)).astype(np.float32)
    np.savez(place / "samples.npz", **{"0/face": faces[:2], "1/face": faces[2:]})
    np.savez(place / "calibration.npz", face=rng.standard_normal((2, 3, 224, 224)).astype(np.float32))
    for size in (1, 2):
        np.savez(place / f"batch_{size}.npz", face=faces[:size])
    about = {"what": "a small network", "rebuild": "dinov3", "decode": "coral"}
    (place / "about.json").write_text(json.dumps(about))
    return place


# --- peers -----------------------------------------------------------------------------------------------------------


def test_time_and_memory_of_a_process_are_its_own() -> None:
    held = bytearray(b"\1") * (600 << 20)  # what this process holds is none of the program's
    code = "import time; x = bytearray(150 << 20); time.sleep(0.3); print('done')"
    done = peers.measured([sys.executable, "-c", code], 60)
    assert done["status"] == 0
    assert done["output"] == "done\n"
    assert 0.3 <= done["wall_s"] < 30
    assert 150 <= done["peak_rss_mb"] < 400 and held
    assert peers.measured([sys.executable, "-c", "raise SystemExit(7)"], 60)["status"] == 7
    loud = peers.measured([sys.executable, "-c", "print('x' * 300000)"], 60)
    assert len(loud["output"]) == 300001
    assert peers.measured([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)["status"] == "time-out"


def test_distances_of_answers() -> None:
    def runs(*rows: list[float]) -> judging.Answers:
        return [{"a": np.array(row, np.float32), "b": np.zeros(1, np.float32)} for row in rows]

    same = judging.distance(runs([1, 2], [3, 4]), runs([1, 2], [3, 4]), None)
    assert same == {"finite": True, "relative": 0.0}
    off = judging.distance(runs([1, 2], [3, 4]), runs([1, 2], [3, 4.4]), None)
    assert off["relative"] == pytest.approx(0.1)
    broken = judging.distance(runs([1, 2], [3, 4]), runs([1, 2], [3, float("nan")]), None)
    assert broken == {"finite": False, "relative": None}
    ages = [{"age_logits": np.zeros((1, 100), np.float32)}], [{"age_logits": np.full((1, 100), 0.01, np.float32)}]
    assert judging.distance(*ages, "coral")["years_mean"] == pytest.approx(0.25, rel=1e-3)


def test_pairs_take_turns() -> None:
    order: list[str] = []
    found = judging.time_pairs(lambda: order.append("c"), lambda: order.append("s"), 0.0, 4)
    assert order == ["c", "s"] * 5
    assert found["pairs"] == 4
    assert found["ratio"] > 0


def test_a_row_of_the_table_from_beginning_to_end(tmp_path: Path) -> None:
    """A small model through two of this project's tools and one of others, each in processes of its own."""
    lay_out(tmp_path / "faceage-mini")
    arguments = [str(BENCHMARKS / "peers.py"), str(tmp_path), "--models", "faceage-mini", "--peers", "bot-rebuild"]
    arguments += ["bot-rebuild-packed", "onnxconverter-common", "--seconds", "0", "--least", "2", "--threads", "1"]
    arguments += ["--out", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "t.md")]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "r.json").read_text())["models"]["faceage-mini"]["peers"]
    good, packed, plain = (found[name] for name in ("bot-rebuild", "bot-rebuild-packed", "onnxconverter-common"))
    assert good["checker"] == packed["checker"] == ""
    assert good["cpu"]["years_mean"] < 0.05
    assert good["latency"]["1"]["ratio"] > 0
    assert not packed["cpu"]["runs"]
    assert packed["emulated"]["years_mean"] < 0.05
    assert packed["casts"] == 3
    assert plain["emulated"]["finite"] is False
    assert str(tmp_path) not in json.dumps(found)
    page = (tmp_path / "t.md").read_text()
    assert "| **bot** `rebuild` |" in page
    assert "does not run" in page
    assert "**NaN or infinite**" in page


def test_the_page_in_the_documentation_is_that_of_the_results(tmp_path: Path) -> None:
    results = ROOT / "benchmarks" / "results" / "graph_peers.json"
    peer_table.write_table(json.loads(results.read_text("utf-8")), tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text("utf-8") == (ROOT / "docs" / "graph-benchmarks.md").read_text("utf-8")
