"""A repository that was made by hand, with a pinned file, is taken over: what changes, and what does not."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from tests.chaos.oracle import Snapshot, is_untouched
from tests.chaos.place import Place, use_xet
from tests.chaos.table import Result

PINNED = "faceage-dino-fp16.onnx"
NEW = "faceage-dino-vitl16-fused-fp16.onnx"
LICENSE = b"License text\n"


def _files(seed: str) -> dict[str, bytes]:
    """What a person put there: like the repository that consumers pin to, only smaller."""
    return {
        PINNED: random.Random(seed).randbytes(20_000),
        "README.md": b"---\nlicense: apache-2.0\n---\n# Face age\n\nConverted by hand.\n",
        "LICENSE": LICENSE,
        "DINOv3_LICENSE.md": b"DINOv3 License\n\nWords.\n",
        "scripts/convert.py": b"print('convert')\n",
        "scripts/compare.py": b"print('compare')\n",
        "config.json": b'{"by": "hand"}\n',
    }


def _start(place: Place, name: str, **changes: bytes | None) -> tuple[str, dict[str, bytes], Snapshot]:
    use_xet(on=False)
    repo = place.fresh()
    there = _files(f"{place.seed} {repo}") | {path.replace("__", "."): data for path, data in changes.items()}
    files = {path: data for path, data in there.items() if data is not None}
    place.hand_made(repo, files, "alice", commit_message=name)
    return repo, files, place.oracle.snapshot(repo)


def _release(place: Place, repo: str, files: dict[str, bytes], seed: str = "1", pinned: bytes | None = None) -> Any:
    """A release that describes the pinned file, leaves it where it is, and brings another model."""
    models = {PINNED: pinned or files[PINNED], NEW: random.Random(f"{repo} {seed}").randbytes(3000)}
    return place.case(repo, seed, models=models, frozen=(PINNED,), absent=() if pinned else (PINNED,))


def _taken_over(place: Place, name: str) -> tuple[str, tuple[str, ...]]:
    """By pull request, merged, and followed by another release."""
    repo, files, before = _start(place, name)
    facts = ["A repository made by hand, before and after the pull request was merged:"]
    pin = before.head
    for seed, number in (("1", 1), ("2", 2)):
        ran = place.run(_release(place, repo, files, seed), "pull-request")
        if ran.error is not None:
            return f"release {seed} failed: {ran.error}", ()
        if ran.done.number != number or place.oracle.snapshot(repo).history[-len(before.history) :] != before.history:
            return f"release {seed} is #{ran.done.number}, or history was rewritten", ()
        main = place.oracle.snapshot(repo)
        if number == 1 and (main.history, main.tree) != (before.history, before.tree):
            return "the main branch was changed before the merge", ()
        place.server.api("alice").merge_pull_request(repo, number)
        after = place.oracle.snapshot(repo)
        changed = sorted(path for path, ids in before.tree.items() if after.tree.get(path) != ids)
        if changed != ["README.md"]:
            return f"release {seed} changed {changed}", ()
        if number == 1:
            facts += _compared(place, repo, before, after)
    if place.oracle.content(repo, pin, PINNED) != files[PINNED]:
        return "the old pin does not resolve any more", ()
    return "", tuple(facts)


def _compared(place: Place, repo: str, before: Snapshot, after: Snapshot) -> list[str]:
    """One line per file: what became of it, with its sha256."""
    lines = []
    for path in sorted({*before.tree, *after.tree}):
        old, new = (
            hashlib.sha256(place.oracle.content(repo, at.head, path)).hexdigest()[:12] if path in at.tree else ""
            for at in (before, after)
        )
        word = "added" if not old else "unchanged" if old == new else "changed" if new else "gone"
        lines.append(f"  {word:<9}  {path:<40}  {old or '-':<12}  {new or '-':<12}")
    return lines


def _refused(
    place: Place, name: str, mode: str, words: tuple[str, ...], make: Callable[..., Any], **changes: bytes | None
) -> tuple[str, tuple[str, ...]]:
    """What would overwrite something is refused with exit code 6, and nothing changes."""
    repo, files, before = _start(place, name, **changes)
    ran = place.run(make(repo, files), mode)
    code, text = getattr(ran.error, "exit_code", None), str(ran.error or "")
    if code != 6:
        return f"it ended with exit code {code}: {text}", ()
    missing = [word for word in words if word not in text]
    if missing:
        return f"the error does not name {missing}: {text}", ()
    return ("" if is_untouched(before, place.oracle.snapshot(repo)) else "something was changed"), ()


def _cases(place: Place) -> dict[str, Callable[[str], tuple[str, tuple[str, ...]]]]:
    def usual(repo: str, files: dict[str, bytes]) -> Any:
        return _release(place, repo, files)

    def rebuilt(repo: str, files: dict[str, bytes]) -> Any:
        return _release(place, repo, files, pinned=b"built again, otherwise")

    def misdescribed(repo: str, files: dict[str, bytes]) -> Any:
        return _release(place, repo, files | {PINNED: b"what the recipe says"})

    def ids(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    other = b"Another licence\n"
    return {
        "taken over": lambda name: _taken_over(place, name),
        "a commit would replace the card": lambda name: _refused(place, name, "commit", ("README.md",), usual),
        "the licence there is another": lambda name: _refused(
            place, name, "pull-request", ("LICENSE", ids(other), ids(LICENSE)), usual, LICENSE=other
        ),
        "the pinned file was built again": lambda name: _refused(
            place, name, "pull-request", (PINNED, "frozen", ids(b"built again, otherwise")), rebuilt
        ),
        "the pinned file was built again, by commit": lambda name: _refused(
            place, name, "commit", (PINNED, "frozen", ids(b"built again, otherwise")), rebuilt, README__md=None
        ),
        "the pinned file is not as described": lambda name: _refused(
            place, name, "pull-request", (PINNED, ids(b"what the recipe says")), misdescribed
        ),
        "a record of somebody else is there": lambda name: _refused(
            place, name, "pull-request", ("release.json",), usual, release__json=b'{"theirs": 1}'
        ),
    }


KINDS = (
    "taken over",
    "a commit would replace the card",
    "the licence there is another",
    "the pinned file was built again",
    "the pinned file was built again, by commit",
    "the pinned file is not as described",
    "a record of somebody else is there",
)


def carry_out(place: Place, kind: str) -> Result:
    """One repository made by hand, and one recipe that comes to it."""
    name = f"by-hand/{kind}"
    problem, facts = _cases(place)[kind](name)
    return Result(name, f"made by hand | {kind}", problem, "right" if not problem else "", facts=facts)
