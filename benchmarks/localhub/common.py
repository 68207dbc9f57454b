"""What the measurements of the embedded Hub share: the machine, the versions, and figures of the machine itself."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def machine() -> dict[str, Any]:
    """Return what is known of this machine, with its load now: others may be working on it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "threads": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average_before": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Return the versions that matter here."""
    names = ("huggingface_hub", "hf_xet", "pygit2", "starlette", "uvicorn")
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return {"python": platform.python_version(), "git": git, **{name: version(name) for name in names}}


def write(name: str, result: dict[str, Any]) -> None:
    """Write a result beside the others, and print it."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / name).write_text(text + "\n")
    print(text)
