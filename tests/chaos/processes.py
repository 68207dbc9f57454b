"""Work in forked processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def fork(work: Callable[[], None]) -> int:
    """Starts a child that does some work and exits with 0, or with 1 after saying why on standard error."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(f"the child ended in {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def wait(child: int) -> int:
    """How a child ended: its exit code, or the negative number of the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
