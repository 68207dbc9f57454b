"""Which cases there are, and which of them are run."""

from __future__ import annotations

import fnmatch
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.chaos import another_name, by_hand, faulty, late, remeasured, still, strangers, tampered
from tests.chaos.kills import Kills, pair, pair_of_commits
from tests.chaos.place import Place
from tests.chaos.table import Result

_KILLS = {False: 4, True: 200}
_PAIRS = {False: 2, True: 20}
_PAIRS_OF_COMMITS = {False: 1, True: 20}


@dataclass(frozen=True)
class Case:
    """A case that waits to be run."""

    name: str
    work: Callable[[], Result]

    def run(self) -> Result:
        """Carries it out; whatever breaks in the harness itself makes it wrong."""
        begun = time.monotonic()
        try:
            result = self.work()
        except Exception as error:
            result = Result(self.name, "the harness itself", f"{type(error).__name__}: {error}"[:500])
        return replace(result, seconds=round(time.monotonic() - begun, 3))


def chosen(place: Place, *, long: bool, only: str | None, shard: str) -> list[Case]:
    """The cases to run, in order."""
    cases = _all(place, long=long, only=only or "*")
    if only:
        return [case for case in cases if case.name == only or fnmatch.fnmatchcase(case.name, only)]
    first, _, count = shard.partition("/")
    return [case for case in cases if _share(case.name, int(count)) == int(first) - 1]


def _share(name: str, count: int) -> int:
    """Which of the shards a case belongs to; by its name, so that slow kinds of cases are spread evenly."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % count


def _all(place: Place, *, long: bool, only: str) -> list[Case]:
    """Every case; those that fork come first, before this process has sent anything through the upload library."""
    kills = Kills(place)
    found = [Case(f"kill/{number}", lambda number=number: kills.carry_out(number)) for number in range(_KILLS[long])]
    for name, work, counts in (("pair", pair, _PAIRS), ("pair-of-commits", pair_of_commits, _PAIRS_OF_COMMITS)):
        found += [
            Case(f"{name}/{number}", lambda number=number, work=work: work(place, number))
            for number in range(counts[long])
        ]
    found += _plain(place, long=long)
    if any(fnmatch.fnmatchcase(case.name, only) or case.name == only for case in found) and only != "*":
        return found  # no need to record the calls of a publish
    return found + _faults(place, long=long)


def _plain(place: Place, *, long: bool) -> list[Case]:
    """The cases without faults."""
    found = [
        Case(f"still/{state}/{upload}", lambda state=state, upload=upload: still.carry_out(place, state, upload))
        for state in still.STATES
        for upload in (faulty.UPLOADS if long else ("lfs",))
    ]
    found += [
        Case(f"still/whole command, {where}", lambda where=where: still.whole_command(place, where))
        for where in (still.MACHINES if long else ())
    ]
    found += [
        Case(f"tamper/{kind}/{mode}", lambda kind=kind, mode=mode: tampered.carry_out(place, kind, mode))
        for number, kind in enumerate(tampered.TAMPERINGS)
        for mode in (faulty.MODES if long else (faulty.MODES[number % 2],))
    ]
    again = remeasured.Remeasured(place)
    found += [
        Case(f"tamper-all/{lie}", lambda lie=lie: again.carry_out(lie))
        for lie in (remeasured.LIES if long else remeasured.SHORT)
    ]
    found += [
        Case(
            f"late/{held}/{mode}/{often}",
            lambda held=held, mode=mode, often=often: late.carry_out(place, held, mode, often),
        )
        for held in late.HELD
        for mode in faulty.MODES
        for often in faulty.OFTEN
        if long or often == "once"
    ]
    for name, work, kinds in (
        ("another-name", another_name.carry_out, faulty.MODES),
        ("by-hand", by_hand.carry_out, by_hand.KINDS),
        ("stranger", strangers.carry_out, strangers.FORGERIES),
        ("stranger-afterwards", strangers.afterwards, strangers.AFTERWARDS),
    ):
        found += [Case(f"{name}/{kind}", lambda kind=kind, work=work: work(place, kind)) for kind in kinds]
    return found


def _faults(place: Place, *, long: bool) -> list[Case]:
    cases = faulty.all_cases(place)
    if not long:
        cases = faulty.short_cases(place, cases)
    return [Case(case.name, lambda case=case: faulty.carry_out(place, case)) for case in cases]
