"""Other versions of ONNX Runtime, each in a folder of its own, for opening files in the oldest one that a target names.

This is the one part of measuring that uses the network. It runs in the parent process, never in the worker.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bot.errors import RecipeError, StepError

_REQUIREMENT = re.compile(r"^\s*(onnxruntime(?:-[a-z]+)?)\s*(?:>=|==|~=)\s*([0-9]+(?:\.[0-9]+){0,3})\s*(?:,.*)?$")

_PROBE = "import onnxruntime, numpy; onnxruntime.InferenceSession; print(onnxruntime.__version__)"

_TIMEOUT_S = 600

_BUILDS = {"cuda": "onnxruntime-gpu", "tensorrt": "onnxruntime-gpu"}
"""The package with a provider's kernels, where it is another one than the CPU's."""


def oldest_version(requirement: str) -> str:
    """The oldest version that a requirement allows: `onnxruntime>=1.22` gives `1.22`.

    Raises:
        RecipeError: The requirement is not of the form `onnxruntime>=VERSION`.
    """
    match = _REQUIREMENT.match(requirement)
    if not match:
        raise RecipeError(
            f"{requirement!r} does not name the oldest runtime",
            where="target.runtime",
            remedy="Write it like onnxruntime>=1.22.",
        )
    return match.group(2)


def ensure_runtime(requirement: str, folder: Path, provider: str = "cpu") -> Path:
    """Installs the oldest runtime that a requirement allows, unless it is there already.

    The CPU build is taken whatever build the requirement names: what is asked of it is whether it can read a file. A
    file that only CUDA runs needs the build for it.

    Args:
        requirement: Such as `onnxruntime>=1.22`.
        folder: A cache, which may be deleted at any time.
        provider: What it is to run on.

    Returns:
        The folder to put in front of `sys.path`.

    Raises:
        RecipeError: The requirement names no oldest version.
        StepError: The version cannot be had here, or does not import.
    """
    version = oldest_version(requirement)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}-{sys.platform}-{platform.machine().lower()}"
    package = _BUILDS.get(provider, "onnxruntime")
    final = folder / f"{package}-{version}-{tag}"
    if final.is_dir():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".installing-"))
    try:
        _install(package, version, scratch)
        _probe(version, scratch)
        _move(scratch, final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def _install(package: str, version: str, scratch: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--only-binary", ":all:", "--target", str(scratch), f"{package}=={version}"),
    ]
    # A user's setting to install into the home folder cannot be combined with a folder of our own.
    answer = _run(command, version, {**os.environ, "PIP_USER": "0"})
    if answer.returncode:
        raise StepError(
            f"{package} {version} cannot be installed: {_last_line(answer.stderr)}",
            where="target.runtime",
            remedy="Check the network, and that this Python has pip and this version is made for it; or name a newer.",
        )


def _probe(version: str, scratch: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(scratch)}
    answer = _run([sys.executable, "-c", _PROBE], version, environment)
    if answer.returncode or not _is_version(answer.stdout.strip(), version):
        raise StepError(
            f"onnxruntime {version} does not import: {_last_line(answer.stderr) or answer.stdout.strip()}",
            where="target.runtime",
            remedy="Name a newer runtime, or use a Python that this version was built for.",
        )


def _is_version(found: str, wanted: str) -> bool:
    return (found + ".").startswith(wanted + ".")


def _run(
    command: list[str], version: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(f"onnxruntime {version} cannot be installed: {error}", where="target.runtime") from error


def _move(scratch: Path, final: Path) -> None:
    """Another process may have installed the same version meanwhile; either copy serves."""
    try:
        scratch.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1][:400]
