"""What a worker may see of the machine: the list of mounts, the same for bubblewrap and for our own namespaces.

A worker sees the system's libraries, Python with its packages, the bot's own code, what the call reads and what it
writes. It does not see the home folder, `/run`, `/etc` (but for the linker's files), or other people's `/tmp`.
"""

# Mounts are given to the kernel as text, and a path must keep its symbolic links.
# ruff: noqa: PTH100, PTH110, PTH112, PTH114, PTH115, PTH119, PTH120

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bot.errors import StepError
from bot.isolation import private

USER = 1000
"""The user and group that the worker sees itself as."""

HOME = "/tmp/home"  # noqa: S108  inside the worker, where /tmp is its own
SCRATCH_BYTES = 4 << 30

_PACKAGE = Path(__file__).resolve().parent.parent
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_LINKER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/fonts")
_PROCESSOR = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_HIDDEN = ("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/sysrq-trigger", "/proc/timer_list")
_HARMLESS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/vm/overcommit_memory")
_GPU_DRIVER = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm")


@dataclass(frozen=True)
class Room:
    """The file system of one worker.

    Attributes:
        mounts: (path on the machine, path in the room, writable), outer folders first.
        links: (path in the room, text of the symbolic link).
        devices: Device files, at the same path in the room.
        scratch: (path in the room, bytes) of empty file systems in memory, which vanish with the worker.
        fresh_proc: Whether the room has a /proc of its own; else it gets a few harmless files of the machine's.
        user: The number that user and group of the worker have in the room.
    """

    mounts: tuple[tuple[str, str, bool], ...]
    links: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    scratch: tuple[tuple[str, int], ...]
    fresh_proc: bool
    user: int = USER

    def to_json(self) -> dict[str, Any]:
        """Return the room as JSON, for the process that builds it."""
        return asdict(self)


@dataclass(frozen=True)
class Interpreter:
    """Another Python than the bot's own, with packages of its own. The bot's packages are not seen in its room.

    Attributes:
        program: Path of the executable.
        prefix: Where it is installed; a worker's `sys.prefix`.
        library: The folders of its standard library, as in `sys.path`.
        packages: The folder that its packages lie in.
    """

    program: str
    prefix: str
    library: tuple[str, ...]
    packages: str

    def folders(self) -> list[str]:
        """What a worker has to see of the machine to run it."""
        program = Path(self.program)
        near = [str(program.parent), str(program.resolve().parent)]
        return [self.prefix, *near, *(path for path in self.library if os.path.exists(path)), self.packages]


def plan(
    *,
    reads: Sequence[Path] = (),
    writes: Sequence[Path] = (),
    extra_path: Sequence[Path] = (),
    fresh_proc: bool = True,
    gpu: bool = False,
    interpreter: Interpreter | None = None,
) -> Room:
    """List what one worker may see.

    Args:
        reads: Files and folders that it may read, at the same path.
        writes: Folders that it may also write.
        extra_path: Folders with Python packages that it may read.
        fresh_proc: Whether a /proc of its own can be mounted.
        gpu: Whether it may use the NVIDIA devices, where there are any.
        interpreter: The Python that it runs in; None for the bot's own.

    Raises:
        StepError: A path is missing, or holds what a worker must never see.
    """
    mounts = _machine(fresh_proc)
    links = tuple((path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path))
    for path in _python_folders() if interpreter is None else [*interpreter.folders(), str(_PACKAGE)]:
        _add(mounts, path, writable=False)
    devices = _DEVICES + (_gpu_devices() if gpu else ())
    for path in _existing(_GPU_DRIVER) if len(devices) > len(_DEVICES) else ():
        _add(mounts, path, writable=False)
    private.refuse_what_holds_secrets(source for source, _ in mounts.values())
    for path in _given((*reads, *extra_path, *_linker_path())):
        _add(mounts, path, writable=False)
    for path in _given(writes):
        _add(mounts, path, writable=True)
    ordered = sorted((place.count("/"), place, source, writable) for place, (source, writable) in mounts.items())
    return Room(
        mounts=tuple((source, place, writable) for _, place, source, writable in ordered),
        links=(*links, ("/dev/fd", "/proc/self/fd")),
        devices=devices,
        scratch=(("/tmp", SCRATCH_BYTES), ("/dev/shm", SCRATCH_BYTES)),  # noqa: S108  in the room
        fresh_proc=fresh_proc,
    )


def _machine(fresh_proc: bool) -> dict[str, tuple[str, bool]]:
    """Return what every worker sees of the system: place to source and whether it may be written."""
    mounts: dict[str, tuple[str, bool]] = {}
    for path in _existing(_SYSTEM + _LINKER + _PROCESSOR):
        if path not in _SYSTEM or not os.path.islink(path):
            _add(mounts, path, writable=False)
    for name in ("passwd", "group"):
        mounts[f"/etc/{name}"] = (str(_PACKAGE / "isolation" / name), False)
    if os.path.exists("/etc/localtime"):
        mounts["/etc/localtime"] = (os.path.realpath("/etc/localtime"), False)
    if fresh_proc:
        mounts |= dict.fromkeys(_existing(_HIDDEN), ("/dev/null", False))
    else:
        mounts |= {path: (path, False) for path in _existing(_HARMLESS)}
    return mounts


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def python_path(extra_path: Sequence[Path] = (), interpreter: Interpreter | None = None) -> list[str]:
    """Return `sys.path` for a worker: the extra folders, the standard library, the packages, the bot."""
    if interpreter is not None:
        return [*_given(extra_path), *interpreter.library, interpreter.packages, str(_PACKAGE.parent)]
    folders = [*_given(extra_path), *_library_folders(), *_package_folders(), str(_PACKAGE.parent)]
    return list(dict.fromkeys(folders))


def _add(mounts: dict[str, tuple[str, bool]], path: str, *, writable: bool) -> None:
    """Bind `path` at its own path, and what it points to at its own too, so that symbolic links lead somewhere."""
    real = os.path.realpath(path)
    writable = writable or mounts.get(real, ("", False))[1]
    mounts[real] = (real, writable)
    if real != path and not _is_link_in_view(mounts, path):
        mounts[path] = (real, writable)


def _is_link_in_view(mounts: dict[str, tuple[str, bool]], path: str) -> bool:
    parent = os.path.realpath(os.path.dirname(path))
    return os.path.islink(path) and any(
        private.holds(source, os.path.realpath(parent)) for source, _ in mounts.values()
    )


def _python_folders() -> list[str]:
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    program = Path(sys.executable)
    folders = [*sorted(prefixes), str(program.parent), str(program.resolve().parent), *_package_folders()]
    return [*folders, str(_PACKAGE)]


def _library_folders() -> list[str]:
    roots = [os.path.realpath(root) for root in (sys.base_prefix, sys.base_exec_prefix)]
    return [
        path
        for path in sys.path
        if path and not _is_packages(path) and any(private.holds(root, os.path.realpath(path)) for root in roots)
    ]


def _package_folders() -> list[str]:
    return [path for path in sys.path if _is_packages(path) and os.path.isdir(path)]


def _is_packages(path: str) -> bool:
    return os.path.basename(path) in {"site-packages", "dist-packages"}


def _given(paths: Iterable[Path]) -> list[str]:
    result = []
    for path in paths:
        text = os.path.abspath(path)
        if not os.path.exists(text):
            raise StepError("A file that the worker is to read is missing.", where=text)
        private.refuse(text)
        result.append(text)
    return result


def _linker_path() -> list[Path]:
    """Return the folders that the environment names for the linker, which a worker's environment names too."""
    folders = [Path(text) for text in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    return [folder for folder in folders if folder.is_absolute() and folder.is_dir()]


def _gpu_devices() -> tuple[str, ...]:
    found = [*Path("/dev").glob("nvidia*"), *Path("/dev/nvidia-caps").glob("*"), *Path("/dev").glob("dxg")]
    return tuple(sorted(str(path) for path in found if path.is_char_device()))
