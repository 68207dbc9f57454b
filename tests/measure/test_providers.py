"""What a machine can run."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import onnxruntime
import pytest

from bot.errors import RecipeError, StepError
from bot.measure import availability, providers


def test_the_cpu_runs_here_and_has_a_name() -> None:
    assert availability.available()[0] == "cpu"
    availability.require("cpu")
    assert providers.device_name("cpu").strip()
    assert providers.runtime_name() == f"onnxruntime {onnxruntime.__version__}"


def test_a_required_provider_that_does_not_run_here_is_an_error() -> None:
    absent = next(name for name in ("rocm", "coreml", "directml") if name not in availability.available())
    with pytest.raises(StepError, match=f"{absent} is required and does not run here") as caught:
        availability.require(absent)
    assert "Here there is cpu" in caught.value.remedy
    with pytest.raises(RecipeError, match="There are: cpu, cuda"):
        availability.require("abacus")


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({"onnxruntime", "onnxruntime-gpu"}, "onnxruntime and onnxruntime-gpu are installed together"),
        (set(), "ONNX Runtime is not installed"),
    ],
)
def test_exactly_one_runtime_must_be_installed(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], words: str
) -> None:
    def version(name: str) -> str:
        if name in installed:
            return "1.32.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(RecipeError, match=words) as caught:
        providers.check_single_runtime()
    assert caught.value.exit_code == 2
    assert caught.value.remedy


def test_one_runtime_is_right() -> None:
    providers.check_single_runtime()


@pytest.mark.parametrize("actual", [["CPUExecutionProvider"], []])
def test_a_session_that_fell_back_is_an_error(actual: list[str]) -> None:
    session = SimpleNamespace(get_providers=lambda: actual)
    with pytest.raises(StepError, match="the provider cuda did not start"):
        providers.check_providers_of(session, "cuda")


def test_a_session_on_its_provider_is_right() -> None:
    session = SimpleNamespace(get_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    providers.check_providers_of(session, "cuda")
