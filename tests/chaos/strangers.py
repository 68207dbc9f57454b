"""What another account may write anywhere, marked as if the bot had written it: it has no effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.chaos.oracle import Snapshot, what_is_wrong
from tests.chaos.place import Place, use_xet
from tests.chaos.table import Result

WHO = "alice"
Forge = Callable[[Place, str, Any], None]


def _trailers(case: Any, *more: str) -> str:
    return "\n".join([f"Release-Id: {case.release.identity}", f"Recipe: {case.release.recipe}", *more])


def _contents(case: Any) -> dict[str, bytes]:
    return {
        path.relative_to(case.folder).as_posix(): path.read_bytes() for path in case.folder.rglob("*") if path.is_file()
    }


def _pull_request(status: str = "", whole: bool = True, older: bool = False) -> Forge:
    """A pull request with the same trailers, and the same files, in its commit and its description."""

    def forge(place: Place, repo: str, case: Any) -> None:
        text = _trailers(case) if not older else f"Release-Id: {'0' * 64}\nRecipe: {case.release.recipe}"
        files = _contents(case) if whole else {"x.txt": b"x"}
        made = place.hand_made(repo, files, WHO, commit_description=f"Mine.\n\n{text}", create_pr=True)
        number = int(made.pr_num)
        if status == "closed":
            place.server.api(WHO).change_discussion_status(repo, number, "closed", comment=text)
        if status == "closed as the bot would":
            mark = _trailers(case, "Closed-By-Bot: superseded")
            place.server.api(WHO).change_discussion_status(repo, number, "closed", comment=mark)
        if status == "merged":
            place.server.api(WHO).merge_pull_request(repo, number)

    return forge


def _discussion(place: Place, repo: str, case: Any) -> None:
    """A discussion that looks like the one about a withheld release."""
    place.server.api(WHO).create_discussion(repo, "Withheld", description=f"No.\n\n{_trailers(case)}")


def _commit(place: Place, repo: str, case: Any) -> None:
    """A commit on the main branch with the same trailers, of something else."""
    place.hand_made(repo, {"x.txt": b"x"}, WHO, commit_description=f"Mine.\n\n{_trailers(case)}")


FORGERIES: dict[str, tuple[str, Forge]] = {
    "pull request": ("pull-request", _pull_request()),
    "pull request with the trailers alone": ("pull-request", _pull_request(whole=False)),
    "pull request of an older release": ("pull-request", _pull_request(older=True, whole=False)),
    "closed pull request": ("pull-request", _pull_request("closed")),
    "pull request closed with the bot's mark": ("pull-request", _pull_request("closed as the bot would")),
    "merged pull request of something else": ("pull-request", _pull_request("merged", whole=False)),
    "discussion": ("pull-request", _discussion),
    "commit": ("pull-request", _commit),
    "pull request, open: commit": ("commit", _pull_request()),
    "closed pull request, open: commit": ("commit", _pull_request("closed")),
    "merged pull request of something else, open: commit": ("commit", _pull_request("merged", whole=False)),
    "discussion, open: commit": ("commit", _discussion),
    "commit, open: commit": ("commit", _commit),
}


def carry_out(place: Place, kind: str) -> Result:
    """A forgery, and a publish that has to be as if it were not there."""
    name, group = f"stranger/{kind}", "forged by another account | before a publish"
    use_xet(on=False)
    repo = place.fresh()
    place.hand_made(repo, {"note.txt": b"mine"}, WHO)
    mode, forge = FORGERIES[kind]
    case = place.case(repo, "1")
    forge(place, repo, case)
    before = place.oracle.snapshot(repo)
    ran = place.run(case, mode)
    if ran.error is not None:
        return Result(name, group, f"it failed: {ran.error}")
    after = place.oracle.snapshot(repo)
    problem = what_is_wrong(place.oracle, place.wanted(case, mode), _others(before), _others(after))
    problem = problem or _disturbed(before, after)
    return Result(name, group, problem, "" if problem else "no effect")


def _others(snapshot: Snapshot) -> Snapshot:
    """Without what the stranger opened."""
    mine = {number: item for number, item in snapshot.conversations.items() if item.author != WHO}
    return replace(snapshot, conversations=mine, pulls={n: each for n, each in snapshot.pulls.items() if n in mine})


def _disturbed(before: Snapshot, after: Snapshot) -> str:
    """Why what the stranger opened is not as it was; empty if it is."""
    changed = [
        number
        for number, item in before.conversations.items()
        if item.author == WHO and after.conversations.get(number) != item
    ]
    return f"#{changed[0]} of the stranger was changed" if changed else ""


def _comment(text: str) -> Forge:
    def forge(place: Place, repo: str, case: Any) -> None:
        place.server.api(WHO).comment_discussion(repo, 1, comment=_trailers(case, text))

    return forge


def _push(place: Place, repo: str, case: Any) -> None:
    """A commit to the bot's own pull request that calls itself the release, and changes the model."""
    place.hand_made(
        repo, {"model.onnx": b"theirs"}, WHO, commit_description=f"x\n\n{_trailers(case)}", revision="refs/pr/1"
    )


def _close_with(text: str) -> Forge:
    def forge(place: Place, repo: str, case: Any) -> None:
        place.server.api(WHO).change_discussion_status(repo, 1, "closed", comment=_trailers(case, text))

    return forge


AFTERWARDS: dict[str, tuple[str, Forge]] = {
    "comment that says closed as superseded": ("open", _comment("Closed-By-Bot: superseded")),
    "comment that says closed as a rival": ("open", _comment("Closed-By-Bot: rival")),
    "closed with the bot's mark, superseded": ("closed", _close_with("Closed-By-Bot: superseded")),
    "closed with the bot's mark, rival": ("closed", _close_with("Closed-By-Bot: rival")),
    "pushed to the bot's pull request": ("open", _push),
    "pull request beside the bot's": ("open", _pull_request()),
    "discussion beside the bot's pull request": ("open", _discussion),
}


def afterwards(place: Place, kind: str) -> Result:
    """A forgery after a publish: the next run leaves everything as it is, and respects what a person closed."""
    name, group = f"stranger-afterwards/{kind}", "forged by another account | after a publish"
    use_xet(on=False)
    repo = place.fresh()
    place.hand_made(repo, {"note.txt": b"mine"}, WHO)
    case = place.case(repo, "1")
    if (ran := place.run(case, "pull-request")).error is not None:
        return Result(name, group, f"the first run failed: {ran.error}")
    status, forge = AFTERWARDS[kind]
    forge(place, repo, case)
    before = place.oracle.snapshot(repo)
    ran = place.run(case, "pull-request")
    problem = ""
    if ran.error is not None:
        problem = f"it failed: {ran.error}"
    elif place.oracle.snapshot(repo) != before:
        problem = "the next run changed something"
    elif before.conversations[1].status != status or (ran.done.kind == "nothing") != (status == "closed"):
        problem = f"the next run says {ran.done.kind}: {ran.done.reason}"
    elif kind.startswith("pushed") and ran.done.edited != ("model.onnx",):
        problem = f"the next run takes the stranger's commit for its own: {ran.done.edited}"
    return Result(name, group, problem, "" if problem else "no effect")
