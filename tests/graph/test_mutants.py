"""The tests of float16 can fail: three of the bugs in `mutants.py`; all twenty by running that file."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import BUGS, ROOT, try_bug

THREE = (
    "a cast is dropped",
    "what an inner graph captures is forgotten",
    "names that are taken are taken again",
)


def test_every_bug_still_fits_the_code() -> None:
    assert len(BUGS) == 20
    for name, bug in BUGS.items():
        assert (ROOT / "bot" / "graph" / bug.file).read_text("utf-8").count(bug.old) == 1, name
        assert bug.old != bug.new


@pytest.mark.parametrize("name", THREE)
def test_a_bug_in_the_converter_is_caught(name: str, tmp_path: Path) -> None:
    verdict = try_bug(BUGS[name], tmp_path)
    assert verdict.caught
    assert verdict.by
