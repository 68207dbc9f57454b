"""Which cases there are, and which of them are run."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.chaos import faulty
from tests.chaos.place import Place
from tests.chaos.table import Result


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
    first, _, step = shard.partition("/")
    return cases[int(first) - 1 :: int(step)]


def _all(place: Place, *, long: bool, only: str) -> list[Case]:
    return _faults(place, long=long)


def _faults(place: Place, *, long: bool) -> list[Case]:
    cases = faulty.all_cases(place)
    if not long:
        cases = faulty.short_cases(place, cases)
    return [Case(case.name, lambda case=case: faulty.carry_out(place, case)) for case in cases]
