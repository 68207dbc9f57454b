"""One step, or one look, at a file that no recipe knows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import RecipeError
from bot.graph import steps
from bot.progress import Reporter
from bot.records import Inspection, Json
from bot.work import disk_errors

if TYPE_CHECKING:
    from bot.worker import Worker


def inspect_single(worker: Worker, model: Path) -> Inspection:
    """Signature and census of one file.

    Raises:
        RecipeError: There is no such file.
        UpstreamError: It is not an ONNX model that can be read.
    """
    path = _existing(model)
    return Inspection.model_validate(worker.call("graph.inspect", {"model": str(path)}, reads=[path.parent]))


def ranges_of_single(
    worker: Worker, reporter: Reporter, model: Path, samples: Path, *, top: int, limit: int
) -> dict[str, Any]:
    """How large and how small the tensors of one file become over samples.

    Args:
        worker: Runs it.
        reporter: Is told how far it is.
        model: The file.
        samples: An .npz with one array per graph input.
        top: How many tensors to name.
        limit: How many samples to run at most, evenly spread; 0 for all.

    Returns:
        What the task `graph.ranges` answers.

    Raises:
        RecipeError: A file is not there, or the samples are no .npz.
        UpstreamError: The model cannot be read.
        StepError: It cannot be run, or the samples do not fit it.
    """
    path = _existing(model)
    folder = Path(tempfile.mkdtemp(prefix="bot-ranges-"))
    try:
        with disk_errors(folder):
            feeds = _unpack(samples, folder / "feeds")
            scratch = folder / "scratch"
            scratch.mkdir()
        answer = worker.call(
            "graph.ranges",
            {
                "model": str(path),
                "feeds": {key: str(value) for key, value in feeds.items()},
                "scratch": str(scratch),
                "top": top,
                "limit": limit,
            },
            reads=[path.parent, folder],
            writes=[scratch],
            on_progress=reporter.update,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not isinstance(answer, dict):
        raise TypeError(f"the task answered with {type(answer).__name__}")
    return answer


def run_single_step(
    worker: Worker,
    reporter: Reporter,
    name: str,
    source: Path,
    output: Path,
    *,
    settings: Sequence[str] = (),
    samples: Path | None = None,
) -> dict[str, Any]:
    """Runs one step on one file; the output appears whole or not at all.

    Args:
        worker: Runs it.
        reporter: Is told how far it is.
        name: The step.
        source: The file to read.
        output: The file to write.
        settings: `KEY=VALUE` each, the value in YAML.
        samples: An .npz with one array per graph input.

    Returns:
        `report` and `built_with`.

    Raises:
        RecipeError: The step is unknown, a setting is wrong, or a file is not there.
        StepError: The step failed.
    """
    try:
        parameters = steps.parse_parameters(name, dict(_setting(each) for each in settings))
    except ValueError as error:
        raise RecipeError(str(error), where=f"bot step {name}") from None
    path = _existing(source)
    output = output.absolute()
    with disk_errors(output.parent):
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
        try:
            feeds = _unpack(samples, folder / "feeds") if samples else {}
            made = folder / "made"
            scratch = folder / "scratch"
            for each in (made, scratch):
                each.mkdir()
            answer = worker.call(
                "graph.step",
                {
                    "step": name,
                    "source": str(path),
                    "output": str(made / output.name),
                    "parameters": parameters,
                    "scratch": str(scratch),
                    "feeds": {key: str(value) for key, value in feeds.items()},
                    "calibration": {key: str(value) for key, value in feeds.items()},
                    "code": None,
                },
                reads=[path.parent, folder],
                writes=[made, scratch],
                on_progress=reporter.update,
            )
            # Weights beside the model come first, so that a model is never there without them.
            for beside in sorted(made.iterdir(), key=lambda each: each.name == output.name):
                beside.replace(output.parent / beside.name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if not isinstance(answer, dict):
        raise TypeError(f"the step answered with {type(answer).__name__}")
    return answer


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise RecipeError("there is no such file", where=str(path))
    return path.resolve()


def _setting(text: str) -> tuple[str, Json]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set takes KEY=VALUE, found {text!r}", remedy="Such as --set keep=[Softmax, Add].")
    try:
        return key.strip(), YAML(typ="safe", pure=True).load(value)
    except YAMLError:
        raise RecipeError(f"the value of --set {key.strip()} is not YAML: {value!r}") from None


def _unpack(samples: Path, folder: Path) -> dict[str, Path]:
    """One .npy per array of an .npz, which are zip archives of just that; no array is parsed here."""
    import zipfile

    path = _existing(samples)
    folder.mkdir()
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for index, member in enumerate(archive.infolist()):
                destination = folder / f"{index}.npy"
                with archive.open(member) as source, destination.open("wb") as stream:
                    shutil.copyfileobj(source, stream)
                found[member.filename.removesuffix(".npy")] = destination
    except zipfile.BadZipFile:
        raise RecipeError("is not an .npz file", where=str(path), remedy="Write it with numpy.savez.") from None
    return found
