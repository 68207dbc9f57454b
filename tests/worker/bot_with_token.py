"""A bot that was started with a token in its environment, and runs one hostile task. Prints what the task found.

Run as `python bot_with_token.py KIND FILE...`.
"""

from __future__ import annotations

import json
import os
import sys

from kinds import ALL, HOSTILE, TASKS

from bot.worker import Limits, Worker


def main() -> None:
    """Run the task; the token is in this process's environment, memory and files."""
    kept = os.environ["HF_TOKEN"] + "-kept"
    worker = Worker(limits=Limits(seconds=100), tasks=TASKS, isolation=ALL[sys.argv[1]])
    found = worker.call("steal", {"files": sys.argv[2:], "start": os.environ["HOME"]}, extra_path=[HOSTILE])
    attacks = worker.call("attack_processes", {"bot": os.getpid()}, extra_path=[HOSTILE])
    print(json.dumps({"found": found, "attacks": attacks, "alive": bool(kept)}))


if __name__ == "__main__":
    main()
