"""Writes recipes/recipe.schema.json, which editors check a recipe.yaml with, from the loader's own models."""

from __future__ import annotations

import json
from pathlib import Path

from bot.recipe_plan import json_schema


def main() -> None:
    """Writes the schema and says where."""
    path = Path(__file__).parent.parent / "recipes" / "recipe.schema.json"
    path.write_text(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    print(path)


if __name__ == "__main__":
    main()
