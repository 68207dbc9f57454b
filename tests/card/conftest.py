"""The releases that the tests of this folder render."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from releases import age_and_gender_release, fused_release, seed_release, withheld_release

from bot.records import Release


@pytest.fixture
def seed() -> Release:
    return seed_release()


@pytest.fixture
def fused() -> Release:
    return fused_release()


@pytest.fixture
def two_networks() -> Release:
    return age_and_gender_release()


@pytest.fixture
def withheld() -> Release:
    return withheld_release()
