"""Shuts the process in with Landlock, where the system gives it no namespaces: in a container, most often.

The worker then shares the machine's view of files and processes, but the kernel lets it open only what the room lists,
and neither trace nor read the memory and the environment of a process outside. Together with the filter of system
calls, which takes away sockets, that keeps the token and the network out of reach. What it can still do that a room
would prevent: see names, sizes and times of files, and the command lines of other processes.

See landlock(7) and the kernel's `Documentation/userspace-api/landlock.rst`; constants are those of `linux/landlock.h`.
"""

# pathlib would take longer to import than all the rest of this module.
# ruff: noqa: PTH112

from __future__ import annotations

import contextlib
import os
import struct
from typing import Any

from bot.isolation import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FOLDER, _REMOVE_FILE, _MAKE_FOLDER, _MAKE_FILE, _MAKE_LINK = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
_MOVE, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15

_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_CHANGE = _WRITE_FILE | _TRUNCATE | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE | _MAKE_LINK | _MOVE
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL

_OLDEST = 3
"""Before version 3 (Linux 6.2) a worker could empty any file of its user by truncating it."""


def enter(room: dict[str, Any], scratch: str) -> None:
    """Give up the right to open anything that the room does not list.

    Args:
        room: `bot.isolation.room.Room` as JSON.
        scratch: A folder that may be written, for temporary files.

    Raises:
        OSError: The kernel has no Landlock, or an old one.
    """
    version = kernel.landlock_version()
    if version < _OLDEST:
        raise OSError(95, f"version {_OLDEST} is needed and the kernel has {version}", "Landlock")
    files, network, scopes = _known(version)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = kernel.landlock_create(struct.pack("=QQQ", files, network, scopes)[:size])
    try:
        for source, _, writable in room["mounts"]:
            _allow(ruleset, source, files & (_READ | _CHANGE if writable else _READ))
        for device in room["devices"]:
            _allow(ruleset, device, files & (_READ_FILE | _WRITE_FILE | _DEVICE_CONTROL))
        _allow(ruleset, "/proc", files & _READ)
        _allow(ruleset, scratch, files & (_READ | _CHANGE))
        kernel.landlock_restrict(ruleset)
    finally:
        os.close(ruleset)


def _known(version: int) -> tuple[int, int, int]:
    """Return all rights that a version can take away: on files, on TCP, and across the border of the domain."""
    files = (1 << 16) - 1 if version >= 5 else (1 << 15) - 1
    return files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= _FILE_ONLY
            kernel.landlock_allow(ruleset, struct.pack("=Qi", rights, descriptor))
        finally:
            os.close(descriptor)
