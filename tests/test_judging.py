"""Steps that calibrate and search, in the worker: on a detector of the YOLO architecture, judged by its detections."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import make_random_yolo

from bot.errors import StepError
from bot.judging import Judge, JudgeArguments
from bot.measure.batch_invariance import check_batch_invariance
from bot.measure.sessions import open_session
from bot.worker import Worker

SIZE = make_random_yolo.SIZES["tiny"].pixels
COUNT = 6
IMAGE = {"size": [SIZE, SIZE], "scale": 1 / 255, "fit": "letterbox", "pad_value": 114}
PLAN = {"decode": "yolo", "from": "output0", "metrics": ["kept", "lost", "mean_overlap", "map"]}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small detector with random weights, and drawn pictures."""
    folder = tmp_path_factory.mktemp("yolo")
    make_random_yolo.write(folder / "yolo.onnx", "tiny")
    pictures = np.concatenate([make_random_yolo.drawn(SIZE, seed) for seed in range(COUNT)])
    np.save(folder / "images.npy", pictures)
    return {"model": folder / "yolo.onnx", "images": folder / "images.npy"}


def arguments(material: dict[str, Path], out: Path, gates: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    out.mkdir()
    (out / "scratch").mkdir()
    return {
        "step": "quantize_static",
        "source": str(material["model"]),
        "output": str(out / "int8.onnx"),
        "parameters": parameters,
        "scratch": str(out / "scratch"),
        "calibration": {"images": str(material["images"])},
        "inputs": {"images": IMAGE},
        "judge": {
            "reference": str(material["model"]),
            "plans": {"objects": PLAN},
            "gates": gates,
            "samples": [str(number) for number in range(COUNT)],
            "size": [SIZE, SIZE],
        },
    }


def call(given: dict[str, Any]) -> Any:
    folders = [Path(given["source"]).parent, Path(given["calibration"]["images"]).parent]
    return Worker().call("graph.search_step", given, reads=folders, writes=[Path(given["output"]).parent])


def judge(material: dict[str, Path], gates: dict[str, Any]) -> Judge:
    given = {"reference": str(material["model"]), "plans": {"objects": PLAN}, "gates": gates}
    samples = tuple(str(number) for number in range(COUNT))
    return Judge(JudgeArguments(**given, samples=samples, size=(SIZE, SIZE)), {"images": material["images"]})


def test_the_whole_graph_in_eight_bits_finds_nothing_and_auto_finds_what_to_keep(
    material: dict[str, Path], tmp_path: Path
) -> None:
    gates = {"objects.kept": {"min": 0.6}, "objects.map": {"min": 0.5}}
    call(arguments(material, tmp_path / "all", gates))
    everything = judge(material, gates).evaluate(tmp_path / "all" / "int8.onnx", 0.0, 0)
    assert not everything.passed and everything.figures["objects.kept"] == 0.0
    assert "became exactly zero" in everything.reason

    backbone = ["/model.?/*", "/model.1?/*", "/model.2[012]/*"]  # so that the search has fewer groups to try
    more = {"keep": ["auto", *backbone], "search_samples": 3, "operators": ["Conv", "Concat", "Sigmoid", "Mul"]}
    report = call(arguments(material, tmp_path / "auto", gates, **more))["report"]
    found = judge(material, gates).evaluate(tmp_path / "auto" / "int8.onnx", 0.25, 3)
    assert found.passed and found.figures == pytest.approx(report["search"]["figures"], rel=1e-3)
    searched = report["kept_because"]["eight bits would break a limit"]
    assert 0 < searched < report["nodes_quantized"]
    assert any(each["group"].startswith("/model.23/") for each in report["search"]["kept"])


def test_a_source_passes_its_own_limits_without_noise(material: dict[str, Path]) -> None:
    found = judge(material, {"objects.kept": {"min": 1}, "objects.lost": {"max": 0}}).evaluate(
        material["model"], 0.9, 0
    )
    assert found.passed and found.noise == 0.0
    assert found.figures == {"objects.kept": 1.0, "objects.lost": 0.0}


def test_a_margin_asks_for_more_than_the_limit(material: dict[str, Path], tmp_path: Path) -> None:
    call(arguments(material, tmp_path / "head", {"objects.kept": {"min": 0.1}}, keep_within=12, operators=["Conv"]))
    path = tmp_path / "head" / "int8.onnx"
    rule = "objects.mean_overlap"
    overlap = judge(material, {rule: {"min": 0.0}}).evaluate(path, 0.0, 0).figures[rule]
    assert 0 < overlap < 1
    gates = {rule: {"min": overlap - 0.01}}
    assert judge(material, gates).evaluate(path, 0.0, 0).passed
    strict = judge(material, gates).evaluate(path, 0.9, 0)
    assert not strict.passed and f"{rule} is" in strict.reason


def test_a_figure_that_cannot_be_measured_does_not_pass(material: dict[str, Path]) -> None:
    found = judge(material, {"objects.label_map": {"min": 0.1}}).evaluate(material["model"], 0.0, 0)
    assert not found.passed and found.reason == "objects.label_map cannot be measured"


def test_samples_that_were_prepared_otherwise_are_refused(material: dict[str, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    np.save(wrong / "images.npy", np.load(material["images"]) * 255)
    given = arguments({**material, "images": wrong / "images.npy"}, tmp_path / "out", {})
    with pytest.raises(StepError, match=r"inputs\.images gives 0 to 1"):
        call(given)


def test_a_dynamically_quantised_file_fails_for_its_batch_mates(tmp_path: Path) -> None:
    """One scale over the whole batch: who else is in it decides an answer."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from bot.graph import tasks

    generator = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(generator.normal(0, 0.3, shape).astype(np.float32), name)
        for name, shape in (("w", (16, 32)), ("v", (32, 4)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="a"),
        helper.make_node("Relu", ["h"], ["r"], name="b"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="c"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 16), ("y", 4))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    rows = generator.normal(size=(8, 16)).astype(np.float32) * np.array([1, 1, 1, 1, 1, 1, 1, 40])[:, None]
    np.save(tmp_path / "x.npy", rows.astype(np.float32))
    given = {
        "source": str(tmp_path / "m.onnx"),
        "scratch": str(tmp_path),
        "calibration": {"x": str(tmp_path / "x.npy")},
    }
    verdicts = {}
    for name in ("quantize_dynamic", "quantize_static"):
        output = tmp_path / f"{name}.onnx"
        tasks.step({**given, "step": name, "output": str(output)}, lambda *_: None)
        sessions = [open_session(path) for path in (tmp_path / "m.onnx", output)]
        verdicts[name] = check_batch_invariance(*sessions, {"x": rows.astype(np.float32)}).status
    assert verdicts == {"quantize_dynamic": "failed", "quantize_static": "passed"}
