"""Execution providers: their names, the device behind each, and the runtime's version."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from bot.errors import RecipeError, StepError

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
"""A recipe's name of a provider, and ONNX Runtime's."""

_RUNTIME_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")


def check_single_runtime() -> None:
    """Refuses an environment in which several builds of ONNX Runtime overwrite each other's files.

    Raises:
        RecipeError: More than one is installed, or none is.
    """
    installed = [name for name in _RUNTIME_PACKAGES if _is_installed(name)]
    if len(installed) > 1:
        raise RecipeError(
            f"{' and '.join(installed)} are installed together; they share one folder and break each other",
            where="environment",
            remedy=f"Uninstall all of them (pip uninstall {' '.join(installed)}), then install the one you need again.",
        )
    if not installed:
        raise RecipeError(
            "ONNX Runtime is not installed",
            where="environment",
            remedy="Install the extra `cpu`, or `gpu` for a machine with an NVIDIA GPU.",
        )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def runtime_name() -> str:
    """Name and version of the runtime that is in use: `onnxruntime 1.32.0`."""
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def onnxruntime_name(provider: str) -> str:
    """ONNX Runtime's name of a provider.

    Raises:
        RecipeError: There is no provider of that name.
    """
    if provider not in PROVIDERS:
        raise RecipeError(f"there is no provider named {provider!r}", remedy=f"There are: {', '.join(PROVIDERS)}.")
    return PROVIDERS[provider]


def built_with(provider: str) -> str:
    """ONNX Runtime's name of a provider that this build of it has.

    Raises:
        RecipeError: There is no provider of that name.
        StepError: The installed runtime was built without it.
    """
    import onnxruntime

    name = onnxruntime_name(provider)
    if name not in onnxruntime.get_available_providers():
        raise StepError(
            f"the provider {provider} is not available here",
            where=runtime_name(),
            remedy="Run on a machine that has it, with the runtime built for it, or do not require it.",
        )
    return name


def check_providers_of(session: Any, provider: str) -> None:
    """Reads back which providers a session really got.

    ONNX Runtime opens a session on the CPU when another provider fails to start, and only logs it.

    Raises:
        StepError: The session does not run on the provider that was asked for.
    """
    actual = session.get_providers()
    if not actual or actual[0] != onnxruntime_name(provider):
        raise StepError(
            f"the provider {provider} did not start; the session would run on {', '.join(actual) or 'nothing'}",
            where=runtime_name(),
            remedy="Its libraries or its driver are missing on this machine.",
        )


def device_name(provider: str) -> str:
    """The name of the processor or accelerator that a provider runs on."""
    if provider in {"cuda", "tensorrt"}:
        return _nvidia_name() or "NVIDIA GPU"
    if provider in {"cpu", "openvino"}:
        return _cpu_name()
    return f"{provider} device of {platform.node() or 'this machine'}"


def _nvidia_name() -> str:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else ""


def _cpu_name() -> str:
    """Linux tells the model in /proc/cpuinfo; elsewhere Python's own guess has to do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown CPU"
