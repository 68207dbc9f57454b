"""A hostile task looks for the bot's token, for the network, and for other people's files. It must find none of them.

The same attempts are made without isolation, where they succeed: that shows that they can.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import ALL, HOSTILE, NONE, worker

import bot
from bot.errors import StepError
from bot.isolation import kernel
from bot.worker import Worker, WorkerError

ROOT = Path(bot.__file__).parent.parent


_NOBODY = 65534
_SYSTEM_PYTHON = "/usr/bin/python3"


def _plant(home: Path) -> str:
    """Put a token in each place of a home folder where tokens are kept."""
    token = f"hf_Planted{secrets.token_hex(12)}"
    files = {
        ".cache/huggingface/token": token,
        ".cache/huggingface/stored_tokens": f"[bot]\nhf_token = {token}\n",
        ".git-credentials": f"https://bot:{token}@hub.example\n",
        ".gitconfig": f'[credential]\n\thelper = store\n[http "https://hub.example"]\n\textraheader = {token}\n',
        ".config/git/config": f"[user]\n\tname = {token}\n",
        ".netrc": f"machine hub.example login bot password {token}\n",
        ".ssh/id_ed25519": token,
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
        (home / name).chmod(0o600)
    return token


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a home folder with tokens in it."""
    _plant(tmp_path / "home")
    return tmp_path / "home"


def _hunt(name: str, home: Path, token: str, python: str, user: int | None) -> dict[str, Any]:
    """Run a bot with the token in its environment, and let a hostile task look for it."""
    files = [str(path) for path in home.rglob("*") if path.is_file()]
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / ".cache" / "huggingface"),
        "HF_TOKEN": token,
        "HUGGING_FACE_HUB_TOKEN": token,
        "GITHUB_TOKEN": token,
        "PYTHONPATH": f"{home.parent}{os.pathsep}{home.parent / 'tasks'}",
    }
    command = [python, str(home.parent / "tasks" / "bot_with_token.py"), name, *files, f"/proc/{os.getpid()}/environ"]
    with (home / ".netrc").open("rb") as file:
        done = subprocess.run(
            command,
            env=variables,
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            timeout=100,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture
def burrow() -> Iterator[Path]:
    """Make a folder that any user can reach, with a copy of the bot and of the hostile tasks."""
    with tempfile.TemporaryDirectory(prefix="bot-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HOSTILE, folder / "tasks", ignore=ignored)
        shutil.copytree(ROOT / "bot" / "isolation", folder / "bot" / "isolation", ignore=ignored)
        for module in ("__init__.py", "errors.py", "worker.py"):
            shutil.copy(ROOT / "bot" / module, folder / "bot")
        yield folder


def _ordinary_user(home: Path) -> tuple[str, int | None]:
    """Return the Python and the user number that an ordinary user's bot runs with, and give that user the home."""
    if os.geteuid() != 0:
        return sys.executable, None
    version = subprocess.run(
        [_SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, text=True
    ).stdout.strip()
    if version != "True":
        pytest.skip("root has no Python 3.11 here that another user may run")
    for path in (home, *home.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)
    return _SYSTEM_PYTHON, _NOBODY


def _check_nothing_found(result: dict[str, Any], name: str) -> None:
    assert result["found"] == {name: [] for name in result["found"]}
    assert len(result["found"]) == 12
    company = name == "landlock"  # which hides no process
    signals = company and kernel.landlock_version() < 6
    assert result["attacks"] == {"traced": False, "signalled": signals, "prioritised": company}
    assert result["alive"]


def test_a_hostile_task_finds_no_token(isolated: str, burrow: Path) -> None:
    token = _plant(burrow / "home")
    _check_nothing_found(_hunt(isolated, burrow / "home", token, sys.executable, None), isolated)


def test_a_hostile_task_of_an_ordinary_user_finds_no_token(isolated: str, burrow: Path) -> None:
    token = _plant(burrow / "home")
    _check_nothing_found(_hunt(isolated, burrow / "home", token, *_ordinary_user(burrow / "home")), isolated)


def test_the_same_hunt_succeeds_without_isolation(burrow: Path) -> None:
    token = _plant(burrow / "home")
    result = _hunt("none", burrow / "home", token, *_ordinary_user(burrow / "home"))
    found = {name for name, tokens in result["found"].items() if token in tokens}
    assert found >= {
        "environment of processes",
        "memory of processes",
        "named files",
        "named files through a process",
        "walk",
        "symbolic links",
    }
    assert not found & {"environment", "inherited files", "memory of this process", "git", "client"}
    assert result["attacks"] == {"traced": True, "signalled": True, "prioritised": True}


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Listen on every kind of socket, and note what arrives."""
    arrived: list[str] = []
    (tmp_path / "readable").mkdir()
    abstract = f"@bot-test-{secrets.token_hex(8)}"
    addresses: list[tuple[str, int, Any]] = [
        ("tcp", socket.AF_INET, ("127.0.0.1", 0)),
        ("unix", socket.AF_UNIX, str(tmp_path / "socket")),
        ("readable", socket.AF_UNIX, str(tmp_path / "readable" / "socket")),
        ("abstract", socket.AF_UNIX, abstract.replace("@", "\0")),
    ]
    if socket.has_ipv6:
        addresses.append(("tcp6", socket.AF_INET6, ("::1", 0)))
    arguments: dict[str, Any] = {"unix": addresses[1][2], "readable": addresses[2][2], "abstract": abstract}
    with contextlib.ExitStack() as stack:
        for name, family, address in addresses:
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                listener.bind(address)
            except OSError:
                assert name == "tcp6"  # a machine without IPv6
                continue
            listener.listen()
            if name.startswith("tcp"):
                arguments[name] = listener.getsockname()[1]
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=_accept, args=(listener, name, arrived), daemon=True).start()
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        arguments["udp"] = datagrams.getsockname()[1]
        threading.Thread(target=_echo, args=(datagrams, arrived), daemon=True).start()
        yield arguments, arrived
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", arguments["udp"]))


def _accept(listener: socket.socket, name: str, arrived: list[str]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            arrived.append(name)
            connection.close()


def _echo(datagrams: socket.socket, arrived: list[str]) -> None:
    while True:
        data, sender = datagrams.recvfrom(512)
        if not data:
            return
        arrived.append("udp")
        datagrams.sendto(data, sender)


def test_a_hostile_task_reaches_no_socket(
    isolated: str, listeners: tuple[dict[str, Any], list[str]], tmp_path: Path
) -> None:
    arguments, arrived = listeners
    answer = worker(isolated).call("reach", arguments, reads=[tmp_path / "readable"], extra_path=[HOSTILE])
    assert answer == dict.fromkeys(answer, False)
    assert arrived == []


def test_the_same_sockets_are_reached_without_isolation(listeners: tuple[dict[str, Any], list[str]]) -> None:
    arguments, arrived = listeners
    answer = worker("none").call("reach", arguments, extra_path=[HOSTILE])
    assert {name for name, reached in answer.items() if not reached} <= {"tcp6"} - set(arguments)
    assert {"tcp", "udp", "unix", "readable", "abstract"} <= set(arrived)


def test_surroundings_are_built_from_nothing(roomed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    facts = worker(roomed).call("surroundings", {}, extra_path=[HOSTILE])
    proc = "without proc" not in roomed
    expected = {
        "PATH",
        "LANG",
        "LOGNAME",
        "TZ",
        "HOME",
        "TMPDIR",
        "PYTHONHASHSEED",
        "PYTHONNOUSERSITE",
        "PYTHONDONTWRITEBYTECODE",
    }
    expected |= {"HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "OMP_NUM_THREADS"}
    optional = {"OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS", "PWD", "LC_CTYPE"}
    optional |= {"LD_LIBRARY_PATH"}
    assert expected <= set(facts["environment"]) <= expected | optional
    assert facts["environment"]["OMP_NUM_THREADS"] == "2"
    assert facts["home"] == []
    assert facts["user"] == 1000
    assert facts["processes"] == ([1, 2] if proc else [])
    assert facts["interfaces"] == []
    assert facts["parent"] == 1
    assert facts["core"] == 0
    assert not facts["terminal"]
    kinds = facts["open_files"]
    assert (kinds.pop("0"), kinds.pop("1"), kinds.pop("2")) == ("device", "pipe", "pipe")
    assert list(kinds.values()) == ["pipe"]  # the answer
    assert (
        not {"root", "home", "run", "var", "mnt", "media", "srv", "boot", "opt"} & set(facts["root"]) - _python_tops()
    )
    if proc:
        status = facts["status"]
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name], 16) == 0, name


def _python_tops() -> set[str]:
    """Return the folders at the root that Python itself lies in."""
    return {Path(path).resolve().parts[1] for path in (sys.prefix, sys.base_prefix, sys.executable)}


def test_a_plain_child_has_a_clean_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    facts = worker("none").call("surroundings", {}, extra_path=[HOSTILE])
    assert "HF_TOKEN" not in facts["environment"]
    assert facts["home"] == [] and facts["core"] == 0 and not facts["terminal"]
    assert facts["status"]["NoNewPrivs"] == "1"
    assert int(facts["status"]["CapEff"], 16) == 0
    assert not Path(facts["environment"]["HOME"]).exists()


def test_the_kernel_takes_a_worker_first_when_memory_runs_out(any_worker: Worker) -> None:
    facts = any_worker.call("surroundings", {}, extra_path=[HOSTILE])
    assert facts["first to go"] == "1000"


def test_hashes_of_texts_are_the_same_in_every_worker(any_worker: Worker) -> None:
    facts = any_worker.call("surroundings", {}, extra_path=[HOSTILE])
    script = "print(hash('a text whose hash depends on the seed'))"
    reference = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=True
    )
    assert facts["hash"] == int(reference.stdout)


def test_privileges_are_gone(isolated: str) -> None:
    answer = worker(isolated).call("become_root", {}, extra_path=[HOSTILE])
    assert all(number != 0 for number in answer.values()), answer


def test_set_user_id_programs_are_powerless(roomed: str) -> None:
    if not Path("/bin/su").exists():
        pytest.skip("there is no su")
    said = worker(roomed).call("set_user_id", {}, extra_path=[HOSTILE])
    assert said and not said.strip().isdigit()


def test_files_are_read_at_the_same_path_and_only_those(isolated: str, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")
    (tmp_path / "other.txt").write_text("other")
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    (tmp_path / "folder" / "sub" / "deep.txt").write_text("deep")
    reads = [tmp_path / "given.txt", tmp_path / "folder"]
    call = worker(isolated).call
    assert call("read", {"path": str(reads[0])}, reads=reads, extra_path=[HOSTILE]) == "given"
    assert call("read", {"path": str(reads[1] / "sub" / "deep.txt")}, reads=reads, extra_path=[HOSTILE]) == "deep"
    for path in (tmp_path / "other.txt", Path("/etc/shadow"), Path("/etc/hostname"), ROOT / "pyproject.toml"):
        with pytest.raises(WorkerError, match=r"FileNotFoundError|PermissionError"):
            call("read", {"path": str(path)}, reads=reads, extra_path=[HOSTILE])


def test_users_in_a_room_are_not_those_of_the_machine(roomed: str) -> None:
    text = worker(roomed).call("read", {"path": "/etc/passwd"}, extra_path=[HOSTILE])
    assert "worker:x:1000" in text
    assert text != Path("/etc/passwd").read_text()


def test_only_folders_given_for_writing_are_written(isolated: str, tmp_path: Path) -> None:
    out, given, other = tmp_path / "new" / "out", tmp_path / "given", tmp_path / "other"
    given.mkdir()
    other.mkdir()
    inside = out / "input.txt"
    inside.parent.mkdir(parents=True)
    inside.write_text("input")
    call = worker(isolated).call
    reads, writes = [given, inside], [out]

    def write(path: Path) -> bool:
        arguments = {"path": str(path), "text": "written"}
        return bool(call("write", arguments, reads=reads, writes=writes, extra_path=[HOSTILE]))

    assert write(out / "a" / "b.txt")
    assert (out / "a" / "b.txt").read_text() == "written"
    assert (out / "a" / "b.txt").stat().st_uid == os.geteuid()
    assert not write(given / "x.txt")
    assert write(inside) == (isolated == "landlock")  # whose rules cannot take back what a folder above allows
    inside.write_text("input")
    assert not write(Path(bot.__file__))
    assert not write(HOSTILE / "hostile.py")
    assert not write(Path(sys.prefix) / "x.txt")
    assert not write(Path("/x.txt"))
    assert not write(Path("/usr/x.txt"))
    assert not write(Path("/dev/x"))
    write(other / "x.txt")  # may seem to work, in the worker's own /tmp
    write(Path("/tmp/written-by-a-worker.txt"))
    assert list(other.iterdir()) == [] and not Path("/tmp/written-by-a-worker.txt").exists()
    assert inside.read_text() == "input" and list(given.iterdir()) == []


def test_read_only_stays_read_only_when_mounted_anew(roomed: str, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    folders = [str(given), "/", "/usr", "/etc", "/proc", "/dev", sys.prefix, str(Path(bot.__file__).parent)]
    answer = worker(roomed).call("write_everywhere", {"folders": folders}, reads=[given], extra_path=[HOSTILE])
    assert answer == []
    assert list(given.iterdir()) == []


def test_a_folder_mounted_below_a_folder_is_read_only_too(roomed: str, tmp_path: Path) -> None:
    """/dev/shm and /sys/fs are mounts of their own on most systems: a bind of the folder above carries them along."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inner = next((path for path in mounts if path.startswith("/dev/shm")), None)
    if inner is None:
        pytest.skip("nothing is mounted below /dev")
    answer = worker(roomed).call("write_everywhere", {"folders": [inner]}, reads=[Path("/dev")], extra_path=[HOSTILE])
    assert answer == []


def test_links_out_of_a_folder_lead_nowhere(isolated: str, tmp_path: Path, home: Path) -> None:
    token = home / ".cache" / "huggingface" / "token"
    given = tmp_path / "given"
    given.mkdir()
    (given / "absolute").symlink_to(token)
    (given / "relative").symlink_to(os.path.relpath(token, given))
    (given / "through-process").symlink_to(f"/proc/self/root{token}")
    for path in given.iterdir():
        with pytest.raises(WorkerError, match=r"FileNotFoundError|PermissionError"):
            worker(isolated).call("read", {"path": str(path)}, reads=[given], extra_path=[HOSTILE])
        assert worker("none").call("read", {"path": str(path)}, extra_path=[HOSTILE]) == token.read_text()


def test_a_file_named_through_links_is_read(isolated: str, tmp_path: Path) -> None:
    """As the client's cache has it: the file of a snapshot is a link to a blob."""
    blob = tmp_path / "cache" / "blobs" / "0123"
    snapshot = tmp_path / "cache" / "snapshots" / "abcd"
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_text("weights")
    (snapshot / "model.onnx").symlink_to(Path("..", "..", "blobs", "0123"))
    (tmp_path / "shortcut").symlink_to(tmp_path / "cache", target_is_directory=True)
    call = worker(isolated).call
    for path in (snapshot / "model.onnx", tmp_path / "shortcut" / "snapshots" / "abcd" / "model.onnx"):
        assert call("read", {"path": str(path)}, reads=[path], extra_path=[HOSTILE]) == "weights"
    both = [snapshot, snapshot / "model.onnx"]
    assert call("read", {"path": str(both[1])}, reads=both, extra_path=[HOSTILE]) == "weights"
    assert call("read", {"path": str(blob)}, reads=[tmp_path / "cache"], extra_path=[HOSTILE]) == "weights"


@pytest.mark.parametrize("how", ["reads", "writes", "extra_path"])
def test_what_holds_a_token_is_given_to_nobody(
    how: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "token").write_text("hf_secret")
    (home / "model.onnx").write_text("x")
    link = tmp_path / "model.onnx"
    link.symlink_to(home / ".cache" / "huggingface" / "token")
    bad = [Path("/"), tmp_path, home, home / ".cache", home / ".cache" / "huggingface", tmp_path / "elsewhere"]
    bad += [home / ".ssh", home / ".config"]
    bad += (
        [] if how == "writes" else [tmp_path / "elsewhere" / "token", link, home / ".netrc", home / ".ssh/id_ed25519"]
    )
    for path in bad:
        with pytest.raises(StepError, match="A worker would see"):
            Worker(isolation=NONE).call("measure.open", {}, **{how: [path]})


def test_no_worker_starts_where_each_would_see_a_token(
    isolated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert worker(isolated).call("echo", {}, extra_path=[HOSTILE]) == {}
    (tmp_path / "token").write_text("hf_secret")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(StepError, match="Every worker sees this folder"):
        worker(isolated).call("echo", {}, extra_path=[HOSTILE])
    monkeypatch.delenv("HF_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(StepError, match="Every worker sees this folder"):
        worker(isolated).call("echo", {}, extra_path=[HOSTILE])


def test_what_lies_beside_a_token_can_be_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("HF_HOME", raising=False)
    hub = home / ".cache" / "huggingface" / "hub"
    hub.mkdir()
    (hub / "model.onnx").write_text("x")
    arguments = {"path": str(hub / "model.onnx")}
    assert worker("none").call("read", arguments, reads=[hub], extra_path=[HOSTILE]) == "x"


def test_a_link_left_in_place_of_an_output_is_refused(any_worker: Worker, tmp_path: Path, home: Path) -> None:
    token = home / ".cache" / "huggingface" / "token"
    out = tmp_path / "out"
    path = out / "model.onnx"
    with pytest.raises(StepError, match=r"symbolic link.*removed"):
        any_worker.call("link", {"path": str(path), "text": str(token)}, writes=[out], extra_path=[HOSTILE])
    assert not path.is_symlink() and token.exists()


def test_a_link_that_was_there_before_may_stay_but_not_change(any_worker: Worker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").symlink_to("target")
    assert any_worker.call("echo", {}, writes=[out], extra_path=[HOSTILE]) == {}
    assert (out / "mine").is_symlink()
    with pytest.raises(StepError, match="symbolic link"):
        any_worker.call("link", {"path": str(out / "mine"), "text": "/etc/passwd"}, writes=[out], extra_path=[HOSTILE])


@pytest.mark.parametrize("kind", ["pipe", "socket", "set-user-id", "folder-link"])
def test_odd_files_left_behind_are_refused(kind: str, any_worker: Worker, tmp_path: Path) -> None:
    refused = "The worker left a"
    if any_worker.isolation.kind == "landlock" and kind in ("pipe", "socket"):
        refused = "PermissionError"  # it cannot even be made
    with pytest.raises(StepError, match=refused):
        any_worker.call(
            "leave", {"folder": str(tmp_path / "out"), "kind": kind}, writes=[tmp_path / "out"], extra_path=[HOSTILE]
        )
    assert list((tmp_path / "out").rglob("left")) == []
    assert stat.S_ISDIR((tmp_path / "out" / "sub").stat().st_mode)


def test_devices_cannot_be_made(isolated: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="PermissionError"):
        worker(isolated).call(
            "leave", {"folder": str(tmp_path), "kind": "device"}, writes=[tmp_path], extra_path=[HOSTILE]
        )


def test_every_kind_was_tried_that_this_machine_allows() -> None:
    """Where bubblewrap and namespaces both work, as on the machines that test releases, none of these is skipped."""
    assert set(ALL) >= {"bubblewrap", "namespaces", "none"}
