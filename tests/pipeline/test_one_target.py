"""Two recipes for one target are refused, however the second one writes its name, and whatever else lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.errors import RecipeError
from bot.pipeline import prepare
from bot.pipeline.prepare import check_target_is_ours
from bot.recipe import Recipe, load_recipe
from tests.watch.fleet_world import Member, write_recipe


@pytest.mark.parametrize(
    "written", ["fleet/one", "Fleet/ONE", "'fleet/one'", '"fleet/one"', '"fle\\x65t/one"', "&x fleet/one"]
)
def test_the_second_recipe_for_a_target_is_refused(tmp_path: Path, written: str) -> None:
    write_recipe(tmp_path / "first", Member("first", "up/stream", "fleet/one"), "a" * 40)
    write_recipe(tmp_path / "second", Member("second", "up/stream", "TARGET/x"), "a" * 40)
    path = tmp_path / "second" / "recipe.yaml"
    path.write_text(path.read_text().replace("TARGET/x", written))
    with pytest.raises(RecipeError, match="is the target of the recipe 'second' too"):
        check_target_is_ours(load_recipe(tmp_path / "first"))


def test_of_many_recipes_only_those_that_may_name_the_target_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(20):
        write_recipe(tmp_path / f"m{index}", Member(f"m{index}", "up/stream", f"fleet/m{index}"), "a" * 40)
    (tmp_path / "m3" / "recipe.yaml").write_bytes(b"\xff\xfe")  # Another recipe's trouble is its own.
    recipe = load_recipe(tmp_path / "m1")
    parsed: list[str] = []

    def load(folder: Path) -> Recipe:
        parsed.append(folder.name)
        return load_recipe(folder)

    monkeypatch.setattr(prepare, "load_recipe", load)
    check_target_is_ours(recipe)
    assert parsed == [f"m{index}" for index in range(10, 20)]  # fleet/m1 stands in fleet/m10 to fleet/m19.
