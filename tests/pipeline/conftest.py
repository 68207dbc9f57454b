"""A world per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An embedded Hub with an upstream and a recipe for it."""
    made = make_world(tmp_path)
    yield made
    made.hub.stop()
