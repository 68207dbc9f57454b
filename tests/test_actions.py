"""What a run inside GitHub Actions writes into log, outputs and summary, whatever upstream wrote into its names."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.cli import actions
from bot.errors import StepError
from tests.workflows import payloads
from tests.workflows.runner import commands_in, outputs_in

ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("payload", payloads.COMMANDS)
@pytest.mark.parametrize("before", ["", " ", "\t", "text", *ENDS, *(f"text{end} " for end in ENDS)], ids=repr)
def test_a_runner_finds_no_command(payload: str, before: str) -> None:
    text = f"{before}{payload}"
    assert not list(commands_in(actions.harmless(text)))


@given(st.text(alphabet=":#[] \n\r\tab\u2028", max_size=40))
def test_a_runner_finds_no_command_in_any_text(text: str) -> None:
    assert not list(commands_in(actions.harmless(text)))
    # It stays the same text but for blanks and line ends.
    assert re.sub(r"\s", "", actions.harmless(text)) == re.sub(r"\s", "", text)


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("[  0.1 s] fetch a/b\n", "std::vector and a::b", "# Heading ## [link]", "::1 is loopback"[2:]):
        assert actions.harmless(text) == text


def test_a_command_that_comes_in_pieces_is_no_command_either() -> None:
    log = io.StringIO()
    stream = actions._Guarded(log)
    for piece in (":", ":set-env name=PWNED", "::", "yes\n", "##", "[add-mask]a\n", " :", ":error::x"):
        stream.write(piece)
    stream.flush()
    assert not list(commands_in(log.getvalue())) and log.getvalue().count("\n") == 2


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a step on a runner."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    return tmp_path


@pytest.mark.parametrize("payload", [*payloads.OUTPUTS, "a\nrevision=b", "a\r\nend-0\nrevision=b", *ENDS], ids=repr)
def test_an_output_is_one_output(runner: Path, payload: str) -> None:
    actions._append("GITHUB_OUTPUT", actions._output("url", payload))
    assert [name for name, _ in outputs_in((runner / "output").read_text("utf-8"))] == ["url"]


@given(st.text(max_size=60))
def test_an_output_is_one_output_whatever_it_holds(text: str) -> None:
    found = list(outputs_in(actions._output("url", text)))
    assert [name for name, _ in found] == ["url"]


@pytest.mark.parametrize(
    ("runner_label", "providers", "expected"),
    [
        ("", "{cpu: required}", ("ubuntu-latest", "", "cpu")),
        ("", "{cpu: required, cuda: optional}", ("ubuntu-latest", "", "cpu")),
        ("runner: gpu-box\n", "{cpu: required, cuda: optional}", ("gpu-box", "cuda", "gpu")),
        ("runner: large-box\n", "{cpu: required}", ("large-box", "", "cpu")),
        ("rebuild_on: tools\n", "{cpu: required}", ("ubuntu-latest", "", "cpu")),
    ],
)
def test_a_recipe_says_what_machine_builds_it(
    runner: Path, runner_label: str, providers: str, expected: tuple[str, str, str]
) -> None:
    """CUDA figures are optional where there is no GPU, and required on the machine that a recipe asks for."""
    from bot.recipe import load_recipe
    from tests.world import CARD, RECIPE

    folder = runner / "network"
    (folder / "licenses").mkdir(parents=True)
    (folder / "licenses" / "LICENSE").write_text("Permission is granted to all.\n")
    (folder / "card.md.j2").write_text(CARD)
    text = RECIPE.replace("{cpu: required, cuda: optional}", providers).replace("OPEN", "commit")
    (folder / "recipe.yaml").write_text(runner_label + text)
    actions.report_plan(load_recipe(folder))
    found = dict(outputs_in((runner / "output").read_text("utf-8")))
    assert found.pop("publish-extras") == ("cpu" if "rebuild_on" in runner_label else "")
    assert found == dict(
        zip(("target", "runner", "require", "extras"), ("local-user/network-onnx", *expected), strict=True)
    )


def test_a_failure_is_one_annotation_and_a_block_of_text(runner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\n".join(payloads.ONE_LINE)
    actions.report_failure(StepError(hostile, where=hostile, remedy="Do something."))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and [name for name, _ in commands_in(said)] == ["error"]
    assert said.startswith("::error title=bot, exit code 4::")
    summary = (runner / "summary").read_text("utf-8")
    payloads.assert_harmless_markdown(summary.replace("\u202e", "").replace("\u200b", ""), set())
    assert "To do: Do something." in summary


def test_a_summary_is_cut_where_github_would_show_none(runner: Path) -> None:
    actions._append_summary("ä line of the summary\n" * 60_000)
    summary = (runner / "summary").read_bytes()
    assert actions.LARGEST_SUMMARY * 0.99 < len(summary) < 1024 * 1024
    assert summary.decode().endswith("*The rest did not fit in here.*\n")


def test_outside_of_actions_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    actions._append("GITHUB_OUTPUT", "a=b\n")
    actions.report_failure(StepError("what"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_guards_its_log(tmp_path: Path) -> None:
    """A recipe's name is what somebody typed, and stands in an error."""
    command = [sys.executable, "-m", "bot", "list", "\n::set-env name=PWNED::yes\n##[add-mask]a", "--recipes", "."]
    for on_runner, expected in (("true", ["error"]), ("", ["add-mask"])):
        environment = {"GITHUB_ACTIONS": on_runner, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        assert done.returncode == 2
        assert [name for name, _ in commands_in(done.stdout + done.stderr)] == expected, done.stderr


def test_json_for_programs_stays_json(runner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bot.cli.report import _print_json

    _print_json({"name": "##[add-mask]a ::set-env name=A::b"})
    said = capsys.readouterr().out
    assert json.loads(said) == {"name": "##[add-mask]a ::set-env name=A::b"} and not list(commands_in(said))
