"""Takes system calls away that no task needs: sockets, tracing, keys, mounts, and corners of the kernel seldom tested.

The namespaces already leave nothing to reach by most of these. The filter is a second wall, and it closes one door that
namespaces leave open: a socket file in a folder that the task may read. See seccomp(2) and the kernel's
`Documentation/userspace-api/seccomp_filter.rst`. A pair of sockets within the worker stays possible.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from bot.isolation import kernel

# Number of each call per machine, as in the kernel's unistd tables.
_DENIED = {
    "x86_64": {
        "socket": 41,
        "ptrace": 101,
        "syslog": 103,
        "pivot_root": 155,
        "chroot": 161,
        "acct": 163,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "init_module": 175,
        "delete_module": 176,
        "quotactl": 179,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
    },
    "aarch64": {
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "chroot": 51,
        "quotactl": 60,
        "acct": 89,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "syslog": 116,
        "ptrace": 117,
        "reboot": 142,
        "socket": 198,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "swapon": 224,
        "swapoff": 225,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
}
# These have the same number everywhere.
_DENIED_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install() -> bool:
    """Take the calls away from this process and its descendants, for good.

    Privileges must have been given up before. Calls of a foreign instruction set (32-bit ones, say) end the process.

    Returns:
        False on a processor whose numbers are not known here: nothing was done.
    """
    machine = os.uname().machine
    if machine not in _DENIED:
        return False
    code = _filter(machine)
    program = _Program(len(code) // 8, code)
    kernel.filter_system_calls(ctypes.addressof(program))
    return True


def _filter(machine: str) -> bytes:
    forbid = _instruction(_RETURN, _FAIL | errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _AUDIT_ARCHITECTURE[machine], yes=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32_BIT, no=1),
        forbid,
        # The C library falls back to clone, whose flags a filter can read.
        _instruction(_EQUAL, _CLONE3, no=1),
        _instruction(_RETURN, _FAIL | errno.ENOSYS),
    ]
    for number in sorted({*_DENIED[machine].values(), *_DENIED_EVERYWHERE.values()}):
        code += [_instruction(_EQUAL, number, no=1), forbid]
    code += [
        _instruction(_EQUAL, _CLONE[machine], no=3),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_HAS_BIT, kernel.CLONE_NEWUSER, no=1),
        forbid,
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _instruction(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Encode struct sock_filter: after a comparison, skip `yes` or `no` instructions."""
    return struct.pack("=HBBI", code, yes, no, operand)
