"""Whatever stands in an upstream, in a card or in an answer of the Hub: the watcher prints it inert, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd

from bot.cli.console import PlainReporter, print_error
from bot.cli.watch_report import print_rows, worst
from bot.errors import BotError
from bot.pipeline.fleet import Fleet, Loaded
from bot.watch.findings import Finding, Row
from tests.watch.conftest import FleetWorld, start_fleet
from tests.watch.fleet_world import Member, members, write_recipe
from tests.watch.payloads import CONTROLS, HIDING, PAYLOADS, is_inert


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetWorld]:
    """A recipe for each payload."""
    made = start_fleet(tmp_path_factory.mktemp("hostile"), members(len(PAYLOADS), 2), "--fast-clock")
    yield made
    made.hub.stop()


@pytest.fixture(autouse=True)
def _nothing_was_run(tmp_path: Path) -> Iterator[None]:
    owned = Path("/tmp/owned")
    owned.unlink(missing_ok=True)
    yield
    assert not owned.exists()


def _printed(rows: list[Row], world: FleetWorld, capsys: pytest.CaptureFixture[str]) -> str:
    """Both forms of the report. What may be in the matrix is checked on the way."""
    now = world.watcher().now()
    capsys.readouterr()
    print_rows(rows, now, as_json=True)
    out, errors = capsys.readouterr()
    assert len(out.splitlines()) == 1
    entries = json.loads(out)["include"]
    for entry in entries:
        assert sorted(entry) == ["reason", "recipe", "runner", "target"]
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", entry["recipe"])
        assert re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+", entry["target"])
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", entry["runner"])
        assert re.fullmatch(r"[a-z ,]+", entry["reason"])
    print_rows(rows, now, as_json=False)
    table = capsys.readouterr().out
    assert is_inert(out) and is_inert(errors) and is_inert(table), (out, errors, table)
    return out + errors + table


def test_messages_files_and_cards_of_an_upstream(world: FleetWorld, capsys: pytest.CaptureFixture[str]) -> None:
    for member, (kind, payload) in zip(world.members, PAYLOADS.items(), strict=True):
        files = {
            "model.onnx": f"other weights, {kind}".encode(),
            "README.md": f"---\nlicense: mit\nrelease_id: {json.dumps(payload)}\n---\n{payload}\n".encode(),
        }
        # The Hub takes no control characters, slashes or steps upwards in a file's name.
        name = "".join(char for char in payload if char.isprintable() and char not in "/\\").replace("..", "")[:80]
        operations = [CommitOperationAdd(path, data) for path, data in files.items()]
        operations.append(CommitOperationAdd(f"files/x{name}x", payload.encode()))
        world.hub.api().create_commit(
            member.upstream, operations, commit_message=payload[:2000].strip(), commit_description=payload
        )
    rows = world.watcher().poll()
    assert {row.state for row in rows} == {"due"}
    assert {row.finding.reasons for row in rows} == {("upstream files",)}
    printed = _printed(rows, world, capsys)
    assert "owned" not in printed and "secrets" not in printed and "evil.example" not in printed


def test_the_card_of_a_target(world: FleetWorld, capsys: pytest.CaptureFixture[str]) -> None:
    for member, payload in zip(world.members, PAYLOADS.values(), strict=True):
        said = json.dumps(payload)
        card = f"---\nrelease_id: {said}\nsource_commit: {said}\nrecipe_id: {said}\n---\n{payload}\n"
        world.upload(member.target, {"README.md": card.encode()})
    rows = world.watcher().poll()
    assert all(row.state in ("current", "due") for row in rows)  # Read from the record in place of such a card.
    assert all(re.fullmatch(r"[0-9a-f]{40}", row.published) for row in rows)
    assert "owned" not in _printed(rows, world, capsys)


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_what_the_hub_says_of_an_error(world: FleetWorld, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    payload = PAYLOADS[kind]
    body = json.dumps({"error": payload, "errors": [{"message": payload}]})
    world.hub.fault("status", path="*/resolve/*", method="HEAD", times=0, status=403, body=body)
    world.hub.fault("status", path="/api/models", method="GET", times=0, status=400, body=body)
    try:
        rows = world.watcher().poll([world.members[0].name])
    finally:
        world.hub.clear_faults()
    assert [row.state for row in rows] == ["unavailable"] and worst(rows) in (3, 7)
    _printed(rows, world, capsys)


def test_a_recipe_whose_name_is_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: FleetWorld
) -> None:
    good = Member("good", "author-000/model-00000", "fleet-0/good")
    write_recipe(tmp_path / "good", good, world.samples_commit)
    names = [name for text in PAYLOADS.values() if (name := re.sub(r"[/\x00]", "", text)[:50].strip(".\n"))]
    for number, name in enumerate(names):
        write_recipe(tmp_path / name, Member(name, good.upstream, f"fleet-0/t{number}"), world.samples_commit)
    loaded = Fleet(tmp_path).load()
    fine = sorted(name for name, entry in loaded.items() if isinstance(entry, Loaded))
    assert fine == sorted({"good", "a" * 50})
    rows = [Row(name, Finding("broken"), error=entry) for name, entry in loaded.items() if isinstance(entry, BotError)]
    assert len(rows) == len(set(names)) - 1 and worst(rows) == 2
    _printed(rows, world, capsys)


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
def test_errors_and_progress_control_no_terminal(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    payload = PAYLOADS[kind]
    print_error(BotError(payload, where=payload, remedy=payload))
    for say in (PlainReporter().note, PlainReporter().warn, PlainReporter().stage):
        say(payload)
    errors = capsys.readouterr().err
    assert not [char for char in [*CONTROLS, *HIDING] if char in errors]
    assert "[bold red]owned[/]" in errors or kind != "rich markup"  # Shown as it is, and not obeyed.
