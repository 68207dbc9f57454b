"""What a worker does to find out whether it is shut in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any


def look(arguments: dict[str, Any], progress: Callable[[int, int, str], None]) -> dict[str, bool]:
    """Try to get out, once.

    Args:
        arguments: `file`: a file of the machine that a worker must not see. `port`: of a listener on 127.0.0.1.
        progress: Not called.

    Returns:
        Whether the worker saw the `file`, the `network`, and other `processes`.
    """
    return {
        "file": Path(arguments["file"]).exists(),
        "network": _connects(arguments["port"]),
        "processes": os.getpid() > 2 or _sees_processes(),
    }


def _connects(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _sees_processes() -> bool:
    return any(entry.name.isdigit() and int(entry.name) > 2 for entry in Path("/proc").glob("*"))
