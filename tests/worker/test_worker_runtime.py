"""The libraries that parse models and images work in a worker as they do outside."""

from __future__ import annotations

import sys
from pathlib import Path

import onnxruntime
import pytest
from kinds import HOSTILE, worker
from PIL import Image

from bot.worker import TASKS, Worker, WorkerError


def _run(with_worker: Worker, folder: Path, *, plot: bool, extra_path: tuple[Path, ...] = ()) -> dict[str, object]:
    image = folder / "image.png"
    Image.new("RGB", (7, 5)).save(image)
    arguments = {"folder": str(folder / "out"), "image": str(image), "plot": plot}
    answer: dict[str, object] = with_worker.call(
        "run_model", arguments, reads=[image], writes=[folder / "out"], extra_path=[*extra_path, HOSTILE]
    )
    return answer


def test_models_images_and_plots_are_handled(isolated: str, tmp_path: Path) -> None:
    answer = _run(worker(isolated), tmp_path, plot=isolated == "namespaces")
    assert answer.pop("same")
    assert answer == {
        "version": onnxruntime.__version__,
        "file": onnxruntime.__file__,
        "size": [7, 5],
        "providers": ["CPUExecutionProvider"],
        "plot": isolated == "namespaces",
    }


def test_models_are_handled_without_isolation(tmp_path: Path) -> None:
    assert _run(worker("none"), tmp_path, plot=False)["same"]


def test_a_package_in_an_extra_folder_comes_before_the_installed_one(any_worker: Worker, tmp_path: Path) -> None:
    """As the bot does to open a file in another version of the runtime, installed with `pip install --target`."""
    source = Path(onnxruntime.__file__).parent
    extra = tmp_path / "runtime"
    extra.mkdir()
    for path in (source, *source.parent.glob("onnxruntime*.libs")):
        (extra / path.name).symlink_to(path, target_is_directory=True)
    answer = _run(any_worker, tmp_path, plot=False, extra_path=(extra,))
    assert answer["same"]
    assert str(answer["file"]).startswith(str(extra))


def test_every_task_on_the_list_exists(isolated: str) -> None:
    names = sorted(TASKS.values())
    assert worker(isolated).call("exist", {"names": names}, extra_path=[HOSTILE]) == names


def test_a_model_is_inspected_and_checked(any_worker: Worker) -> None:
    model = HOSTILE.parent / "data" / "faceage-mini" / "faceage_dino_fp32.onnx"
    answer = any_worker.call("graph.inspect", {"model": str(model)}, reads=[model])
    assert "face" in str(answer)
    assert any_worker.call("graph.check", {"model": str(model)}, reads=[model])["ok"] is True


def test_a_damaged_model_is_a_failed_step(any_worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x07\xff\xff\xff\xff garbage")
    with pytest.raises(WorkerError, match=r"InvalidProtobuf|Fail|NoSuchFile") as caught:
        any_worker.call("open_model", {"path": str(path)}, reads=[path], extra_path=[HOSTILE])
    assert "InferenceSession" in caught.value.details


def test_the_bot_is_imported_from_where_it_is(any_worker: Worker) -> None:
    import bot

    assert any_worker.call("where", {"module": "bot"}, extra_path=[HOSTILE]) == bot.__file__
    assert any_worker.call("where", {"module": "numpy"}, extra_path=[HOSTILE]) == sys.modules["numpy"].__file__
