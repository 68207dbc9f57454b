"""Tasks that a worker is asked to do in tests: most of them what a hostile model file would like to do."""

# A hostile file does not use pathlib.
# ruff: noqa: PTH113, PTH116, PTH118, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Progress = Callable[[int, int, str], None]

TOKEN = re.compile(rb"hf_Planted[0-9a-f]{24}")


def echo(arguments: dict[str, Any], progress: Progress) -> Any:
    """Give back what came."""
    return arguments


def count(arguments: dict[str, Any], progress: Progress) -> int:
    """Report progress a number of times."""
    for done in range(arguments["total"]):
        progress(done + 1, arguments["total"], arguments["text"])
    return arguments["total"]


def surroundings(arguments: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Describe the process."""
    open_files = [fd for fd in range(1024) if _is_open(fd)]
    status = dict(line.split(":", 1) for line in _text("/proc/self/status").splitlines() if ":" in line)
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        terminal = True
    except OSError:
        terminal = False
    return {
        "environment": dict(os.environ),
        "open_files": {fd: _kind_of(fd) for fd in open_files},
        "status": {name: value.strip() for name, value in status.items()},
        "user": os.getuid(),
        "processes": sorted(int(name) for name in _names("/proc") if name.isdigit()),
        "home": [str(path) for path in Path.home().iterdir()],
        "root": _names("/"),
        "core": _core_limit(),
        "terminal": terminal,
        "parent": os.getppid(),
        "session": os.getsid(0),
        "hash": hash("a text whose hash depends on the seed"),
        "interfaces": _interfaces(),
        "path": sys.path,
        "prefix": sys.prefix,
        "first to go": _text("/proc/self/oom_score_adj").strip(),
    }


def steal(arguments: dict[str, Any], progress: Progress) -> dict[str, list[str]]:
    """Look for the planted token by all reasonable means: means to tokens found."""
    means: dict[str, Callable[[], Iterator[bytes]]] = {
        # First: what is found later lies in this process's own memory.
        "memory of this process": lambda: _memory("self"),
        "environment": lambda: iter([repr(dict(os.environ)).encode()]),
        "environment of processes": lambda: (_bytes(path) for path in _processes("environ")),
        "command line of processes": lambda: (_bytes(path) for path in _processes("cmdline")),
        "memory of processes": _all_memory,
        "named files": lambda: (_bytes(path) for path in arguments["files"]),
        "named files through a process": lambda: (
            _bytes(f"{root}/{path}") for root in _processes("root") for path in arguments["files"]
        ),
        "walk": lambda: _walk(arguments["start"]),
        "inherited files": _inherited,
        "git": _git,
        "client": _client,
        "symbolic links": lambda: _links(arguments["files"]),
    }
    return {
        name: sorted({token.decode() for data in look() for token in TOKEN.findall(data)})
        for name, look in means.items()
    }


def attack_processes(arguments: dict[str, Any], progress: Progress) -> dict[str, bool]:
    """Try to trace, to read and to signal the bot and every process that is seen, but this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = {int(path.split("/")[2]) for path in _processes("stat")} | {arguments["bot"]} | set(range(1, 5))
    numbers -= {os.getpid()}
    result = {"traced": False, "signalled": False, "prioritised": False}
    for number in sorted(numbers):
        if libc.ptrace(16, number, None, None) == 0:  # PTRACE_ATTACH
            os.waitpid(number, 0x40000000)
            libc.ptrace(17, number, None, None)  # PTRACE_DETACH
            result["traced"] = True
        if number == arguments["bot"]:
            with contextlib.suppress(OSError):
                os.kill(number, 0)
                result["signalled"] = True
            with contextlib.suppress(OSError):
                os.getpriority(os.PRIO_PROCESS, number)
                result["prioritised"] = True
    return result


def reach(arguments: dict[str, Any], progress: Progress) -> dict[str, bool]:
    """Try to reach sockets of the machine: way to success."""
    return {
        "tcp": _connects(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", arguments["tcp"])),
        "tcp6": "tcp6" in arguments and _connects(socket.AF_INET6, socket.SOCK_STREAM, ("::1", arguments["tcp6"])),
        "udp": _connects(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", arguments["udp"]), b"hello"),
        "dns": _asks_name_server(arguments["udp"]),
        "unix": _connects(socket.AF_UNIX, socket.SOCK_STREAM, arguments["unix"]),
        "unix in a folder that may be read": _connects(socket.AF_UNIX, socket.SOCK_STREAM, arguments["readable"]),
        "abstract": _connects(socket.AF_UNIX, socket.SOCK_STREAM, arguments["abstract"]),
    }


def read(arguments: dict[str, Any], progress: Progress) -> str:
    """Read one file."""
    return Path(arguments["path"]).read_text()


def write(arguments: dict[str, Any], progress: Progress) -> bool:
    """Write one file, and say whether that worked."""
    try:
        path = Path(arguments["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(arguments["text"])
    except OSError:
        return False
    return True


def write_everywhere(arguments: dict[str, Any], progress: Progress) -> list[str]:
    """Write to every folder that is seen, remount included, and say where that worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    worked = []
    for folder in arguments["folders"]:
        libc.mount(None, os.fsencode(folder), None, ctypes.c_ulong(0x20 | 0x1000), None)  # MS_REMOUNT | MS_BIND
        with contextlib.suppress(OSError):
            Path(folder, "written-by-a-worker").write_text("x")
            worked.append(folder)
    return worked


def link(arguments: dict[str, Any], progress: Progress) -> str:
    """Put a symbolic link in place of an output, and read through it."""
    path = Path(arguments["path"])
    path.unlink(missing_ok=True)
    path.symlink_to(arguments["text"])
    try:
        return path.read_text()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def leave(arguments: dict[str, Any], progress: Progress) -> None:
    """Leave something odd behind in a folder."""
    path = Path(arguments["folder"], "sub", "left")
    path.parent.mkdir()
    match arguments["kind"]:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o140600)
        case "device":
            os.mknod(path, 0o020600, os.makedev(1, 3))
        case "set-user-id":
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))
        case "folder-link":
            path.symlink_to("/", target_is_directory=True)


def fail(arguments: dict[str, Any], progress: Progress) -> None:
    """Raise an error of the bot."""
    from bot import errors

    kind = getattr(errors, arguments["class"])
    raise kind("It went wrong", where="model.onnx", remedy="Do this.")


def fail_with_subclass(arguments: dict[str, Any], progress: Progress) -> None:
    """Raise an error of a class that only this module knows."""
    from bot.errors import RecipeError

    class OwnError(RecipeError):
        pass

    raise OwnError("Own", where="here", remedy="Nothing.")


def divide(arguments: dict[str, Any], progress: Progress) -> float:
    """Raise an ordinary exception, after printing."""
    print("printed by the task", flush=True)
    return 1 / arguments["by"]


def leave_early(arguments: dict[str, Any], progress: Progress) -> None:
    """Call sys.exit, or end without an answer."""
    if arguments["hard"]:
        os._exit(7)
    sys.exit("enough")


def die(arguments: dict[str, Any], progress: Progress) -> None:
    """Die by a signal, as a faulty library does."""
    name = arguments["signal"]
    if name == "SIGSEGV":
        ctypes.string_at(8)
    if name == "SIGABRT":
        os.abort()
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(10)


def hog(arguments: dict[str, Any], progress: Progress) -> int:
    """Use more and more memory: its own, shared, or that of many processes."""
    kept: list[Any] = []
    for _ in range(arguments["mebibytes"]):
        match arguments["kind"]:
            case "own":
                kept.append(bytearray(b"x" * (1 << 20)))
            case "shared":
                kept.append(mmap.mmap(-1, 1 << 20))
                kept[-1].write(b"x" * (1 << 20))
            case "processes":
                if os.fork() == 0:
                    kept.append(bytearray(b"x" * (1 << 24)))
                    time.sleep(60)
    time.sleep(arguments.get("sleep", 0))
    return len(kept)


def spin(arguments: dict[str, Any], progress: Progress) -> None:
    """Never end, while other processes stay alive too."""
    if arguments.get("ready"):
        progress(0, 1, str(os.getpid()))
    while True:
        pass


def stay(arguments: dict[str, Any], progress: Progress) -> int:
    """Start processes that shake off their parent and hold a lock on a file; then answer, or go on for ever."""
    lock = os.open(arguments["lock"], os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    made = 0
    with contextlib.suppress(OSError):
        for _ in range(arguments["processes"]):
            if os.fork() == 0:
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                if os.fork() == 0:
                    time.sleep(60)
                os._exit(0)
            made += 1
    progress(made, made, "started")
    if not arguments["answers"]:
        time.sleep(60)
    return made


def answer_long(arguments: dict[str, Any], progress: Progress) -> str:
    """Give an answer that is too long."""
    return "x" * arguments["bytes"]


def answer_raw(arguments: dict[str, Any], progress: Progress) -> None:
    """Write bytes to the private pipe, as a library that was taken over can."""
    for fd in range(3, 1024):
        with contextlib.suppress(OSError):
            os.write(fd, arguments["text"].encode("latin-1") * arguments.get("times", 1))
    time.sleep(arguments.get("sleep", 0))


def answer_what_is_no_json(arguments: dict[str, Any], progress: Progress) -> Any:
    """Return what JSON cannot hold."""
    return {"nan": float("nan"), "set": {1}, "bytes": b"x", "surrogate": "\ud800"}[arguments["what"]]


def print_much(arguments: dict[str, Any], progress: Progress) -> None:
    """Print more than anybody keeps, then fail."""
    for number in range(arguments["lines"]):
        print(f"line {number} \x1b[31mred\x1b[0m")
    raise ValueError("after much output \x1b]0;title\x07")


def fill(arguments: dict[str, Any], progress: Progress) -> None:
    """Write until the folder is full."""
    with Path(arguments["folder"], "big").open("wb") as file:
        while True:
            file.write(b"\0" * (1 << 20))


def fill_quietly(arguments: dict[str, Any], progress: Progress) -> None:
    """Fill the folder, and report it as libraries written in C++ do."""
    try:
        fill(arguments, progress)
    except OSError as error:
        raise RuntimeError(f"cannot save the model: {os.strerror(error.errno or 0)}") from None


def grow(arguments: dict[str, Any], progress: Progress) -> None:
    """Make one file larger than a file may be."""
    os.truncate(os.open(arguments["path"], os.O_CREAT | os.O_WRONLY, 0o600), arguments["bytes"])


def run_model(arguments: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Make a model, run it, decode an image, draw a plot: all that the bot's own tasks do with libraries."""
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
    from PIL import Image

    folder = Path(arguments["folder"])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 64])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], np.eye(64, dtype=np.float32).tobytes(), raw=True)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    (y,) = session.run(None, {"x": x})
    image = Image.open(arguments["image"])
    plot = folder / "plot.svg"
    if arguments["plot"]:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        pyplot.plot([1, 2, 3])
        pyplot.savefig(plot)
    return {
        "same": bool((x == y).all()),
        "version": onnxruntime.__version__,
        "file": onnxruntime.__file__,
        "size": list(image.size),
        "providers": session.get_providers(),
        "plot": plot.exists(),
    }


def open_model(arguments: dict[str, Any], progress: Progress) -> list[str]:
    """Open a model in the runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(arguments["path"], providers=["CPUExecutionProvider"])
    return [value.name for value in session.get_inputs()]


def where(arguments: dict[str, Any], progress: Progress) -> str:
    """Return the file of a module."""
    return str(importlib.import_module(arguments["module"]).__file__)


def exist(arguments: dict[str, Any], progress: Progress) -> list[str]:
    """Return those of the named functions that are there."""
    found = []
    for name in arguments["names"]:
        module, _, function = name.partition(":")
        if callable(getattr(importlib.import_module(module), function, None)):
            found.append(name)
    return found


def become_root(arguments: dict[str, Any], progress: Progress) -> dict[str, int]:
    """Try what needs privileges: name of the call to the error number, 0 if it worked."""
    libc = ctypes.CDLL(None, use_errno=True)

    def attempt(function: Callable[[], int]) -> int:
        ctypes.set_errno(0)
        return ctypes.get_errno() if function() < 0 else 0

    return {
        "setuid": attempt(lambda: libc.setuid(0)) if os.getuid() else 1,
        "new user namespace": attempt(lambda: libc.unshare(0x10000000)),
        "new mount namespace": attempt(lambda: libc.unshare(0x00020000)),
        "mount": attempt(lambda: libc.mount(b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None)),
        "unmount": attempt(lambda: libc.umount2(b"/proc", 2)),
        "chroot": attempt(lambda: libc.chroot(b"/tmp")),
        "host name": attempt(lambda: libc.sethostname(b"x", ctypes.c_size_t(1))),
        "kernel log": attempt(lambda: libc.klogctl(3, ctypes.create_string_buffer(8), 8)),
        "core pattern": _writes("/proc/sys/kernel/core_pattern"),
        "host's processors": _writes("/sys/devices/system/cpu/cpu0/online"),
    }


def set_user_id(arguments: dict[str, Any], progress: Progress) -> str:
    """Run a program that the file system says runs as root, and return its status."""
    return subprocess.run(["/bin/su", "-c", "id -u"], capture_output=True, text=True, timeout=10).stderr


def threads(arguments: dict[str, Any], progress: Progress) -> int:
    """Report progress from many threads at once."""
    workers = [threading.Thread(target=progress, args=(number, 50, "x" * 100)) for number in range(50)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(workers)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _kind_of(fd: int) -> str:
    mode = os.fstat(fd).st_mode
    return {0o010000: "pipe", 0o020000: "device", 0o100000: "file", 0o140000: "socket"}.get(mode & 0o170000, "other")


def _core_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_CORE)[1]


def _interfaces() -> list[str]:
    try:
        return [name for _, name in socket.if_nameindex()]
    except OSError:
        return []


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""


def _processes(name: str) -> list[str]:
    return [f"/proc/{entry}/{name}" for entry in _names("/proc") if entry.isdigit()]


def _memory(process: str) -> Iterator[bytes]:
    try:
        with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            for line in maps:
                match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                if match and int(match[2], 16) - int(match[1], 16) < 64 << 20:
                    with contextlib.suppress(OSError, ValueError):
                        memory.seek(int(match[1], 16))
                        yield memory.read(int(match[2], 16) - int(match[1], 16))
    except OSError:
        return


def _all_memory() -> Iterator[bytes]:
    for path in _processes("mem"):
        process = path.split("/")[2]
        if process != str(os.getpid()) and b"python" in _bytes(f"/proc/{process}/cmdline"):
            yield from _memory(process)


_TOPS = ("etc", "home", "root", "run", "srv", "tmp", "var", "work")


def _walk(start: str) -> Iterator[bytes]:
    skipped = {"proc", "sys", "dev", "usr", "lib", "lib64", "bin", "sbin", "nix"}
    left = 30_000
    for top in [start, *(f"/{name}" for name in sorted(set(_names("/") or _TOPS) - skipped))]:
        for folder, folders, files in os.walk(top):
            if folder in {sys.prefix, sys.base_prefix} or folder.endswith("/site-packages"):
                folders.clear()
                continue
            for name in files:
                path = os.path.join(folder, name)
                left -= 1
                if left < 0:
                    return
                with contextlib.suppress(OSError):
                    if os.stat(path).st_size < 1 << 16 and os.path.isfile(path):
                        yield _bytes(path)


def _inherited() -> Iterator[bytes]:
    for fd in range(3, 1024):
        if _is_open(fd) and _kind_of(fd) == "file":
            yield os.pread(fd, 1 << 16, 0)
        with contextlib.suppress(OSError):
            yield _bytes(f"/proc/self/fd/{fd}") if _kind_of(fd) == "file" else b""


def _git() -> Iterator[bytes]:
    for command in (["git", "config", "--list"], ["git", "credential", "fill"]):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            yield subprocess.run(
                command, input=b"protocol=https\nhost=hub.example\n\n", capture_output=True, timeout=10
            ).stdout


def _client() -> Iterator[bytes]:
    with contextlib.suppress(ImportError):
        from huggingface_hub import get_token

        yield (get_token() or "").encode()


def _links(files: list[str]) -> Iterator[bytes]:
    for number, file in enumerate(files):
        path = Path(os.environ["TMPDIR"], f"link-{number}")
        path.symlink_to(file)
        yield _bytes(path)


def _connects(family: int, kind: int, address: Any, message: bytes = b"") -> bool:
    if isinstance(address, str) and address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(family, kind) as connection:
            connection.settimeout(2)
            connection.connect(address)
            if message:
                connection.send(message)
                return connection.recv(16) == message
        return True
    except OSError:
        return False


def _asks_name_server(port: int) -> bool:
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03hub\x07example\x00\x00\x01\x00\x01"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(2)
            connection.sendto(question, ("127.0.0.1", port))
            return connection.recv(512)[:2] == question[:2]
    except OSError:
        return False


def _writes(path: str) -> int:
    try:
        content = Path(path).read_bytes()
        with open(path, "wb") as file:
            file.write(content)
    except OSError as error:
        return error.errno or -1
    return 0
