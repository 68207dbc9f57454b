"""What every test gets: a quiet client library, a home of its own, and `--no-skips` for the machine that has it all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports the client library: it reads these at import.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
for _name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "BOT_HUB_TOKEN", "BOT_HUB_ENDPOINT"):
    os.environ.pop(_name, None)

# A law holds or does not; how long one example takes says only how busy the machine is.
settings.register_profile("laws", deadline=None, print_blob=True)
settings.load_profile("laws")

ALLOWED_SKIPS = ("needs a GPU",)
"""Reasons that no ordinary machine can do anything about."""

_skipped: list[tuple[str, str]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if anything is skipped that could have run")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--no-skips") and _unjustified() and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        for node, reason in _unjustified():
            terminalreporter.write_line(f"could have run and was skipped: {node}: {reason}", red=True)


def _unjustified() -> list[tuple[str, str]]:
    return [(node, reason) for node, reason in _skipped if not reason.startswith(ALLOWED_SKIPS)]


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No test reads or writes the user's own folders."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield home
