"""Holds an exported graph against torch: at every size that a caller may choose, and on every kind of input.

A tracer can bake a length into a graph that calls it dynamic, or the way that a branch went; only running the graph at
other sizes and on other inputs shows it. Each dynamic axis is tried alone at all its sizes, and then all of them at
once, each at another one, so that no two lengths are equal by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.errors import StepError
from bot.graph.export.interface import Case, Exportable, Feeds
from bot.records import Json

SEED = 1

Progress = Any


@dataclass(frozen=True)
class Row:
    """One output of one run, against torch.

    Attributes:
        output: Its name.
        sizes: Of the dynamic axes.
        case: The kind of input; empty for the example's own.
        max_absolute: Largest absolute difference.
        mean_absolute: Mean absolute difference.
        cosine: The smallest cosine between a row of the batch, flattened, and torch's.
        largest: The largest magnitude of torch's answer.
    """

    output: str
    sizes: dict[str, int]
    case: str
    max_absolute: float
    mean_absolute: float
    cosine: float
    largest: float

    def to_plain(self) -> dict[str, Json]:
        """As plain data."""
        return {
            "output": self.output,
            "sizes": dict(self.sizes),
            "case": self.case,
            "max_absolute": self.max_absolute,
            "mean_absolute": self.mean_absolute,
            "cosine": self.cosine,
            "largest": self.largest,
        }


@dataclass(frozen=True)
class Truth:
    """What came of it.

    Attributes:
        rows: Every output of every run that has to agree, and of the cases that came out right.
        refused: Cases that are not required and that the graph answers otherwise than torch: name to reason.
    """

    rows: tuple[Row, ...]
    refused: dict[str, str]


def hold_against_torch(exportable: Exportable, model: Path, *, tolerance: float, progress: Progress) -> Truth:
    """Runs an exported graph and its module on the same inputs.

    Args:
        exportable: The module.
        model: The exported file.
        tolerance: How large a difference may be, as a share of the largest magnitude of torch's answer (of 1, if that
            is larger).
        progress: Told of every run.

    Raises:
        StepError: The graph does not run at a size that a caller may choose, or answers otherwise than torch; the axis
            or the case is named.
    """
    session = _open(model)
    runs = list(_runs(exportable))
    rows: list[Row] = []
    refused: dict[str, str] = {}
    for done, (sizes, case) in enumerate(runs, start=1):
        feeds = _feeds(exportable, sizes, case)
        found, problem = _compare(exportable, session, feeds, sizes, case.name if case else "", tolerance)
        if problem and case is not None and not case.required:
            refused[case.name] = problem
        elif problem:
            raise _error(exportable, sizes, case, problem)
        else:
            rows += found
        progress(done, len(runs), "held against torch")
    return Truth(tuple(rows), refused)


def _open(model: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise StepError(f"the runtime cannot open what was exported: {_line(error)}", where="export_torch") from error


def _runs(exportable: Exportable) -> Iterator[tuple[dict[str, int], Case | None]]:
    """Sizes and kinds of input, in the order in which they are tried."""
    traced = exportable.traced
    yield traced, None
    for axis in exportable.axes:
        for size in axis.sizes:
            yield {**traced, axis.name: size}, None
    if len(exportable.axes) > 1:
        most = max(len(axis.sizes) for axis in exportable.axes)
        for turn in range(most):
            # Axes move through their sizes at different paces, so that two of one length meet at different sizes.
            yield (
                {axis.name: axis.sizes[(turn + place) % len(axis.sizes)] for place, axis in enumerate(exportable.axes)},
                None,
            )
    for case in exportable.cases:
        yield traced, case
        yield {axis.name: axis.sizes[-1] for axis in exportable.axes}, case


def _feeds(exportable: Exportable, sizes: Mapping[str, int], case: Case | None) -> Feeds:
    import numpy as np

    generator = np.random.default_rng(SEED)
    feeds = exportable.example(sizes, generator)
    if case is not None:
        feeds = case.change(feeds, generator)
    for port in exportable.inputs:
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in port.shape)
        array = feeds.get(port.name)
        if array is None or array.shape != shape or array.dtype != np.dtype(port.dtype):
            found = "none" if array is None else f"{array.dtype} {list(array.shape)}"
            raise StepError(
                f"the example gives {found} for the input {port.name}, which is declared {port.dtype} {list(shape)}",
                where="export_torch",
            )
    return feeds


def answers_of(exportable: Exportable, feeds: Feeds) -> dict[str, Any]:
    """What the module answers: array by output.

    Raises:
        StepError: It gives another number of outputs than it declares.
    """
    import torch

    arguments = [torch.from_numpy(feeds[port.name]) for port in exportable.inputs]
    with torch.inference_mode():
        given = exportable.module(*arguments)
    values = given if isinstance(given, tuple | list) else (given,)
    if len(values) != len(exportable.outputs):
        raise StepError(
            f"the module gives {len(values)} outputs and declares {len(exportable.outputs)}", where="export_torch"
        )
    return {port.name: value.numpy() for port, value in zip(exportable.outputs, values, strict=True)}


def _compare(
    exportable: Exportable, session: Any, feeds: Feeds, sizes: dict[str, int], case: str, tolerance: float
) -> tuple[list[Row], str]:
    expected = answers_of(exportable, feeds)
    try:
        values = session.run(list(expected), {port.name: feeds[port.name] for port in exportable.inputs})
    except Exception as error:
        return [], f"the exported graph does not run: {_line(error)}"
    rows = []
    for (name, wanted), found in zip(expected.items(), values, strict=True):
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return [], f"{name} is {found.dtype} {list(found.shape)}, and in torch {wanted.dtype} {list(wanted.shape)}"
        row, problem = _difference(name, wanted, found, sizes, case, tolerance)
        if problem:
            return [], problem
        rows.append(row)
    return rows, ""


def _difference(
    name: str, expected: Any, found: Any, sizes: dict[str, int], case: str, tolerance: float
) -> tuple[Row, str]:
    import numpy as np

    wanted, given = np.asarray(expected, np.float64), np.asarray(found, np.float64)
    if not np.isfinite(wanted).all():
        return Row(name, sizes, case, 0, 0, 0, 0), f"{name} is not finite in torch itself"
    if not np.isfinite(given).all():
        return Row(name, sizes, case, 0, 0, 0, 0), f"{name} is not finite"
    apart = np.abs(given - wanted)
    largest = float(np.abs(wanted).max(initial=0.0))
    row = Row(
        output=name,
        sizes=dict(sizes),
        case=case,
        max_absolute=float(apart.max(initial=0.0)),
        mean_absolute=float(apart.mean()) if apart.size else 0.0,
        cosine=_smallest_cosine(wanted, given),
        largest=largest,
    )
    allowed = tolerance * max(largest, 1.0)
    if row.max_absolute > allowed:
        return row, f"{name} is {row.max_absolute:.3g} away from torch, whose largest magnitude is {largest:.3g}"
    return row, ""


def _smallest_cosine(wanted: Any, given: Any) -> float:
    import numpy as np

    rows = len(wanted) if wanted.ndim else 1
    first, second = wanted.reshape(rows, -1), given.reshape(rows, -1)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products = (first * second).sum(axis=1)
    values = np.divide(products, norms, out=np.ones(rows), where=norms > 0)
    return float(np.clip(values, -1.0, 1.0).min(initial=1.0))


def _error(exportable: Exportable, sizes: dict[str, int], case: Case | None, problem: str) -> StepError:
    """Names what was baked in: the axes that are not at the traced size, or the kind of input."""
    if case is not None:
        what = f"on {case.name}, {problem}"
        remedy = "A branch on the content of an input was decided while it was traced. Write it without the branch."
        return StepError(what, where="export_torch", remedy=remedy)
    traced = exportable.traced
    moved = [f"{name} = {size} (traced at {traced[name]})" for name, size in sizes.items() if size != traced[name]]
    if not moved:
        return StepError(f"even at the traced sizes, {problem}", where="export_torch", remedy="Try the other exporter.")
    return StepError(
        f"the axis is declared dynamic, and at {', '.join(moved)} {problem}",
        where="export_torch",
        remedy="The exporter baked a length in. Take positions, masks and counts from the input's shape in forward(), "
        "try the other exporter, or declare the axis with its one size.",
    )


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
