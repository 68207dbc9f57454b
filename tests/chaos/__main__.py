"""Publishing under every fault, kill, rival and forgery, with the end state judged by an oracle of its own.

    python -m tests.chaos                     the short form
    python -m tests.chaos --long --shard 1/4  a quarter of the long form
    python -m tests.chaos --only 'NAME'       one case, or all that fit a shell pattern, of the long form
    python -m tests.chaos --merge A.json …    one table of several shards

The last line is `N cases, M wrong`; the exit code is 1 if M is not 0.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.place import Place, prepare_environment
from tests.chaos.table import Result, read_json, render, write_json

SEED = 20261130


def main(arguments: list[str] | None = None) -> int:
    """Runs what the command line asks for."""
    options = _options(arguments)
    command = f"python -m tests.chaos --seed {options.seed}"
    merged = [result for path in options.merge for result in read_json(path)]
    results = merged or _run(options)
    print(render(results, command))
    if options.json:
        write_json(options.json, results, {"seed": options.seed, "long": options.long, "shard": options.shard})
    return int(any(result.wrong for result in results))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--long", action="store_true", help="everything, not a selection")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="the Kth of N parts")
    parser.add_argument("--only", metavar="PATTERN", help="the cases of the long form whose names fit")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there as well")
    parser.add_argument(
        "--merge", type=Path, nargs="+", default=[], metavar="FILE", help="print the table of such files"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases and run none")
    options = parser.parse_args(arguments)
    shard, _, count = options.shard.partition("/")
    if not (shard.isdigit() and count.isdigit() and 1 <= int(shard) <= int(count)):
        parser.error("--shard is K/N with K from 1 to N")
    return options


def _run(options: argparse.Namespace) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=_memory()) as name:
        folder = Path(name)
        prepare_environment(folder / "home")
        from tests.chaos.place import hurry_library
        from tests.chaos.plan import chosen
        from tests.hub_server import start_hub

        (folder / "home").mkdir()
        hurry_library()
        server = start_hub(folder / "hub", "--user", "alice", "--fast-clock")
        try:
            place = Place(server, folder, options.seed)
            cases = chosen(place, long=options.long or bool(options.only), only=options.only, shard=options.shard)
            if options.list:
                print("\n".join(case.name for case in cases))
                return []
            return _carry_out(cases)
        finally:
            server.kill()  # calls that hang on purpose would delay an orderly end


def _memory() -> str | None:
    """A folder in memory, if there is one: the embedded Hub syncs every write, and a disk is what that waits for."""
    return next((name for name in ("/dev/shm",) if os.access(name, os.W_OK)), None)


def _carry_out(cases: list) -> list[Result]:
    results, begun, told = [], time.monotonic(), 0.0
    for number, case in enumerate(cases, 1):
        results.append(case.run())
        if results[-1].wrong:
            print(f"WRONG {case.name}: {results[-1].wrong}", file=sys.stderr, flush=True)
        now = time.monotonic() - begun
        if now - told > 30:
            told = now
            wrong = sum(bool(result.wrong) for result in results)
            print(f"{number} of {len(cases)} cases in {now:.0f} s, {wrong} wrong", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
