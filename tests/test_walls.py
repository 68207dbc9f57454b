"""Who may import whom: the walls of the house, and that `bot --help` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "bot"

BASE = {"records", "recipe", "recipe_plan", "errors", "canonical", "progress"}
MAY_IMPORT = {
    "cli": BASE
    | {"pipeline", "environments", "hub", "worker", "work", "graph", "measure", "gates", "card", "watch", "licenses"},
    "pipeline": BASE
    | {"watch", "hub", "graph", "measure", "gates", "card", "worker", "work", "provenance", "licenses"}
    | {"environments", "recipe_edit"},
    "environments": BASE | {"isolation"},
    "reference": BASE | {"graph", "measure", "tensor_types"},
    "graph": BASE | {"tensor_types"},
    "measure": BASE | {"tensor_types"},
    "hub": BASE,
    "gates": BASE,
    "judging": BASE | {"graph", "measure"},
    "watch": BASE,
    "provenance": {"records", "errors", "canonical"},
    "card": BASE,
    "licenses": {"records", "errors", "canonical"},
    "worker": {"errors", "records", "canonical", "isolation"},
    "isolation": {"errors", "records", "canonical"},
    "localhub": set(),
    "work": {"errors", "canonical"},
    "records": {"errors", "canonical"},
    "recipe": {"errors", "canonical", "recipe_plan"},
    "recipe_text": {"recipe", "records", "errors"},
    "recipe_edit": {"errors"},
    "recipe_plan": set(),
    "errors": set(),
    "tensor_types": set(),
    "canonical": set(),
    "progress": set(),
}
HEAVY = {"onnx", "onnxruntime", "torch", "transformers", "matplotlib", "numpy", "huggingface_hub", "onnx_ir", "PIL"}


def imports_of(path: Path) -> set[str]:
    """The modules of this package that a file imports, by the name of their room."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [
                f"{node.module}.{alias.name}" if node.module == "bot" else str(node.module) for alias in node.names
            ]
        found |= {name.split(".")[1] for name in names if name.startswith("bot.")}
    return found


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] not in {"__init__", "__main__"}:
            found.setdefault(parts[0], []).append(path)
    return found


def test_every_room_has_its_walls_written_down() -> None:
    assert set(rooms()) <= set(MAY_IMPORT)


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    for path in rooms()[room]:
        beyond = imports_of(path) - MAY_IMPORT[room] - {room}
        assert not beyond, f"{path.relative_to(ROOT)} imports {sorted(beyond)}"


def test_nothing_imports_the_embedded_hub() -> None:
    for room, paths in rooms().items():
        for path in paths:
            assert room == "localhub" or "localhub" not in imports_of(path), path


def modules_imported_by(path: Path) -> set[str]:
    """The modules of this package that a file imports, inside functions and for types alone as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    paths = {
        ".".join(("bot", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py"
    }
    sorter = TopologicalSorter({name: modules_imported_by(path) & set(paths) for name, path in paths.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_help_imports_nothing_heavy() -> None:
    script = "import sys, bot.cli.app; print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    answer = subprocess.run(
        [sys.executable, "-c", script, *HEAVY, "pydantic", "ruamel"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
