"""The table in the documentation is the one that was measured."""

from __future__ import annotations

import json
from pathlib import Path

from stand_ins import module_from

ROOT = Path(__file__).parents[3]


def test_the_documentation_has_the_rows_that_were_measured() -> None:
    table = module_from(ROOT / "benchmarks" / "export" / "table.py", "export_table")
    rows = json.loads((ROOT / "benchmarks" / "results" / "export.json").read_text("utf-8"))["rows"]
    assert list(rows) == list(table.NAMES)
    assert table.markdown(rows) in (ROOT / "docs" / "export.md").read_text("utf-8")
