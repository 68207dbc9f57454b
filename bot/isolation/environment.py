"""The environment variables of a worker: built from nothing, so that no token can be forgotten in it."""

from __future__ import annotations

import os

_FIXED = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LOGNAME": "worker",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

_PASSED_ON = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MALLOC_ARENA_MAX",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)


def build(home: str, temporary: str) -> dict[str, str]:
    """Return all of a worker's environment.

    Args:
        home: Its empty home folder.
        temporary: Where it keeps temporary files.
    """
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**_FIXED, **passed, "HOME": home, "TMPDIR": temporary}
