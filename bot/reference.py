"""A torch module as the source that its exported graph is measured against.

`bot.measure` compares two sessions, and knows no torch. What is here makes a module look like a session, so that the
tasks of measuring take one in place of an ONNX file: they are called with the path of a description of the module. Runs
in the worker only, in the environment that the recipe requires.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.errors import StepError
from bot.graph.export.interface import Exportable, Files, Port
from bot.measure import sessions, tasks
from bot.records import Json
from bot.tensor_types import DTYPES

ENDING = ".torch.json"
"""What a description's name ends in. It has `architecture`, `parameters`, `files` (key to path), `code` (or null)."""

Progress = Callable[[int, int, str], None]

_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}


@dataclass(frozen=True)
class _Value:
    """An input or an output, as a session describes it."""

    name: str
    type: str
    shape: list[int | str]


class ModuleSession:
    """A module with the methods of an `onnxruntime.InferenceSession` that measuring uses. It runs on the CPU.

    Args:
        exportable: The module.
        threads: For torch; 0 leaves it to torch.
    """

    def __init__(self, exportable: Exportable, threads: int) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self._exportable = exportable

    def get_inputs(self) -> list[_Value]:
        """In the order of `forward`."""
        return [_value(port) for port in self._exportable.inputs]

    def get_outputs(self) -> list[_Value]:
        """In order."""
        return [_value(port) for port in self._exportable.outputs]

    def run(self, names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        """The outputs with these names, or all."""
        from bot.graph.export.truth import answers_of

        answers = answers_of(self._exportable, feeds)
        return [answers[name] for name in (names or list(answers))]


def _value(port: Port) -> _Value:
    return _Value(port.name, _KINDS[port.dtype], list(port.shape))


def load(path: Path) -> Exportable:
    """Builds the module of a description.

    Raises:
        UpstreamError: A file is not what the architecture reads.
        StepError: There is no such architecture, or it failed.
    """
    from bot.graph.export_torch import load_exportable

    given = json.loads(path.read_bytes())
    code = Path(given["code"]) if given["code"] else None
    files = Files({key: Path(place) for key, place in given["files"].items()})
    return load_exportable(given["architecture"], given["parameters"], files, code)


def _open(path: Path, threads: int) -> ModuleSession:
    return ModuleSession(load(path), threads)


sessions.OPENERS[ENDING] = _open


def describe(arguments: dict[str, Json], progress: Progress) -> Json:
    """Builds a module and says what it is.

    Args:
        arguments: `model`: path of the description.
        progress: Told when it is built.

    Returns:
        `inputs` and `outputs` (name, dtype, shape), `parameters` (number of elements per dtype), `random_weights`,
        `packages`: versions of those that took part, and `python`.
    """
    from bot.graph.export_torch import packages_of, python_version
    from bot.graph.tasks import installed_versions

    path = Path(str(arguments["model"]))
    exportable = load(path)
    progress(1, 1, "module built")
    architecture = str(json.loads(path.read_bytes())["architecture"])
    counted: dict[str, int] = {}
    for value in exportable.module.state_dict().values():
        dtype = str(value.dtype).removeprefix("torch.")
        counted[dtype] = counted.get(dtype, 0) + value.numel()
    return {
        "inputs": [_plain(port) for port in exportable.inputs],
        "outputs": [_plain(port) for port in exportable.outputs],
        "parameters": dict(sorted(counted.items())),
        "random_weights": exportable.random_weights,
        "packages": installed_versions(packages_of(architecture)),
        "python": python_version(),
    }


def _plain(port: Port) -> dict[str, Json]:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}


def run(arguments: dict[str, Json], progress: Progress) -> Json:
    """As `measure.run`, for a module; the runtime that it names is torch."""
    import torch

    answer = tasks.run(arguments, progress)
    if not isinstance(answer, dict):
        raise StepError("gave no answer", where="reference.run")
    return {**answer, "runtime": f"torch {torch.__version__}"}


def checks(arguments: dict[str, Json], progress: Progress) -> Json:
    """As `measure.checks`, with a module as the source."""
    return tasks.checks(arguments, progress)


def latency(arguments: dict[str, Json], progress: Progress) -> Json:
    """As `measure.latency`, with a module as the baseline."""
    return tasks.latency(arguments, progress)
