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
# Without namespaces these reach what other processes of the same user share, or change who may read a file.
_DENIED_IN_COMPANY = {
    "x86_64": {
        "shmget": 29,
        "shmat": 30,
        "semget": 64,
        "msgget": 68,
        "chown": 92,
        "fchown": 93,
        "lchown": 94,
        "setxattr": 188,
        "lsetxattr": 189,
        "fsetxattr": 190,
        "removexattr": 197,
        "lremovexattr": 198,
        "fremovexattr": 199,
        "mq_open": 240,
        "fchownat": 260,
    },
    "aarch64": {
        "setxattr": 5,
        "lsetxattr": 6,
        "fsetxattr": 7,
        "removexattr": 14,
        "lremovexattr": 15,
        "fremovexattr": 16,
        "fchownat": 54,
        "fchown": 55,
        "mq_open": 180,
        "msgget": 186,
        "semget": 190,
        "shmget": 194,
        "shmat": 196,
    },
}
# Copying a file sets its mode and its times. In company these do nothing and report success, so that copying works.
_WITHOUT_EFFECT_IN_COMPANY = {
    "x86_64": {
        "chmod": 90,
        "fchmod": 91,
        "utime": 132,
        "utimes": 235,
        "futimesat": 261,
        "fchmodat": 268,
        "utimensat": 280,
        "fchmodat2": 452,
    },
    "aarch64": {"fchmod": 52, "fchmodat": 53, "utimensat": 88, "fchmodat2": 452},
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


def install(*, company: bool = False) -> None:
    """Take the calls away from this process and its descendants, for good.

    Privileges must have been given up before. Calls of a foreign instruction set (32-bit ones, say) end the process.

    Args:
        company: Whether the process shares files and processes with others: no namespaces shut it in.

    Raises:
        OSError: The kernel filters no calls, or the numbers of this processor's calls are not known here.
    """
    machine = os.uname().machine
    if machine not in _DENIED:
        raise OSError(errno.ENOSYS, f"calls of {machine} processors are not known", "seccomp")
    code = _filter(machine, company)
    program = _Program(len(code) // 8, code)
    kernel.filter_system_calls(ctypes.addressof(program))


def _filter(machine: str, company: bool) -> bytes:
    results = dict.fromkeys({*_DENIED[machine].values(), *_DENIED_EVERYWHERE.values()}, errno.EPERM)
    results[_CLONE3] = errno.ENOSYS  # the C library falls back to clone, whose flags a filter can read
    if company:
        results |= dict.fromkeys(_DENIED_IN_COMPANY[machine].values(), errno.EPERM)
        results |= dict.fromkeys(_WITHOUT_EFFECT_IN_COMPANY[machine].values(), 0)
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _AUDIT_ARCHITECTURE[machine], yes=1),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32_BIT, no=1),
        _instruction(_RETURN, _FAIL | errno.EPERM),
    ]
    for number, result in sorted(results.items()):
        code += [_instruction(_EQUAL, number, no=1), _instruction(_RETURN, _FAIL | result)]
    code += [
        _instruction(_EQUAL, _CLONE[machine], no=3),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_HAS_BIT, kernel.CLONE_NEWUSER, no=1),
        _instruction(_RETURN, _FAIL | errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _instruction(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Encode struct sock_filter: after a comparison, skip `yes` or `no` instructions."""
    return struct.pack("=HBBI", code, yes, no, operand)
