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
        "source/config.json": b'{"a": 1}',
        "source/modeling.py": b"class Model: ...\n",
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
    models = {PINNED: pinned or files[PINNED], NEW: _model(repo, seed)}
    how = {"frozen": (PINNED,)} if pinned else {"taken_over": (PINNED,)}
    return place.case(repo, seed, models=models, **how)


def _model(repo: str, seed: str) -> bytes:
    return random.Random(f"{repo} {seed}").randbytes(3000)


def _later(place: Place, repo: str, files: dict[str, bytes], on_change: str) -> tuple[Any, str]:
    """A release after a change upstream, its model under the path that the bot chooses for it; and that path."""
    from bot.hub.bundle import ids_of_bytes
    from bot.hub.places import Content
    from bot.hub.places import place as place_of
    from bot.hub.target import read_target

    data = _model(repo, "2")
    identity = _release(place, repo, files, "2").release.short_identity
    path = place_of(read_target(place.hub(), repo), NEW, Content(ids_of_bytes(data)), identity, on_change).file
    models = {PINNED: files[PINNED], path: data}
    return place.case(repo, "2", models=models, taken_over=(PINNED,), on_change=on_change), path


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
    return "", ("\n".join(facts),)


def _changed_upstream(place: Place, name: str, on_change: str) -> tuple[str, tuple[str, ...]]:
    """Taken over and merged; then upstream changes, and a second release is merged."""
    repo, files, _ = _start(place, name)
    first, pins = _merged(place, repo, _release(place, repo, files), 1), []
    pins += [(first.head, PINNED, files[PINNED]), (first.head, NEW, _model(repo, "1"))]
    case, path = _later(place, repo, files, on_change)
    if (path == NEW) != (on_change == "replace"):
        return f"the new bytes go to {path}", ()
    second = _merged(place, repo, case, 2)
    pins += [(second.head, PINNED, files[PINNED]), (second.head, path, _model(repo, "2"))]
    touched = {file for file, ids in first.tree.items() if second.tree.get(file) != ids}
    allowed = {"README.md", "release.json", "release/card.md", "release/files.json", "release/recipe.yaml"}
    allowed |= {NEW} if on_change == "replace" else set()
    if not touched <= allowed:
        return f"the second release changed {sorted(touched - allowed)}", ()
    for revision, file, data in pins:
        if place.oracle.content(repo, revision, file) != data:
            return f"the pin of {file} at {revision[:12]} does not resolve", ()
    if problem := _verified(place, repo):
        return f"bot verify: {problem}", ()
    title = f"Then upstream changed, with on_change: {on_change}; before and after the second release was merged:"
    return "", ("\n".join([title, *_compared(place, repo, first, second)]),)


def _merged(place: Place, repo: str, case: Any, number: int) -> Snapshot:
    """Publishes by pull request, and merges it as another person."""
    ran = place.run(case, "pull-request")
    if ran.error is not None or ran.done.number != number:
        raise RuntimeError(f"release {number}: {ran.error or ran.done}")
    place.server.api("alice").merge_pull_request(repo, number)
    return place.oracle.snapshot(repo)


def _verified(place: Place, repo: str) -> str:
    """What `bot verify` finds wrong; empty if nothing."""
    from bot.errors import VerificationError
    from bot.hub.verify import require, verify

    try:
        require(verify(place.hub(), repo, "main", place.scratch()))
    except VerificationError as error:
        return f"exit code {error.exit_code}: {error}"
    return ""


def _tampered(place: Place, name: str) -> tuple[str, tuple[str, ...]]:
    """A person changes the pinned file after the take-over: who verifies sees it, and the next release stops."""
    repo, files, _ = _start(place, name)
    _merged(place, repo, _release(place, repo, files), 1)
    other = files[PINNED][::-1]
    place.hand_made(repo, {PINNED: other}, "alice")
    before, found = place.oracle.snapshot(repo), _verified(place, repo)
    digests = [hashlib.sha256(data).hexdigest() for data in (files[PINNED], other)]
    if missing := [word for word in ("exit code 8", PINNED, *digests) if word not in found]:
        return f"bot verify does not name {missing}: {found}", ()
    ran = place.run(_release(place, repo, files, "2"), "pull-request")
    text = str(ran.error or "")
    if getattr(ran.error, "exit_code", None) != 6 or any(word not in text for word in (PINNED, *digests)):
        return f"the next release ended in {text or ran.done}", ()
    return ("" if is_untouched(before, place.oracle.snapshot(repo)) else "something was changed"), ()


def _compared(place: Place, repo: str, before: Snapshot, after: Snapshot) -> list[str]:
    """One line per file: what became of it, with its sha256."""
    lines = []
    for path in sorted({*before.tree, *after.tree}):
        old, new = (
            hashlib.sha256(place.oracle.content(repo, at.head, path)).hexdigest()[:12] if path in at.tree else ""
            for at in (before, after)
        )
        word = "added" if not old else "unchanged" if old == new else "changed" if new else "gone"
        lines.append(f"  {word:<9}  {path:<52}  {old or '-':<12}  {new or '-':<12}")
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
        "taken over, then new bytes beside the old": lambda name: _changed_upstream(place, name, "new_name"),
        "taken over, then new bytes in place of the old": lambda name: _changed_upstream(place, name, "replace"),
        "the pinned file is changed by a person": lambda name: _tampered(place, name),
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
    "taken over, then new bytes beside the old",
    "taken over, then new bytes in place of the old",
    "the pinned file is changed by a person",
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
