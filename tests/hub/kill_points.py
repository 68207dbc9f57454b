"""Publishes, is killed at every moment in turn, and is run again. Run as a process of its own: it forks.

    python kill_points.py ENDPOINT TOKEN FOLDER MODE

A moment is just before or just after one of the requests by which a publish sends something; between two of them
nothing changes, neither here nor there. Prints one line of JSON per moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parent)]

import huggingface_hub.constants as constants  # noqa: E402
from hub_cases import QUICK, make_case  # noqa: E402

from bot.hub import session  # noqa: E402
from bot.hub.client import Hub  # noqa: E402
from bot.hub.library import library  # noqa: E402
from bot.hub.publish import publish  # noqa: E402
from bot.hub.verify import confirm  # noqa: E402


def die_at(moment: int) -> None:
    """Makes this process kill itself before (even) or after (odd) its sending request number `moment // 2`."""
    send, count = session.Client.send, [0]

    def counting(self: session.Client, request: Any, **options: Any) -> Any:
        if request.method in ("GET", "HEAD"):
            return send(self, request, **options)
        mine = count[0]
        count[0] += 1
        if moment == 2 * mine:
            os.kill(os.getpid(), signal.SIGKILL)
        response = send(self, request, **options)
        if moment == 2 * mine + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    session.Client.send = counting  # type: ignore[method-assign]


def in_child(work: Any) -> int:
    """Runs in a forked child, and returns how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(endpoint: str, token: str, folder: Path, mode: Any) -> None:
    """Goes through the moments until a run ends before it is killed."""
    library()
    constants.HF_HUB_DISABLE_XET = True  # its threads do not survive a fork
    moment = 0
    while True:
        target = f"kill-{mode}/m{moment}"
        older = make_case(folder / f"{moment}-old", target, seed="0")
        case = make_case(folder / str(moment), target, seed="1", models={"model.onnx": b"m" * 100_000})

        def run(case: Any = case) -> None:
            hub = Hub(endpoint, token, policy=QUICK)
            done = publish(hub, **case.arguments(mode))
            if done.kind != "nothing":
                confirm(hub, case.release, done, folder / "cache")

        assert in_child(lambda older=older: run(older)) == 0

        def killed(moment: int = moment) -> None:
            die_at(moment)
            run()

        ended = in_child(killed)
        again = in_child(run)
        print(
            json.dumps({"moment": moment, "target": target, "killed": ended == -signal.SIGKILL, "again": again}),
            flush=True,
        )
        if ended == 0:
            return
        moment += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
