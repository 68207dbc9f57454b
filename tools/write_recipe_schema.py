"""Writes the JSON Schemas, from the models that read and write what they describe.

recipes/recipe.schema.json is what editors check a recipe.yaml with, recipes/sidecar.schema.json what a consumer checks
the sidecar of an exported graph with.
"""

from __future__ import annotations

import json
from pathlib import Path

from bot.graph.export import sidecar
from bot.recipe_plan import json_schema


def main() -> None:
    """Writes the schemas and says where."""
    folder = Path(__file__).parent.parent / "recipes"
    for name, schema in (("recipe", json_schema()), ("sidecar", sidecar.json_schema())):
        path = folder / f"{name}.schema.json"
        path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
        print(path)


if __name__ == "__main__":
    main()
