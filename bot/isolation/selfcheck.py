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
        Whether the worker could open the `file`, reach the `network`, and read the environment of other `processes`.
    """
    environments = (entry / "environ" for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid())
    return {
        "file": _opens(Path(arguments["file"])),
        "network": _connects(arguments["port"]),
        "processes": any(_opens(path) for path in environments),
    }


def _opens(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False


def _connects(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
