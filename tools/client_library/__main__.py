"""``python -m tools.client_library SOURCES``: the client library's own tests of the Hub, against an embedded Hub.

SOURCES is a checkout of huggingface_hub's repository, or its unpacked source distribution, of the version that is
installed: ``pip download --no-deps --no-binary :all: huggingface_hub==VERSION`` gets the latter. Its tests need
pytest-mock. Nothing of it is changed or copied: a temporary folder points to its files.

Tests that the library marks ``production`` read the real Hub's own data and are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("test_hf_api.py", "test_cli_discussions.py", "test_hf_file_system.py", "test_snapshot_download.py")
CONSTANTS = "EMBEDDED_HUB_TEST_CONSTANTS"
OTHERS = ("DVUser", "EnterpriseAdmin")


def run(sources: Path, pytest_options: list[str]) -> list[dict[str, str]]:
    """Run the tests and return for each its ``name``, ``outcome`` and, unless it passed, the ``reason``."""
    sys.path.insert(0, str(ROOT / "tests"))
    from hub_server import start_hub

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _point_to(sources / "tests", folder / "run" / "tests")
        options = [option for user in OTHERS for option in ("--user", user)] + ["--webhook-host", "webhook.site"]
        hub = start_hub(folder / "hub", *options)
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not production"]
        command += ["-W", "error::FutureWarning", "--rootdir", str(folder / "run"), f"--junitxml={report}"]
        command += [*pytest_options, *(f"tests/{file}" for file in FILES)]
        constants = {"ENDPOINT_STAGING": hub.endpoint, "USER": "local-user", "FULL_NAME": "local-user"}
        constants |= {"TOKEN": hub.token, "OTHER_USER": OTHERS[0], "OTHER_TOKEN": hub.tokens[OTHERS[0]]}
        constants |= {"ENTERPRISE_USER": OTHERS[1], "ENTERPRISE_TOKEN": hub.tokens[OTHERS[1]]}
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))},
            CONSTANTS: json.dumps(constants),
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(folder / "home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": os.pathsep.join([str(folder / "run"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        try:
            subprocess.run(command, cwd=folder / "run", env=environment, check=False)
        finally:
            hub.stop()
        cases = ElementTree.parse(report).iter("testcase")  # noqa: S314  (pytest wrote it)
        return [_outcome(case) for case in cases]


def _point_to(tests: Path, place: Path) -> None:
    """Make a folder of links to the library's test files, with our fixtures in the place of its own."""
    place.mkdir(parents=True)
    for path in tests.resolve().iterdir():
        if path.name not in ("conftest.py", "__init__.py", "__pycache__"):
            (place / path.name).symlink_to(path)
    (place / "__init__.py").touch()
    (place / "conftest.py").write_text("from tools.client_library.fixtures import *\n")


def _outcome(case: ElementTree.Element) -> dict[str, str]:
    test = {"name": f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}", "outcome": "passed"}
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            test["outcome"] = "skipped" if child.tag == "skipped" else "failed"
            test["reason"] = " ".join((child.get("message") or child.text or "").split())[:300]
    return test


def main() -> int:
    """Run the command; the exit code is 0 if every test passed or was skipped."""
    parser = argparse.ArgumentParser(prog="python -m tools.client_library", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the outcome of each test to this JSON file")
    parser.add_argument("sources", type=Path, help="checkout or unpacked source distribution of huggingface_hub")
    parser.add_argument("pytest_options", nargs="*", help="further options of pytest, after --")
    given = parser.parse_args()
    found = run(given.sources, given.pytest_options)
    counts = Counter(each["outcome"] for each in found)
    if given.out:
        given.out.write_text(json.dumps({"counts": counts, "tests": found}, indent=1) + "\n")
    sys.stdout.write(json.dumps(counts) + "\n")
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
