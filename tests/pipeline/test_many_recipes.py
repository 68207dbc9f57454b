"""Very many recipes at once: one that is broken is kept with its error, and one that changes is read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.errors import RecipeError
from bot.hub.memory import Memory
from bot.pipeline import fleet as fleets
from bot.pipeline.fleet import Fleet, Loaded
from tests.watch.fleet_world import Member, write_recipe

BREAKS: dict[str, Callable[[Path], object]] = {
    "no card": lambda folder: (folder / "card.md.j2").unlink(),
    "a card that is no text": lambda folder: (folder / "card.md.j2").write_bytes(b"\xff\xfe\x00"),
    "no licence": lambda folder: (folder / "licenses" / "LICENSE").unlink(),
    "YAML cut off": lambda folder: (folder / "recipe.yaml").write_text("upstream: {repo: a/b"),
    "not UTF-8": lambda folder: (folder / "recipe.yaml").write_bytes(b"\xff\xfe"),
    "empty": lambda folder: (folder / "recipe.yaml").write_text(""),
    "nested deep": lambda folder: (folder / "recipe.yaml").write_text("[" * 1_000),
    "aliases": lambda folder: (folder / "recipe.yaml").write_text("a: &a [x]\nb: [*a, *a]\n"),
    "a folder in its place": lambda folder: ((folder / "recipe.yaml").unlink(), (folder / "recipe.yaml").mkdir()),
}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """Three recipes."""
    for name in ("first", "second", "third"):
        write_recipe(tmp_path / name, Member(name, f"up/{name}", f"fleet/{name}"), "a" * 40)
    return tmp_path


@pytest.mark.parametrize("kind", sorted(BREAKS))
@pytest.mark.parametrize("remembered", [False, True])
def test_a_broken_recipe_stops_no_other(recipes: Path, kind: str, remembered: bool) -> None:
    memory = Memory() if remembered else None
    fleet = Fleet(recipes)
    assert all(isinstance(entry, Loaded) for entry in fleet.load((), memory).values())
    BREAKS[kind](recipes / "second")
    for again in (fleet, Fleet(recipes)):
        found = again.load((), memory)
        assert isinstance(found["second"], RecipeError) and str(recipes / "second") in str(found["second"])
        assert isinstance(found["first"], Loaded) and isinstance(found["third"], Loaded)


@pytest.mark.parametrize("file", ["recipe.yaml", "card.md.j2", "licenses/LICENSE"])
def test_what_changes_is_read_again_and_nothing_else(recipes: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(recipes)
    before = fleet.load()
    path = recipes / "third" / file
    path.write_text(
        path.read_text().replace("tags: [onnx]", "tags: [other]") + "{# more #}\n" * (file != "recipe.yaml")
    )
    read: list[str] = []
    load = fleets.load_recipe
    monkeypatch.setattr(fleets, "load_recipe", lambda folder, *more: read.append(folder.name) or load(folder, *more))
    after = fleet.load()
    assert read == ["third"]
    first, third, changed = before["first"], before["third"], after["third"]
    assert after["first"] is first and isinstance(third, Loaded) and isinstance(changed, Loaded)
    assert changed.recipe_id != third.recipe_id


def test_a_recipe_that_is_remembered_is_the_same_and_tells_its_lines(recipes: Path) -> None:
    memory = Memory()
    parsed = Fleet(recipes).load((), memory)
    again = Fleet(recipes).load((), memory)
    for name, entry in parsed.items():
        other = again[name]
        assert isinstance(entry, Loaded) and isinstance(other, Loaded)
        assert (entry.recipe.plan, entry.recipe.text, entry.recipe_id) == (
            other.recipe.plan,
            other.recipe.text,
            other.recipe_id,
        )
        assert dict(entry.recipe.lines) == dict(other.recipe.lines)
        assert entry.recipe.locate("target", "repo") == other.recipe.locate("target", "repo")


def test_a_recipe_that_is_gone_is_gone(recipes: Path) -> None:
    fleet = Fleet(recipes)
    fleet.load()
    for path in sorted((recipes / "second").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert sorted(fleet.load()) == ["first", "third"]
    with pytest.raises(RecipeError, match="there is no recipe"):
        fleet.load(["second"])
