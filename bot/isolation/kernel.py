"""The few Linux system calls that the standard library of Python 3.11 does not offer.

Each function raises OSError with the kernel's reason. The constants are those of the kernel's own headers
(`linux/mount.h`, `linux/prctl.h`, `linux/sched.h`, `linux/capability.h`).
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_RDONLY = 0x1
MNT_DETACH = 0x2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_KEYCTL_JOIN_SESSION_KEYRING = 1

# System calls without a function in the C library: number per machine, as in the kernel's unistd tables.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE = 444
_LANDLOCK_ALLOW = 445
_LANDLOCK_RESTRICT = 446

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def _check(result: int, subject: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


def unshare(flags: int) -> None:
    """Move the process into new namespaces, one for each `CLONE_NEW…` flag."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` on `target`, as mount(2) does."""
    arguments = (os.fsencode(source), os.fsencode(target), os.fsencode(kind) or None)
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(options) or None), f"mount {target}")


def unmount(target: str) -> None:
    """Detach the mounts at `target`; they end once nothing uses them."""
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def restrict_mount(target: str, attributes: int, *, recursive: bool) -> None:
    """Set `MOUNT_ATTR_…` bits on the mount at `target`, and on those below it (Linux 5.12)."""
    request = _MountAttributes(attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(request),
        ctypes.c_size_t(ctypes.sizeof(request)),
    )
    _check(result, f"mount_setattr {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make the mount at `new_root` the root, and hang the old root below `put_old`."""
    number = _number(_PIVOT_ROOT, "pivot_root")
    _check(_libc.syscall(ctypes.c_long(number), os.fsencode(new_root), os.fsencode(put_old)), "pivot_root")


def set_host_name(name: str) -> None:
    """Name the machine, within this process's UTS namespace."""
    text = name.encode()
    _check(_libc.sethostname(text, ctypes.c_size_t(len(text))), "sethostname")


def die_with_parent(signal: int) -> None:
    """Ask the kernel for `signal` when the parent dies. A change of credentials forgets it."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def allow_tracing(allowed: bool) -> None:
    """Let other processes of this user read this process's memory, or not."""
    _prctl(_PR_SET_DUMPABLE, int(allowed))


def gain_no_privileges() -> None:
    """Make set-user-id files and file capabilities powerless for this process and its descendants."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, now and for whatever this process executes later."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, *_longs(capability, 0, 0, 0)) < 0:
            break  # the first number that this kernel does not know, or no right to drop: nothing to give up
    _libc.prctl(_PR_CAP_AMBIENT, *_longs(_PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


def filter_system_calls(program: int) -> None:
    """Put every later system call through the BPF program (struct sock_fprog) at this address."""
    _check(_libc.prctl(_PR_SET_SECCOMP, *_longs(_SECCOMP_MODE_FILTER, program, 0, 0)), "seccomp")


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 for none."""
    version = _libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, int(version))


def landlock_create(attributes: bytes) -> int:
    """Return a file descriptor of a new ruleset, from struct landlock_ruleset_attr."""
    size = ctypes.c_size_t(len(attributes))
    result = _libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), attributes, size, ctypes.c_uint32(0))
    _check(result, "Landlock")
    return int(result)


def landlock_allow(ruleset: int, rule: bytes) -> None:
    """Add struct landlock_path_beneath_attr to a ruleset."""
    _check(_libc.syscall(ctypes.c_long(_LANDLOCK_ALLOW), ruleset, 1, rule, ctypes.c_uint32(0)), "Landlock")


def landlock_restrict(ruleset: int) -> None:
    """Hold this process and its descendants to a ruleset, for good."""
    _check(_libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT), ruleset, ctypes.c_uint32(0)), "Landlock")


def forget_keyring() -> None:
    """Leave the session keyring of the kernel that the parent may keep keys in."""
    if (number := _KEYCTL.get(os.uname().machine)) is not None:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, *_longs(value, 0, 0, 0)), f"prctl {option}")


def _longs(*values: int) -> tuple[ctypes.c_ulong, ...]:
    return tuple(ctypes.c_ulong(value) for value in values)


def _number(table: dict[str, int], name: str) -> int:
    machine = os.uname().machine
    if machine not in table:
        raise OSError(38, f"{name} is not known for {machine} processors")
    return table[machine]
