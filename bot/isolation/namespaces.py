"""Shuts the process in with Linux namespaces of its own, where there is no bubblewrap to do it.

The process that the bot started enters new namespaces and forks. Its child is process 1 of the new PID namespace: it
builds a root of what the room lists, moves into it, and gives up every capability. When process 1 ends, the kernel
ends all that runs in the namespace.

The order (a scratch file system, the old root moved below it, binds from there, a second pivot, the old root let go)
follows pivot_root(2) and mount_namespaces(7).
"""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH120, PTH123, PTH211

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from bot.isolation import kernel

_BASE = "/tmp"  # noqa: S108  a folder that every Linux has; it is covered in this process's namespace only
_OLD = "/old"
_NEW = "/new"
_SHUT = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV


def enter(room: dict[str, Any]) -> None:
    """Return in process 1 of a new PID namespace, in the room and without a capability.

    The calling process must have one thread. It does not return itself: it waits for process 1, and ends as that one.

    Args:
        room: `bot.isolation.room.Room` as JSON.

    Raises:
        OSError: The system does not allow it, with the call that was refused.
    """
    _unshare(room["user"])
    if child := os.fork():
        kernel.drop_capabilities()
        kernel.die_with_parent(signal.SIGKILL)  # again: the kernel forgot it when the credentials changed
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    kernel.set_host_name("worker")
    _move_old_root()
    _forbid_more_namespaces()
    _furnish(room)
    _move_in()
    kernel.drop_capabilities()


def _unshare(inner: int) -> None:
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(
        kernel.CLONE_NEWUSER
        | kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
        | kernel.CLONE_NEWCGROUP
    )
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inner} {user} 1")
    _write("/proc/self/gid_map", f"{inner} {group} 1")


def _move_old_root() -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    os.mkdir(_BASE + _OLD)
    os.mkdir(_BASE + _NEW)
    kernel.pivot_root(_BASE, _BASE + _OLD)
    os.chdir("/")
    kernel.mount(_NEW, _NEW, flags=kernel.MS_BIND)  # a root must be a mount


def _forbid_more_namespaces() -> None:
    # A process with its own user namespace may try more of the kernel. Where /proc/sys is read-only this stays open.
    with contextlib.suppress(OSError):
        _write(f"{_OLD}/proc/sys/user/max_user_namespaces", "0")


def _furnish(room: dict[str, Any]) -> None:
    for place, text in room["links"]:
        os.makedirs(os.path.dirname(_NEW + place), exist_ok=True)
        os.symlink(text, _NEW + place)
    if room["fresh_proc"]:
        os.mkdir(f"{_NEW}/proc")
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_RDONLY
        kernel.mount("proc", f"{_NEW}/proc", "proc", flags)
    for place, size in room["scratch"]:
        os.makedirs(_NEW + place)
        kernel.mount("tmpfs", _NEW + place, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode=1777,size={size}")
    for device in room["devices"]:
        _bind(device, device, kernel.MOUNT_ATTR_NOSUID)
    for source, place, writable in room["mounts"]:
        _bind(source, place, _SHUT if writable else _SHUT | kernel.MOUNT_ATTR_RDONLY)


def _bind(source: str, place: str, attributes: int) -> None:
    origin, target = _OLD + source, _NEW + place
    if os.path.isdir(origin):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    kernel.mount(origin, target, flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(target, attributes, recursive=True)


def _move_in() -> None:
    kernel.restrict_mount(_NEW, _SHUT | kernel.MOUNT_ATTR_RDONLY, recursive=False)
    kernel.unmount(_OLD)
    os.chdir(_NEW)
    kernel.pivot_root(".", ".")  # stacks the scratch root on the new one, from where it can be let go
    kernel.unmount(".")
    os.chdir("/")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
