"""The truth test: an export that baked something in, or dropped something, is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from bot.errors import StepError
from bot.graph.export.interface import Axis, Case, Exportable, Port
from bot.graph.export.sidecar import Facts
from bot.graph.export.tracing import export
from bot.graph.export.truth import hold_against_torch

WIDTH = 4


def exportable(forward: Callable[..., Any], *inputs: str, **more: Any) -> Exportable:
    """A module with this forward, over inputs [batch, LENGTH, 4], each with a length of its own."""

    class Module(torch.nn.Module):
        def forward(self, *values: torch.Tensor) -> Any:
            return forward(*values)

    lengths = {name: f"length_{name}" for name in inputs}

    def example(sizes: Mapping[str, int], generator: np.random.Generator) -> dict[str, Any]:
        shapes = {name: (sizes["batch"], sizes[length], WIDTH) for name, length in lengths.items()}
        return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    given: dict[str, Any] = {
        "outputs": (Port("y", "float32", ("batch", WIDTH)),),
        "axes": (
            Axis("batch", traced=2, sizes=(1, 3)),
            *(Axis(length, traced=5, sizes=(1, 8, 11)) for length in lengths.values()),
        ),
        "example": example,
        "facts": Facts(feature_names=tuple(inputs)),
        **more,
    }
    ports = tuple(Port(name, "float32", ("batch", length, WIDTH)) for name, length in lengths.items())
    return Exportable(module=Module().eval(), inputs=ports, **given)


def hold(given: Exportable, folder: Path, **more: Any) -> Any:
    path = folder / "model.onnx"
    export(given, path, opset=17)
    return hold_against_torch(given, path, tolerance=1e-3, progress=lambda *_: None, **more)


def test_an_honest_export_agrees_at_every_size(tmp_path: Path) -> None:
    truth = hold(exportable(lambda a, b: a.mean(1) + 2 * b.amax(1), "a", "b"), tmp_path)
    tried = {axis: {row.sizes[axis] for row in truth.rows} for axis in ("batch", "length_a", "length_b")}
    assert tried == {"batch": {1, 2, 3}, "length_a": {1, 5, 8, 11}, "length_b": {1, 5, 8, 11}}
    assert any(row.sizes["length_a"] != row.sizes["length_b"] != 5 for row in truth.rows)
    assert max(row.max_absolute for row in truth.rows) < 1e-5
    assert min(row.cosine for row in truth.rows) > 0.999999


def test_a_baked_length_is_refused_by_name(tmp_path: Path) -> None:
    """`int()` turns a length into a constant of the trace."""

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        table = torch.arange(int(b.shape[1])).to(b.dtype)
        return a.mean(1) + (b * table[None, :, None]).sum(1)

    with pytest.raises(StepError, match=r"length_b = 1 \(traced at 5\)") as error:
        hold(exportable(forward, "a", "b"), tmp_path)
    assert "baked a length in" in error.value.remedy and "length_a" not in error.value.what


def test_a_baked_count_that_still_runs_is_refused(tmp_path: Path) -> None:
    """No shape tells this: the graph runs at every length, and divides by the length that it was traced at."""
    with pytest.raises(StepError, match=r"length_a = \d+ \(traced at 5\) y is .* away from torch"):
        hold(exportable(lambda a: a.sum(1) / int(a.shape[1]), "a"), tmp_path)


def test_a_length_shared_by_two_modalities_is_found(tmp_path: Path) -> None:
    """Right whenever both lengths are equal, as in a table that two calls share."""

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.sum(1) / a.shape[1] + b.sum(1) / a.shape[1] * (b.shape[1] / int(b.shape[1]))

    hold(exportable(lambda a, b: a.mean(1) + b.mean(1), "a", "b"), tmp_path)
    with pytest.raises(StepError, match="length_b = 1"):
        hold(exportable(forward, "a", "b"), tmp_path)


def test_a_baked_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"batch = 1 \(traced at 2\)"):
        hold(exportable(lambda a: a.mean(1) * torch.ones(int(a.shape[0]), 1), "a"), tmp_path)


def test_a_dropped_input_is_refused_by_name(tmp_path: Path) -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.mean(1) + (b.mean(1) if bool((b > 100).any()) else 0.0)

    with pytest.raises(StepError, match=r"the input b (was dropped by|leads nowhere)") as error:
        hold(exportable(forward, "a", "b"), tmp_path)
    assert "branch on its content" in error.value.remedy


def emptied(feeds: dict[str, Any], _: np.random.Generator) -> dict[str, Any]:
    return {**feeds, "b": np.zeros_like(feeds["b"])}


def branch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which way it goes depends on what is in b; the tracer takes the way that its example goes."""
    return a.mean(1) + b.mean(1) + (5.0 if bool((b == 0).all()) else 0.0)


def test_a_branch_that_was_baked_in_is_refused_with_the_case(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="on an empty b, y is 5 away from torch"):
        hold(exportable(branch, "a", "b", cases=(Case("an empty b", emptied),)), tmp_path)


def test_a_case_that_is_not_required_is_recorded(tmp_path: Path) -> None:
    truth = hold(exportable(branch, "a", "b", cases=(Case("an empty b", emptied, required=False),)), tmp_path)
    assert list(truth.refused) == ["an empty b"] and "away from torch" in truth.refused["an empty b"]
    assert all(row.case == "" for row in truth.rows)


def test_a_module_that_is_not_finite_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="not finite in torch itself"):
        hold(exportable(lambda a: a.mean(1) / 0.0, "a"), tmp_path)


def test_an_operator_that_cannot_be_exported_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="the exporter torchscript failed") as error:
        hold(exportable(lambda a: torch.linalg.eigvals(a[:, :1, :1] * torch.eye(4)).real, "a"), tmp_path)
    assert "exporter: dynamo" in error.value.remedy


def test_nothing_of_this_machine_is_in_the_file(tmp_path: Path) -> None:
    hold(exportable(lambda a: torch.nn.functional.gelu(a).mean(1), "a", random_weights=True), tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    assert {entry.key: entry.value for entry in model.metadata_props} == {"random_weights": "true"}
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)
    assert not model.graph.value_info and model.ir_version <= 10
    assert str(Path(__file__).parent).encode() not in model.SerializeToString()
    axes = [axis.dim_param or axis.dim_value for axis in model.graph.input[0].type.tensor_type.shape.dim]
    assert axes == ["batch", "length_a", WIDTH]


def test_the_other_exporter_does_too(tmp_path: Path) -> None:
    given = exportable(lambda a, b: a.mean(1) + b.amax(1), "a", "b", exporter="dynamo")
    path = tmp_path / "model.onnx"
    export(given, path, opset=18)
    truth = hold_against_torch(given, path, tolerance=1e-3, progress=lambda *_: None)
    assert max(row.max_absolute for row in truth.rows) < 1e-5
    assert b"stack_trace" not in path.read_bytes() and str(tmp_path).encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("axis", "says"),
    [
        ({"traced": 2, "sizes": (1,)}, "is tried at 2 sizes"),
        ({"traced": 32, "sizes": (64, 70), "multiple_of": 32}, "does not allow the size 70"),
        ({"traced": 2, "sizes": (1, 5), "maximum": 4}, "does not allow the size 5"),
    ],
)
def test_an_axis_that_proves_nothing_is_refused(axis: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Axis("batch", **axis)
