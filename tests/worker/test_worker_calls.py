"""What a caller gets back from a worker: answers, progress, and errors of the right class."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import ALL, HOSTILE, TASKS, worker

from bot import errors
from bot.errors import RecipeError, StepError
from bot.isolation import exchange
from bot.isolation.exchange import OUTPUT_BYTES, printable
from bot.worker import TASKS as SHIPPED
from bot.worker import Isolation, Limits, Worker, WorkerError, isolation

_BEST = next(iter(ALL))


def test_arguments_and_answer_cross_as_json(any_worker: Worker) -> None:
    arguments = {
        "text": "grün ☃ \x00 \n",
        "numbers": [0, -1, 2**70, 1.5, 1e300],
        "none": None,
        "deep": [[[{"a": True}]]],
    }
    assert any_worker.call("echo", arguments, extra_path=[HOSTILE]) == arguments


def test_large_arguments_and_answers_cross_whole(any_worker: Worker) -> None:
    arguments = {"text": "0123456789abcdef" * (1 << 18)}
    assert any_worker.call("echo", arguments, extra_path=[HOSTILE]) == arguments


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None)
@given(value=st.dictionaries(st.text(), _JSON, max_size=5))
def test_any_json_comes_back_as_it_was(value: dict[str, object]) -> None:
    answer = worker("none").call("echo", value, extra_path=[HOSTILE])
    assert json.dumps(answer, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_progress_comes_in_order_and_without_control_characters(any_worker: Worker) -> None:
    seen: list[tuple[int, int, str]] = []
    answer = any_worker.call(
        "count",
        {"total": 300, "text": "step \x1b[2J\u202e" + "é" * 500},
        on_progress=lambda *report: seen.append(report),
        extra_path=[HOSTILE],
    )
    assert answer == 300
    assert [done for done, _, _ in seen] == list(range(1, 301))
    assert {(total, text) for _, total, text in seen} == {(300, "é" * 200)}
    seen.clear()
    any_worker.call(
        "count",
        {"total": 1, "text": "a\x1b[2J\u202eb"},
        on_progress=lambda *report: seen.append(report),
        extra_path=[HOSTILE],
    )
    assert seen == [(1, 1, "a\ufffd[2J\ufffdb")]


def test_progress_of_many_threads_is_not_mixed_up(any_worker: Worker) -> None:
    seen: list[int] = []
    any_worker.call("threads", {}, on_progress=lambda done, _total, _text: seen.append(done), extra_path=[HOSTILE])
    assert sorted(seen) == list(range(50))


def test_an_exception_in_the_callers_callback_ends_the_worker(any_worker: Worker) -> None:
    seen: list[str] = []

    def fail(_done: int, _total: int, text: str) -> None:
        seen.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        any_worker.call("spin", {"ready": True}, on_progress=fail, extra_path=[HOSTILE])
    if any_worker.isolation.kind == "none":  # elsewhere the number means something inside the worker only
        with pytest.raises(ProcessLookupError):
            os.kill(int(seen[0]), 0)


@pytest.mark.parametrize(
    "name",
    [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.BotError)],
)
def test_errors_of_the_bot_keep_their_class_and_words(name: str) -> None:
    with pytest.raises(errors.BotError) as caught:
        worker("none").call("fail", {"class": name}, extra_path=[HOSTILE])
    error = caught.value
    assert type(error) is getattr(errors, name)
    assert (error.what, error.where, error.remedy) == ("It went wrong", "model.onnx", "Do this.")


def test_an_error_of_a_class_of_its_own_becomes_the_nearest_that_the_bot_knows(any_worker: Worker) -> None:
    with pytest.raises(RecipeError, match="here: Own Nothing") as caught:
        any_worker.call("fail_with_subclass", {}, extra_path=[HOSTILE])
    assert type(caught.value) is RecipeError


def test_any_other_exception_names_task_type_message_and_line(any_worker: Worker) -> None:
    with pytest.raises(WorkerError) as caught:
        any_worker.call("divide", {"by": 0}, extra_path=[HOSTILE])
    error = caught.value
    assert isinstance(error, StepError) and error.exit_code == 4
    assert error.where == "divide"
    assert error.what.startswith("ZeroDivisionError: division by zero (hostile.py:")
    assert error.what.endswith(" in divide)")
    assert 'return 1 / arguments["by"]' in error.details
    assert "printed by the task" in error.details


def test_missing_module_and_missing_argument_are_step_errors(any_worker: Worker) -> None:
    with pytest.raises(WorkerError, match="ModuleNotFoundError"):
        any_worker.call("echo", {})
    with pytest.raises(WorkerError, match="KeyError"):
        any_worker.call("divide", {}, extra_path=[HOSTILE])


def test_leaving_without_an_answer_is_a_step_error(any_worker: Worker) -> None:
    with pytest.raises(WorkerError, match="exit status 7 and without an answer"):
        any_worker.call("leave_early", {"hard": True}, extra_path=[HOSTILE])
    with pytest.raises(WorkerError, match="SystemExit: enough"):
        any_worker.call("leave_early", {"hard": False}, extra_path=[HOSTILE])


@pytest.mark.parametrize("what", ["nan", "set", "bytes"])
def test_an_answer_that_is_no_json_is_a_step_error(what: str) -> None:
    with pytest.raises(WorkerError, match=r"ValueError|TypeError"):
        worker("none").call("answer_what_is_no_json", {"what": what}, extra_path=[HOSTILE])


def test_an_answer_with_half_a_character_is_refused() -> None:
    with pytest.raises(WorkerError, match="surrogates not allowed"):
        worker("none").call("answer_what_is_no_json", {"what": "surrogate"}, extra_path=[HOSTILE])


def test_a_huge_answer_is_refused(any_worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ANSWER_BYTES", 1 << 20)
    assert len(any_worker.call("answer_long", {"bytes": (1 << 20) - 20}, extra_path=[HOSTILE])) == (1 << 20) - 20
    with pytest.raises(WorkerError, match="more than 1048576 bytes"):
        any_worker.call("answer_long", {"bytes": 1 << 20}, extra_path=[HOSTILE])


@pytest.mark.parametrize(
    "text",
    [
        "\x00\xff\xfe garbage \x80\n",
        "not json\n",
        "[]\n",
        "{}\n",
        '{"answer": 1, "error": {}}x\n',
        '{"answer": NaN}\n',
        '{"answer": 1e999}\n',
        '{"answer": "\\ud800"}\n',
        '{"progress": [1, "x", "y"]}\n',
        '{"progress": "x"}\n',
        '{"error": "text"}\n',
        "[" * 200_000 + "\n",
        '{"answer": ' + "9" * 10_000 + "}\n",
    ],
)
def test_garbage_on_the_answer_pipe_is_a_step_error(text: str) -> None:
    with pytest.raises(WorkerError, match="malformed"):
        worker("none").call("answer_raw", {"text": text, "sleep": 30}, extra_path=[HOSTILE])


def test_garbage_without_end_is_refused() -> None:
    with pytest.raises(WorkerError, match=f"more than {64 << 20} bytes"):
        worker("none").call("answer_raw", {"text": "x" * 1_000_000, "times": 80, "sleep": 30}, extra_path=[HOSTILE])


def test_a_forged_error_becomes_no_other_class_than_the_bots_own() -> None:
    for name in ("BaseException", "_rebuild", "ClassVar", "annotations", "__name__", "SystemExit"):
        forged = json.dumps({"error": {"class": name, "what": "x", "type": "T\x1b[0m", "message": "m\x07", "line": ""}})
        with pytest.raises(WorkerError) as caught:
            worker("none").call("answer_raw", {"text": forged + "\n"}, extra_path=[HOSTILE])
        assert caught.value.what == "T\ufffd[0m: m\ufffd"


def test_what_is_printed_is_kept_within_bounds_and_without_control_characters() -> None:
    with pytest.raises(WorkerError) as caught:
        worker("none").call("print_much", {"lines": 20_000}, extra_path=[HOSTILE])
    error = caught.value
    assert "ValueError: after much output \ufffd]0;title\ufffd" in error.what
    assert "line 19999 " in error.details and "line 1 " not in error.details
    assert len(error.details) < 2 * OUTPUT_BYTES
    assert not {letter for letter in str(error) + error.details if ord(letter) < 32} - {"\n", "\t"}


@given(text=st.text(), limit=st.integers(min_value=1, max_value=50))
def test_printable_text_is_short_and_has_no_control_characters(text: str, limit: int) -> None:
    result = printable(text, limit)
    assert len(result) == min(len(text), limit)
    assert all(letter.isprintable() or letter.isspace() for letter in result if letter != "\ufffd")
    assert printable(result, limit) == result


def test_tasks_come_from_the_list_only() -> None:
    for name in ("os.system", "bot.graph.tasks:step", "hostile:echo", "echo", ""):
        with pytest.raises(StepError, match="no such task"):
            Worker(isolation=ALL["none"]).call(name, {}, extra_path=[HOSTILE])
    assert "echo" in TASKS and "echo" not in SHIPPED
    with pytest.raises(TypeError):
        SHIPPED["echo"] = "hostile:echo"  # type: ignore[index]


def test_arguments_that_are_no_json_are_the_callers_fault() -> None:
    with pytest.raises((TypeError, ValueError)):
        worker("none").call("echo", {"path": Path()}, extra_path=[HOSTILE])
    with pytest.raises((TypeError, ValueError)):
        worker("none").call("echo", {"nan": float("nan")}, extra_path=[HOSTILE])


def test_missing_file_is_named() -> None:
    with pytest.raises(StepError, match=r"/nowhere/model\.onnx"):
        worker("none").call("echo", {}, reads=[Path("/nowhere/model.onnx")])


def test_require_isolation_stops_where_there_is_none() -> None:
    strict = Worker(require_isolation=True, isolation=Isolation("none", "the kernel says no"), tasks=TASKS)
    with pytest.raises(StepError, match=r"the kernel says no.*Install bubblewrap"):
        strict.call("echo", {}, extra_path=[HOSTILE])


def test_a_worker_that_cannot_be_started_is_a_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(StepError, match=r"echo: The worker could not be started: /nonexistent/python: No such file"):
        worker("none").call("echo", {}, extra_path=[HOSTILE])
    monkeypatch.setattr(sys, "executable", "/bin/ls")
    with pytest.raises(WorkerError, match=r"without an answer\. Its last line was: "):
        worker("none").call("echo", {}, extra_path=[HOSTILE])


def test_isolation_is_found_once_and_says_why() -> None:
    found = isolation()
    assert found is isolation()
    assert found.reason
    assert Worker().isolation is found
    assert Worker(tasks=TASKS, limits=Limits(None, None)).call("echo", {"a": 1}, extra_path=[HOSTILE]) == {"a": 1}


def test_calls_leave_no_open_files_and_no_processes(any_worker: Worker) -> None:
    def count() -> tuple[int, int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(list(Path("/proc/self/fd").iterdir())), len(children)

    any_worker.call("echo", {}, extra_path=[HOSTILE])
    before = count()
    for _ in range(3):
        any_worker.call("echo", {}, extra_path=[HOSTILE])
        with pytest.raises(WorkerError):
            any_worker.call("divide", {"by": 0}, extra_path=[HOSTILE])
    assert count() == before


def test_extra_path_comes_first(any_worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text("def echo(arguments, progress):\n    return __file__\n")
    answer = any_worker.call("echo", {}, extra_path=[tmp_path, HOSTILE])
    assert answer == str(tmp_path / "hostile.py")
    facts = any_worker.call("surroundings", {}, extra_path=[HOSTILE])
    assert facts["path"][0] == str(HOSTILE)
    assert "" not in facts["path"] and facts["prefix"] == sys.prefix
