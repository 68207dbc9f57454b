"""The command line that makes bubblewrap build a room."""

from __future__ import annotations

from collections.abc import Sequence

from bot.isolation.room import Room

# If memory runs out, the kernel takes the worker first. This cannot be said in the room, whose /proc is read-only.
_START = 'echo 1000 > /proc/self/oom_score_adj; exec "$@"'


def command(program: str, room: Room, inner: Sequence[str]) -> list[str]:
    """Return the command that runs `inner` as process 1 of a room.

    Args:
        program: Path of `bwrap`.
        room: What the process may see.
        inner: The command to run in the room. Open file descriptors are passed on to it.
    """
    arguments = [
        "/bin/sh",
        "-c",
        _START,
        "sh",
        program,
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
    ]
    arguments += ["--unshare-cgroup-try", "--uid", str(room.user), "--gid", str(room.user), "--hostname", "worker"]
    arguments += ["--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    for place, text in room.links:
        arguments += ["--symlink", text, place]
    if room.fresh_proc:
        arguments += ["--proc", "/proc"]
    for place, size in room.scratch:
        arguments += ["--perms", "1777", "--size", str(size), "--tmpfs", place]
    for device in room.devices:
        arguments += ["--dev-bind", device, device]
    for source, place, writable in room.mounts:
        arguments += ["--bind" if writable else "--ro-bind", source, place]
    for place in ("/proc", "/") if room.fresh_proc else ("/",):
        arguments += ["--remount-ro", place]
    return [*arguments, "--chdir", "/", "--", *inner]
