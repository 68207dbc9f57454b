"""What the worker's tests share."""

from __future__ import annotations

import pytest
from kinds import ALL, ISOLATED, ROOMS, worker

from bot.worker import Worker


@pytest.fixture(params=list(ROOMS))
def roomed(request: pytest.FixtureRequest) -> str:
    """Return the name of each kind that gives a worker a file system and processes of its own."""
    worker(request.param)
    return str(request.param)


@pytest.fixture(params=list(ISOLATED))
def isolated(request: pytest.FixtureRequest) -> str:
    """Return the name of each kind of isolation that this machine allows."""
    worker(request.param)
    return str(request.param)


@pytest.fixture(params=[name for name in ALL if "without" not in name])
def any_worker(request: pytest.FixtureRequest) -> Worker:
    """Return a worker of each kind, no isolation included."""
    return worker(request.param)
