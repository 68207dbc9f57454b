"""Every call of a publish, and every fault that may strike it."""

from __future__ import annotations

import fnmatch
import os
import pickle
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.chaos.oracle import Snapshot, is_untouched, what_is_wrong
from tests.chaos.place import WAITS, Place, Ran, unclear, use_xet
from tests.chaos.processes import fork, wait
from tests.chaos.table import Result

MODES = ("pull-request", "commit")
UPLOADS = ("lfs", "xet")
OFTEN = ("once", "persistent")
HUNG = 600.0
"""Seconds that a call hangs: longer than any case."""

LONGEST_WAIT = 1000.0
"""Seconds. Whatever a Hub asks for, nobody may wait longer in one piece."""


@dataclass(frozen=True)
class Strike:
    """One kind of fault: what the embedded Hub has to be told, and how patient the bot is meanwhile."""

    name: str
    family: str
    kind: str = "status"
    more: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)


def _status(status: int, family: str, name: str = "", **more: Any) -> Strike:
    return Strike(name or str(status), family, more={"status": status, **more})


def strikes() -> list[Strike]:
    """All kinds of faults."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    page = "<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
    html = {"Content-Type": "text/html"}
    limit = {"RateLimit": '"api";r=0;t=30', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
    short = {"answer": 0.7, "commit_answer": 0.7, "attempts": 3}
    return [
        *(_status(status, "refused") for status in (401, 403, 404, 409, 412, 413)),
        *(_status(status, "try later") for status in (408, 429)),
        _status(429, "try later", "429 RateLimit", headers=limit),
        _status(429, "try later", "429 Retry-After seconds", headers={"Retry-After": "20"}),
        _status(429, "try later", "429 Retry-After date", headers={"Retry-After": soon}),
        _status(429, "try later", "429 Retry-After two hours", headers={"Retry-After": "7200"}),
        *(_status(status, "server error") for status in (500, 503, 504)),
        _status(502, "server error", "502 HTML", body=page, headers=html),
        Strike("reset", "connection", "reset"),
        Strike("close", "connection", "close"),
        Strike("time-out", "connection", "delay", {"seconds": HUNG}, short),
        Strike("lost answer", "connection", "lost"),
        Strike("truncated", "damaged", "truncate"),
        Strike("corrupted", "damaged", "corrupt"),
        Strike("corrupted elsewhere", "damaged", "corrupt", {"bytes": 0}),
    ]


@dataclass(frozen=True)
class Call:
    """One call of a publish: the method, a pattern that fits its path, and how many that fit it come before."""

    method: str
    pattern: str
    before: int

    def __str__(self) -> str:
        shown = self.pattern.replace("/api/models/{repo}", "api").replace("{repo}", "").strip("/") or "/"
        return f"{self.method} {shown}"


@dataclass(frozen=True)
class Scene:
    """How a publish is done: by which mode, through which upload, and onto what.

    Attributes:
        mode: `pull-request` or `commit`.
        upload: `lfs` or `xet`.
        start: `fresh`, where there is no repository yet; `again`, where an older release is there; `withheld`, where
            a discussion says that an older release was withheld.
    """

    mode: str
    upload: str
    start: str

    def __str__(self) -> str:
        return f"{self.mode}/{self.upload}/{self.start}"


@dataclass(frozen=True)
class FaultCase:
    """One fault at one call."""

    scene: Scene
    call: Call
    strike: Strike
    often: str

    @property
    def name(self) -> str:
        """For `--only`."""
        return f"fault/{self.scene}/{self.call}#{self.call.before}/{self.strike.name}/{self.often}"


def scenes() -> list[Scene]:
    """All of them; what is there before changes nothing about the upload, so it is tried with one."""
    first = [Scene(mode, upload, "fresh") for mode in MODES for upload in UPLOADS]
    return first + [Scene(mode, "lfs", start) for start in ("again", "withheld") for mode in MODES]


def begin(place: Place, scene: Scene) -> tuple[str, Any, Snapshot]:
    """A repository as the scene wants it, the release to publish, and what is there before."""
    use_xet(scene.upload == "xet")
    repo = place.fresh()
    if scene.start == "again":
        ran = place.run(place.case(repo, "0"), scene.mode)
        if ran.error is not None:
            raise RuntimeError(f"the older release was not published: {ran.error!r}")
    if scene.start == "withheld":
        from bot.hub.withheld import report_withheld

        place.hand_made(repo, {"note.txt": b"mine"})
        report_withheld(place.hub(), place.case(repo, "0").release, title="Withheld", text="It failed a gate.")
    return repo, place.case(repo, "1"), place.oracle.snapshot(repo)


def record(place: Place, scene: Scene) -> list[Call]:
    """The calls of a publish without faults, in order."""
    from tests.hub.hub_cases import watched

    repo, case, before = begin(place, scene)
    with watched(place.server.endpoint) as proxy:
        ran = place.run(case, scene.mode, endpoint=proxy.endpoint)
        seen = [(method, unquote(urlsplit(path).path)) for method, path, _ in proxy.seen]
    problem = unclear(ran.error) or what_is_wrong(
        place.oracle, place.wanted(case, scene.mode), before, place.oracle.snapshot(repo)
    )
    if ran.error is not None or problem:
        raise RuntimeError(f"a publish without faults is not right ({scene}): {problem or ran.error!r}")
    calls = []
    for index, (method, path) in enumerate(seen):
        pattern = _pattern(path, repo)
        earlier = sum(fits(pattern, repo, method, *other) for other in seen[:index])
        calls.append(Call(method, pattern, earlier))
    return calls


def _pattern(path: str, repo: str) -> str:
    path = path.replace(repo, "{repo}", 1)
    path = re.sub(r"^/cas/[^/]+/", "/cas/*/", path)
    return re.sub(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b", "*", path)


def fits(pattern: str, repo: str, method: str, other: str, path: str) -> bool:
    """Whether the embedded Hub would say that a request fits a call's pattern."""
    return method == other and fnmatch.fnmatchcase(path, pattern.replace("{repo}", repo))


def all_cases(place: Place) -> list[FaultCase]:
    """Every call of every scene, every fault, once and persistent."""
    found, known = [], set()
    for scene, calls in _recorded_elsewhere(place).items():
        for call in calls:
            notice = scene.start == "withheld" and "/discussions/1" in call.pattern  # elsewhere it is another's number
            if scene.start != "fresh" and (scene.mode, call) in known and not notice:
                continue
            known.add((scene.mode, call))
            found += [FaultCase(scene, call, strike, often) for strike in strikes() for often in OFTEN]
    return found


def _recorded_elsewhere(place: Place) -> dict[Scene, list[Call]]:
    """Records in a child: this process will fork, and must not have used the upload library before."""
    read, write = os.pipe()

    def work() -> None:
        os.write(write, pickle.dumps({scene: record(place, scene) for scene in scenes()}))

    child = fork(work)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    if wait(child) != 0:
        raise RuntimeError("the calls of a publish could not be recorded")
    return dict(pickle.loads(data))  # noqa: S301 -- from our own child


def short_cases(place: Place, cases: list[FaultCase]) -> list[FaultCase]:
    """A few: every fault at the commit, and one fault, drawn, at every other call."""
    chosen: list[FaultCase] = []
    ordinary = [case for case in cases if case.scene.upload == "lfs" and case.scene.start == "fresh"]
    commits = [case for case in ordinary if "/commit/" in case.call.pattern]
    for number, strike in enumerate(strikes()):
        for often in OFTEN:
            fitting = [case for case in commits if case.strike.name == strike.name and case.often == often]
            chosen.append(fitting[number % len(fitting)])
    groups: dict[tuple[str, str], list[FaultCase]] = {}
    for case in cases:
        quick = case.strike.name != "time-out" or case.often == "once"
        if "/commit/" not in case.call.pattern and quick:
            groups.setdefault((case.call.method, case.call.pattern), []).append(case)
    return chosen + [place.chance(str(name)).choice(members) for name, members in groups.items()]


def carry_out(place: Place, case: FaultCase) -> Result:
    """One case: a run that the fault strikes, the fault lifted, and another run if the first one failed."""
    begun = time.monotonic()
    repo, release, before = begin(place, case.scene)
    strike = case.strike
    if strike.name == "corrupted elsewhere":
        strike = replace(strike, more={"bytes": place.chance(case.name).randrange(2, 60)})
    WAITS.of_policy.clear()
    WAITS.of_library.clear()
    place.server.fault(
        strike.kind,
        case.call.pattern.replace("{repo}", repo),
        case.call.method,
        skip=case.call.before,
        times=1 if case.often == "once" else 0,
        **strike.more,
    )
    try:
        first = place.run(release, case.scene.mode, **strike.limits)
        struck = sum(fault["struck"] for fault in place.server.faults())
    finally:
        place.server.clear_faults()
    wrong, note = _judge(place, case, release, before, first, struck)
    group = f"{case.call} | {strike.family}"
    text = str(first.error) if first.error else ""
    return Result(case.name, group, wrong, note, text, round(time.monotonic() - begun, 3))


def _judge(place: Place, case: FaultCase, release: Any, before: Snapshot, first: Ran, struck: int) -> tuple[str, str]:
    """What is wrong, and how it went."""
    wanted = place.wanted(release, case.scene.mode)
    now = place.oracle.snapshot(wanted.repo)
    if struck == 0:
        return "the fault never struck", "not struck"
    longest = max([*WAITS.of_policy, *WAITS.of_library], default=0.0)
    if longest > LONGEST_WAIT:
        who = "the client library" if longest in WAITS.of_library else "the bot"
        return f"{who} waited {longest:.0f} s in one piece", "waited too long"
    if first.error is None:
        problem = what_is_wrong(place.oracle, wanted, before, now) or claims(first.done, wanted, now)
        return (f"the first run said that it succeeded: {problem}" if problem else ""), "got through"
    if problem := unclear(first.error):
        return f"the first run {problem}", "unclear error"
    if not is_untouched(before, now) and (problem := what_is_wrong(place.oracle, wanted, before, now, tidy=False)):
        return f"after the first run, which failed: {problem}", "half"
    second = place.run(release, case.scene.mode)
    if second.error is not None:
        return f"the second run, without a fault, ended in {second.error!r}", "never done"
    now = place.oracle.snapshot(wanted.repo)
    problem = what_is_wrong(place.oracle, wanted, before, now) or claims(second.done, wanted, now)
    return (f"after the second run: {problem}" if problem else ""), "second run"


def claims(done: Any, wanted: Any, now: Snapshot) -> str:
    """Why what a run said of its work is not so; empty if it is."""
    if wanted.mode == "pull-request":
        numbers = list(now.pulls)
        if done.kind != "pull-request" or done.number not in numbers:
            return f"it says {done.kind} #{done.number}, and open are {numbers}"
        head = now.pulls[done.number][0][0][0]
        return "" if done.commit == head else f"it says {done.commit[:12]}, and #{done.number} is at {head[:12]}"
    if done.kind not in ("commit", "nothing") or done.commit != now.head:
        return f"it says {done.kind} {done.commit[:12]}, and the main branch is at {now.head[:12]}"
    return ""


def results(place: Place, cases: list[FaultCase]) -> Iterator[Result]:
    """Carries the cases out."""
    for case in cases:
        yield carry_out(place, case)
