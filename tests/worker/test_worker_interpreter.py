"""A worker in another Python than the bot's own: it has that one's packages, and none of the bot's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kinds import ALL, NONE, _refusal

from bot.environments import ask
from bot.isolation.room import Interpreter
from bot.worker import Worker, WorkerError

PROBE = """\
import sys


def look(arguments, progress):
    import of_the_environment

    found = [name for name in ("numpy", "pydantic", "onnx") if can_import(name)]
    try:
        open(of_the_environment.__file__, "a").close()
        writable = True
    except OSError:
        writable = False
    return {"value": of_the_environment.VALUE, "found": found, "writable": writable, "bot": can_import("bot.errors")}


def can_import(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True
"""


@pytest.mark.parametrize("kind", ALL)
def test_it_has_its_own_packages_and_cannot_change_them(tmp_path: Path, kind: str) -> None:
    if refusal := _refusal(kind):
        pytest.skip(f"{kind}: {refusal}")
    python = ask(sys.executable)
    assert python is not None
    packages, probe = tmp_path / "packages", tmp_path / "probe"
    for folder in (packages, probe):
        folder.mkdir()
    (packages / "of_the_environment.py").write_text("VALUE = 42\n")
    (probe / "probe.py").write_text(PROBE)
    interpreter = Interpreter(python.program, python.prefix, python.library, str(packages))
    worker = Worker(tasks={"probe": "probe:look"}, isolation=ALL[kind])
    found = worker.call("probe", {}, extra_path=[probe], interpreter=interpreter)
    assert found == {"value": 42, "found": [], "writable": ALL[kind] is NONE, "bot": True}
    with pytest.raises(WorkerError, match="of_the_environment"):
        worker.call("probe", {}, extra_path=[probe])
