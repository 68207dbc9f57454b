"""Peers that exported networks are held against: libraries in which they were made, fetched by hash."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stand_ins import EXORDIUM, LINMULT, TIMM, TORCHVISION, hollow, module_from, wheel_on_path

from packages import default_cache, fetch_archive  # isort: skip  (stand_ins makes tools importable)

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

AROUND_EMOTION2VEC = (
    "exordium",
    "exordium.audio",
    "exordium.audio.base",
    "exordium.utils",
    "exordium.utils.ckpt",
    "exordium.utils.decorator",
)


@pytest.fixture(scope="session")
def linmult() -> Iterator[Any]:
    """The library linmult: pure Python, which runs on older versions of it than it asks for."""
    with wheel_on_path(fetch_archive(LINMULT, CACHE)):
        yield importlib.import_module("linmult")


@pytest.fixture(scope="session")
def timm() -> Iterator[Any]:
    """The library timm. It imports torchvision, which nothing here uses, and for which there may be no build."""
    with hollow(*TORCHVISION), wheel_on_path(fetch_archive(TIMM, CACHE)):
        yield importlib.import_module("timm")


@pytest.fixture(scope="session")
def exordium_emotion2vec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """exordium's module of emotion2vec, without the rest of the package."""
    with zipfile.ZipFile(fetch_archive(EXORDIUM, CACHE)) as wheel:
        path = wheel.extract("exordium/audio/emotion2vec.py", tmp_path_factory.mktemp("exordium"))
    with hollow(*AROUND_EMOTION2VEC):
        sys.modules["exordium.utils.decorator"].load_or_create = lambda *_, **__: lambda function: function  # type: ignore[attr-defined]
        yield module_from(path, "exordium_emotion2vec")
