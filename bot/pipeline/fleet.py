"""The recipes of a folder, many at once: each loaded when its files changed, and a broken one kept with its error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import text_sha256
from bot.card.card import templates_digest
from bot.errors import RecipeError
from bot.hub.memory import Memory
from bot.pipeline.identity import recipe_id
from bot.recipe import RECIPE_FILE, Recipe, find_recipe, load_recipe, recipe_names

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Loaded:
    """A recipe, and the digest of its side of a release."""

    recipe: Recipe
    recipe_id: str


class _Parsed:
    """What recipes say, kept in a watcher's memory by the sha256 of their text."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, text: str) -> Any:
        return self._memory.get("recipe", text_sha256(text))

    def put(self, text: str, data: Any) -> None:
        self._memory.put("recipe", text_sha256(text), data)


class Fleet:
    """All recipes of a folder.

    Args:
        folder: The folder of recipes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._loaded: dict[str, tuple[tuple[object, ...], Loaded | RecipeError]] = {}

    def load(self, names: Iterable[str] = (), memory: Memory | None = None) -> dict[str, Loaded | RecipeError]:
        """These recipes, or all, by name. What did not change since the last call is not read again.

        Args:
            names: Recipes; none for all.
            memory: Keeps what their recipe.yaml say, for the next process.

        Raises:
            RecipeError: There is no such folder, or no recipe of a name that was asked for.
        """
        if not self.folder.is_dir():
            remedy = "Name the folder that holds your recipes with --recipes."
            raise RecipeError("there is no such folder", where=str(self.folder), remedy=remedy)
        there = dict.fromkeys(recipe_names(self.folder))
        wanted = list(dict.fromkeys(names)) or list(there)
        for name in wanted:
            if name not in there:
                find_recipe(name, self.folder)  # Says what is wrong with the name.
        self._loaded = {name: entry for name, entry in self._loaded.items() if name in there}
        templates = templates_digest()
        for name in wanted:
            state = (templates, *_state(self.folder / name))
            if self._loaded.get(name, ((), None))[0] != state:
                self._loaded[name] = (state, self._load(name, memory, templates))
            elif memory is not None and isinstance(entry := self._loaded[name][1], Loaded):
                _Parsed(memory).get(entry.recipe.text)  # So that a sweep keeps it.
        found = {name: self._loaded[name][1] for name in wanted}
        return {**found, **self._same_target(found)}

    def _load(self, name: str, memory: Memory | None, templates: str) -> Loaded | RecipeError:
        try:
            if not _NAME.fullmatch(name):
                raise RecipeError(
                    f"a recipe cannot be called {name!r}",
                    where=str(self.folder),
                    remedy="Letters, digits, `.`, `_` and `-`, with a letter or digit first: it goes into workflows.",
                )
            recipe = load_recipe(self.folder / name, _Parsed(memory) if memory is not None else None)
            return Loaded(recipe, recipe_id(recipe, templates=templates))
        except RecipeError as error:
            return error
        except OSError as error:
            return RecipeError(f"cannot be read: {error.strerror}", where=str(error.filename or self.folder / name))
        except UnicodeDecodeError as error:
            return RecipeError(f"a text of it is not UTF-8: {error.reason}", where=str(self.folder / name))
        except RecursionError:
            return RecipeError("is nested too deep", where=str(self.folder / name / RECIPE_FILE))

    @staticmethod
    def _same_target(found: Mapping[str, Loaded | RecipeError]) -> dict[str, RecipeError]:
        """Recipes that share their target: publishing refuses all of them."""
        by_target: dict[str, list[Recipe]] = {}
        for entry in found.values():
            if isinstance(entry, Loaded):
                by_target.setdefault(entry.recipe.plan.target.repo.lower(), []).append(entry.recipe)
        return {
            recipe.name: RecipeError(
                f"{recipe.plan.target.repo!r} is the target of {_others(recipe, group)} too",
                where=recipe.locate("target", "repo"),
                remedy="Give each recipe a target of its own.",
            )
            for group in by_target.values()
            if len(group) > 1
            for recipe in group
        }


def _others(recipe: Recipe, group: list[Recipe]) -> str:
    names = [other.name for other in group if other.name != recipe.name]
    return f"the recipe {names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _state(folder: Path) -> tuple[object, ...]:
    """What changes when a file of a recipe changes."""
    found: list[object] = []
    for path in sorted(folder.rglob("*")):
        try:
            stat = path.stat()
        except OSError:
            continue
        found.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)
