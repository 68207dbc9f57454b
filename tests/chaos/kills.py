"""Publishing that is killed at random moments, and publishing that happens twice at once.

Each run is a forked process, so that it starts at once and SIGKILL finds it as it would find a command. The process
that forks sends nothing itself: the upload library's threads would not survive the fork.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.faulty import Scene
from tests.chaos.oracle import MANIFEST, Snapshot, is_untouched, what_is_wrong
from tests.chaos.place import Place, use_xet
from tests.chaos.processes import fork, wait
from tests.chaos.table import Result

SETTLES = 5.0
"""Seconds within which the Hub has done what it was asked before a kill."""


def warm() -> None:
    """Imports what a run needs and makes the shared client, so that a child's time is spent on publishing alone."""
    import hf_xet  # noqa: F401
    from huggingface_hub import hf_api, lfs  # noqa: F401

    import bot.hub.download
    import bot.hub.library
    import bot.hub.publish
    import bot.hub.verify

    bot.hub.library.library().utils.get_session()


def publish(place: Place, case: Any, mode: str) -> None:
    """One run that has to succeed."""
    ran = place.run(case, mode)
    if ran.error is not None:
        raise ran.error


def scene_of(number: int) -> Scene:
    """The scenes take turns."""
    mode = ("pull-request", "commit")[number % 2]
    upload = ("lfs", "xet")[number // 2 % 2]
    return Scene(mode, upload, ("fresh", "again")[number // 4 % 2])


def begin(place: Place, scene: Scene) -> tuple[str, Any, Snapshot]:
    """As `faulty.begin`, with the older release published by a child."""
    use_xet(scene.upload == "xet")
    repo = place.fresh()
    if scene.start == "again":
        older = place.case(repo, "0")
        if wait(fork(lambda: publish(place, older, scene.mode))) != 0:
            raise RuntimeError("the older release was not published")
    return repo, place.case(repo, "1"), place.oracle.snapshot(repo)


@dataclass
class Kills:
    """Kills at random moments of a publish; remembers how long a publish takes here and now.

    Attributes:
        place: Where.
        took: Seconds of undisturbed runs, by scene.
    """

    place: Place
    took: dict[Scene, list[float]] = field(default_factory=dict)

    def carry_out(self, number: int) -> Result:
        """One kill, and a run after it."""
        name = f"kill/{number}"
        scene, dice = scene_of(number), self.place.chance(name)
        group = f"SIGKILL at a random moment, then a second run | {scene.mode}"
        # Every third one towards the end, where what was sent is there and not everything is done.
        moment = dice.uniform(0.0 if number % 3 else 0.6, 1.0) * self._usual(scene)
        for _ in range(8):
            repo, case, before = begin(self.place, scene)
            child = self._started(case, scene.mode)
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)
            if wait(child) == -signal.SIGKILL:
                return Result(name, group, *self._judge(scene, repo, case, before))
            moment *= 0.8  # it was done before; this machine is faster now
        return Result(name, group, "the run was always over before the kill", "not killed")

    def _started(self, case: Any, mode: str) -> int:
        """A child that has just begun to publish."""
        read, write = os.pipe()

        def work() -> None:
            os.write(write, b".")
            publish(self.place, case, mode)

        child = fork(work)
        os.close(write)
        os.read(read, 1)
        os.close(read)
        return child

    def _usual(self, scene: Scene) -> float:
        """Seconds that a publish takes."""
        warm()
        if scene not in self.took:
            for _ in range(3):
                _, case, _ = begin(self.place, scene)
                child = self._started(case, scene.mode)
                begun = time.monotonic()
                if wait(child) != 0:
                    raise RuntimeError("a publish without faults failed")
                self.took.setdefault(scene, []).append(time.monotonic() - begun)
        return statistics.median(self.took[scene])

    def _judge(self, scene: Scene, repo: str, case: Any, before: Snapshot) -> tuple[str, str]:
        wanted = self.place.wanted(case, scene.mode)
        oracle = self.place.oracle
        problem, note, end = "", "", time.monotonic() + SETTLES
        while time.monotonic() < end:
            now = oracle.snapshot(repo)
            note = "killed before anything was there" if is_untouched(before, now) else "killed after it was there"
            problem = "" if is_untouched(before, now) else what_is_wrong(oracle, wanted, before, now, tidy=False)
            if not problem:
                break
            time.sleep(0.1)
        if problem:
            return f"after the kill: {problem}", "half"
        if wait(fork(lambda: publish(self.place, case, scene.mode))) != 0:
            return "the run after the kill failed; its error is on standard error", "never done"
        problem = what_is_wrong(oracle, wanted, before, oracle.snapshot(repo), rivals=True)
        return (f"after the second run: {problem}" if problem else ""), note


def pair(place: Place, number: int) -> Result:
    """Two runs of the same release that begin at the same moment, and a third that finds nothing to do."""
    scene = scene_of(2 * number)  # by pull request
    return _pair(place, f"pair/{number}", scene, "two runs at once | pull-request")


def pair_of_commits(place: Place, number: int) -> Result:
    """The same with commits."""
    scene = scene_of(2 * number + 1)
    return _pair(place, f"pair-of-commits/{number}", scene, "two runs at once | commit")


def _pair(place: Place, name: str, scene: Scene, group: str) -> Result:
    repo, case, before = begin(place, scene)
    copies = [case, place.case(repo, "1")]
    read, write = os.pipe()

    def start(mine: Any) -> None:
        os.close(write)
        os.read(read, 1)  # both wake when the pipe is closed
        publish(place, mine, scene.mode)

    children = [fork(lambda mine=mine: start(mine)) for mine in copies]
    os.close(write)
    os.close(read)
    ends = [wait(child) for child in children]
    # Of two folders that are alike, the one whose run had to publish it has the list of files as well.
    whole = next((mine for mine in copies if (mine.folder / MANIFEST).exists()), case)
    wanted, oracle = place.wanted(whole, scene.mode), place.oracle
    now = oracle.snapshot(repo)
    note = "rival closed" if len(now.conversations) - len(before.conversations) > 1 else "one opened"
    if scene.mode == "commit":
        note = "one committed"
    if ends != [0, 0]:
        return Result(name, group, f"the two runs ended with {ends}; the error is on standard error", "failed")
    if problem := what_is_wrong(oracle, wanted, before, now, rivals=True):
        return Result(name, group, problem, note)
    if wait(fork(lambda: publish(place, case, scene.mode))) != 0:
        return Result(name, group, "a third run failed", note)
    after = oracle.snapshot(repo)
    return Result(name, group, "" if after == now else "a third run changed something", note)
