"""The whole path with real networks and photographs, in the isolated worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from measuring_material import AGE_SPEC, encoded, write_zip
from onnx import numpy_helper
from PIL import Image, ImageEnhance

from bot.errors import UpstreamError
from bot.measure.decode import expectation
from bot.worker import Worker

BOX = (178, 70, 96, 108)
VALUES = [0.25, *range(1, 81)]
PLAN = {"decode": "expectation", "from": "probabilities", "unit": "year", "values": VALUES}


@pytest.fixture
def data(tmp_path: Path, astronaut: bytes) -> dict[str, str]:
    """Twelve versions of one photograph, brighter and darker, in WIDER FACE's layout."""
    (tmp_path / "original.png").write_bytes(astronaut)
    with Image.open(tmp_path / "original.png") as picture:
        photographs = {
            f"0--Astronaut/0_Astronaut_{step}.jpg": encoded(
                ImageEnhance.Brightness(picture.convert("RGB")).enhance(0.5 + step / 10), "JPEG", quality=92
            )
            for step in range(12)
        }
    lines = "".join(f"{name}\n1\n{' '.join(map(str, BOX))} 0 0 0 0 0 0 \n" for name in photographs)
    folder = tmp_path / "data"
    folder.mkdir()
    archive = {f"WIDER_val/images/{name}": content for name, content in photographs.items()}
    split = {"wider_face_split/wider_face_val_bbx_gt.txt": lines.encode()}
    return {
        "images": str(write_zip(folder / "WIDER_val.zip", archive)),
        "annotations": str(write_zip(folder / "wider_face_split.zip", split)),
    }


@pytest.fixture
def rounded(tmp_path: Path, age_model: Path) -> Path:
    """The age network with every weight rounded to half precision."""
    model = onnx.load(age_model)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16).astype(np.float32), tensor.name))
    (tmp_path / "models").mkdir()
    onnx.save(model, tmp_path / "models" / "rounded.onnx")
    return tmp_path / "models" / "rounded.onnx"


def test_from_photographs_to_years(tmp_path: Path, data: dict[str, str], age_model: Path, rounded: Path) -> None:
    worker, seen = Worker(), []

    def call(task: str, arguments: dict[str, Any], reads: list[Path], writes: list[Path]) -> Any:
        return worker.call(
            task, arguments, reads=reads, writes=writes, on_progress=lambda *progress: seen.append((task, *progress))
        )

    samples = call(
        "measure.samples",
        {
            "loader": "wider_face",
            "files": data,
            "plan": {"loader": None, "repo": "a/b", "revision": "main", "split": "validation", "count": 10},
            "inputs": {"age/images": {"image": AGE_SPEC}},
            "out": str(tmp_path / "samples"),
        },
        [Path(path) for path in data.values()],
        [tmp_path / "samples"],
    )
    assert samples["count"] == 10
    feeds = {"images": str(tmp_path / "samples" / "age__images.npy")}

    answers = {}
    for name, model in (("source", age_model), ("rounded", rounded)):
        answers[name] = call(
            "measure.run",
            {"model": str(model), "feeds": feeds, "batch": 4, "out": str(tmp_path / name)},
            [model.parent, tmp_path / "samples"],
            [tmp_path / name],
        )
    files = {name: {"probabilities": answer["outputs"]["probabilities"]["file"]} for name, answer in answers.items()}

    compared = call(
        "measure.compare",
        {
            "source": files["source"],
            "candidate": files["rounded"],
            "plans": {"age": PLAN},
            "samples": [sample["digest"] for sample in samples["samples"]],
            "samples_digest": samples["digest"],
            "artifact": "rounded",
            "against": "source:age",
            "provider": "cpu",
            "device": answers["rounded"]["device"],
            "runtime": answers["rounded"]["runtime"],
        },
        [tmp_path / "source", tmp_path / "rounded"],
        [],
    )
    figures = {f"{each['subject']}.{each['metric']}": each for each in compared["measurements"]}
    years = [expectation(np.load(files[name]["probabilities"]), tuple(VALUES)) for name in ("source", "rounded")]
    assert 0 < figures["age.max_absolute"]["value"] < 0.5
    assert figures["age.max_absolute"]["value"] == pytest.approx(np.abs(years[0] - years[1]).max())
    assert figures["age.max_absolute"]["samples_digest"] == samples["digest"]
    assert (years[0] > 20).all() and (years[0] < 60).all()

    checks = call(
        "measure.checks",
        {
            "source_model": str(age_model),
            "candidate_model": str(rounded),
            "feeds": feeds,
            "source": files["source"],
            "candidate": files["rounded"],
            "provider": "cpu",
            "threads": 2,
        },
        [age_model.parent, rounded.parent, tmp_path / "samples", tmp_path / "source", tmp_path / "rounded"],
        [],
    )
    assert {check["status"] for check in checks["checks"]} == {"passed"}
    assert {task for task, *_ in seen} == {"measure.samples", "measure.run", "measure.compare", "measure.checks"}
    assert ("measure.samples", 10, 10, "samples") in seen


def test_a_worker_hands_an_error_back_as_it_is(tmp_path: Path, data: dict[str, str]) -> None:
    arguments = {"loader": "wider_face", "files": data, "plan": {"count": 13}, "inputs": {}, "out": str(tmp_path / "o")}
    with pytest.raises(UpstreamError, match="13 samples were wanted and 12 found"):
        Worker().call(
            "measure.samples", arguments, reads=[Path(path) for path in data.values()], writes=[tmp_path / "o"]
        )


def test_gender_of_the_network_s_own_kind(tmp_path: Path, gender_model: Path, data: dict[str, str]) -> None:
    """Another network on the same samples, whose every decision is its own."""
    spec = {**AGE_SPEC, "size": [32, 32]}
    worker = Worker()
    samples = worker.call(
        "measure.samples",
        {
            "loader": "wider_face",
            "files": data,
            "plan": {},
            "inputs": {"g": {"image": spec}},
            "out": str(tmp_path / "g"),
        },
        reads=[Path(path) for path in data.values()],
        writes=[tmp_path / "g"],
    )
    answer = worker.call(
        "measure.run",
        {
            "model": str(gender_model),
            "feeds": {"images": str(tmp_path / "g" / "g.npy")},
            "batch": 5,
            "out": str(tmp_path / "run"),
        },
        reads=[gender_model.parent, tmp_path / "g"],
        writes=[tmp_path / "run"],
    )
    assert answer["outputs"]["probabilities"]["shape"] == [samples["count"], 2] == [12, 2]
    np.testing.assert_allclose(np.load(answer["outputs"]["probabilities"]["file"]).sum(axis=1), 1, atol=1e-5)
