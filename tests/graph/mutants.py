"""Twenty bugs, each put into a copy of the converter on its own: the tests have to catch every one.

    python tests/graph/mutants.py [NAME ...]

prints a table and ends with 1 if one went unnoticed. A bug is a replacement of a piece of source text, which must occur
exactly once, so that a table that no longer fits the code fails rather than passes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ("test_float16.py", "test_float16_laws.py", "test_ranges.py")


@dataclass(frozen=True)
class Bug:
    """One mistake.

    Attributes:
        file: In bot/graph.
        old: What the source says.
        new: What it says with the mistake.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Verdict:
    """What the tests made of a bug: the first that failed, if any did."""

    caught: bool
    by: str
    seconds: float


BUGS: dict[str, Bug] = {
    "a cast is dropped": Bug(
        "half/rewriting.py",
        "            if dtype != value.native:\n                yield self.cast(",
        "            if dtype != value.native and dtype == FLOAT16:\n                yield self.cast(",
    ),
    "a cast is written although nobody reads it": Bug(
        "half/rewriting.py",
        "for dtype in sorted(value.wanted | {value.native, own}):",
        "for dtype in sorted({FLOAT, FLOAT16, value.native, own}):",
    ),
    "a name is resolved in the outermost graph first": Bug(
        "half/scopes.py",
        "        while scope is not None:\n            if name in scope.values:\n"
        "                return scope.values[name]\n            scope = scope.parent\n        return None",
        "        found = None\n        while scope is not None:\n            found = scope.values.get(name, found)\n"
        "            scope = scope.parent\n        return found",
    ),
    "what an inner graph captures is forgotten": Bug(
        "half/scopes.py",
        "            scope = scope.parent\n        return None",
        "            break\n        return None",
    ),
    "weights beyond the range are clipped": Bug(
        "half/constants.py",
        "    return to_float16(values) if half else values",
        "    return to_float16(np.clip(values, -1e4, 1e4)) if half else values",
    ),
    "weights are cut off instead of rounded": Bug(
        "half/constants.py",
        "    return to_float16(values) if half else values",
        "    return to_float16((values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)) if half else values",
    ),
    "a mask becomes infinite": Bug("half/constants.py", "MASK = 32752.0", "MASK = 1e9"),
    "a mask loses its sign": Bug("half/constants.py", "np.copysign(np.float32(MASK), values)", "np.float32(MASK)"),
    "a shared weight is there in one dtype only": Bug(
        "half/rewriting.py",
        "for dtype in dtypes if value.constant is not None and value.is_float else [tensor.data_type]:",
        "for dtype in dtypes[:1] if value.constant is not None and value.is_float else [tensor.data_type]:",
    ),
    "names that are taken are taken again": Bug(
        "half/rewriting.py", "        while candidate in taken:", "        while False:"
    ),
    "an operator without float16 is converted": Bug(
        "half/planning.py",
        "    refuses = {variable for _, _, value, variable, half in node.slots() if value.is_float and not half}",
        "    refuses: set[str] = set()",
    ),
    "an output of the graph changes its dtype": Bug(
        "half/rewriting.py",
        "own = value.output_dtype if value.is_output else value.native",
        "own = value.native",
    ),
    "keep is not heard": Bug(
        "half/planning.py",
        "    elif kept:\n        node.stay(KEEP)\n    elif node.schema is None",
        "    elif node.schema is None",
    ),
    "parameters of nodes that stay float32 become float16": Bug(
        "half/planning.py",
        "        value.wanted.add(FLOAT16 if as_half else FLOAT)",
        "        value.wanted.add(FLOAT16 if as_half or value.constant is not None else FLOAT)",
    ),
    "an epsilon vanishes": Bug(
        "half/planning.py", "elif fit.vanished and fit.elements <= _FEW", "elif fit.vanished and fit.elements <= 0"
    ),
    "positions and angles are computed in float16": Bug(
        "half/regions.py", "        if integral and floats and outputs:", "        if False:"
    ),
    "the root of a mean of squares is computed in float16": Bug(
        "half/regions.py", "for member in [node, total, *path] if path else []:", "for member in []:"
    ),
    "what follows a number beyond the range is converted": Bug(
        "half/regions.py",
        "            reader.stay(reason)\n            if goes_on(reader):",
        "            if goes_on(reader):",
    ),
    "a branch's result is float16 though only one branch makes it so": Bug(
        "half/planning.py", "        if all(halves) and once:", "        if any(halves) and once:"
    ),
    "what was measured beyond the range counts for its maker only": Bug(
        "half/measured.py", "                self._keep(reader, seen, reads)\n", ""
    ),
}
"""Twenty of them, by what they do."""


def try_bug(bug: Bug | None, folder: Path) -> Verdict:
    """Runs the tests on a copy of the package with a bug, or on one without.

    Args:
        bug: None for an unchanged copy.
        folder: An empty folder for the copy.

    Raises:
        LookupError: The text to replace is not there exactly once.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bot", folder / "bot", ignore=ignored)
    shutil.copytree(ROOT / "tests" / "graph", folder / "tests" / "graph", ignore=ignored)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=ignored)
    (folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    if bug is not None:
        path = folder / "bot" / "graph" / bug.file
        text = path.read_text("utf-8")
        if text.count(bug.old) != 1:
            raise LookupError(f"{bug.file} holds {bug.old!r} {text.count(bug.old)} times")
        path.write_text(text.replace(bug.old, bug.new), "utf-8")
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no"]
    tests = [f"tests/graph/{name}" for name in TESTS]
    done = subprocess.run([*command, *tests], cwd=folder, capture_output=True, text=True, check=False)
    failed = [line.split(" ")[1].split("/")[-1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode not in (0, 1):
        raise LookupError(f"the tests could not be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Verdict(done.returncode == 1, failed[0] if failed else "", time.monotonic() - started)


def try_in_passing(bug: Bug | None) -> Verdict:
    """The same in a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        return try_bug(bug, Path(folder))


def main(names: list[str]) -> int:
    """Tries the bugs that are named, or all, and an unchanged copy first, which must pass."""
    clean = try_in_passing(None)
    print(f"{'unchanged':66} {'FAILS ' + clean.by if clean.caught else 'passes'} ({clean.seconds:.0f} s)", flush=True)
    missed = int(clean.caught)
    for name in names or list(BUGS):
        verdict = try_in_passing(BUGS[name])
        missed += not verdict.caught
        found = f"caught by {verdict.by}" if verdict.caught else "MISSED"
        print(f"{name:66} {found} ({verdict.seconds:.0f} s)", flush=True)
    print(f"{len(names or BUGS)} bugs, {missed} missed" if not clean.caught else "the unchanged copy fails")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
