"""Discussions and pull requests: records under ``hub/discussions``, written in one step with their references.

A pull request is a record and the reference ``refs/pr/N``. Neither is ever seen without the other.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from typing import Any

from pygit2 import Commit

from bot.localhub import durable
from bot.localhub.clock import iso
from bot.localhub.errors import HubError, bad_request
from bot.localhub.repository import MAIN, Person, Repository

Record = dict[str, Any]
PAGE_SIZE = 50
OPEN = ("open", "draft")


def numbers(repository: Repository) -> list[int]:
    """Return the numbers of all discussions, ascending."""
    folder = repository.folder / "hub" / "discussions"
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())


def load(repository: Repository, number: int) -> Record:
    """Return the record of a discussion.

    Raises:
        HubError: 404 if there is none.
    """
    record = durable.read_json(repository.folder / "hub" / "discussions" / f"{number}.json")
    if record is None:
        raise HubError(404, f"Discussion {number} not found in {repository.repo_id}")
    found: Record = record
    return found


def listing(repository: Repository, kind: str = "all", status: str = "all", author: str = "") -> list[Record]:
    """Return the records that match, newest first.

    Args:
        repository: Where to look.
        kind: ``pull_request``, ``discussion`` or ``all``.
        status: ``open`` (drafts included), ``closed`` (merged ones included) or ``all``.
        author: User name, or empty for all.
    """
    found = []
    for number in reversed(numbers(repository)):
        record = load(repository, number)
        fits_kind = kind == "all" or record["isPullRequest"] == (kind == "pull_request")
        fits_status = status == "all" or (record["status"] in OPEN) == (status == "open")
        if fits_kind and fits_status and author in ("", record["author"]):
            found.append(record)
    return found


# ------------------------------------------------------------------------------------------------------ writing


def _file(record: Record) -> str:
    return f"discussions/{record['num']}.json"


def _event(kind: str, author: Person, when: datetime, data: Record) -> Record:
    return {
        "id": secrets.token_hex(12),
        "type": kind,
        "author": {"name": author.name},
        "createdAt": iso(when),
        "data": data,
    }


def _comment_event(text: str, author: Person, when: datetime) -> Record:
    latest = {"raw": text, "updatedAt": iso(when)}
    return _event("comment", author, when, {"edited": False, "hidden": False, "latest": latest, "numEdits": 0})


def _commit_event(repository: Repository, oid: str, author: Person, when: datetime) -> Record:
    subject = repository.commit(oid).message.partition("\n")[0]
    return _event("commit", author, when, {"subject": subject, "oid": oid})


def pull_request_reference(number: int) -> str:
    """Return the reference of a pull request."""
    return f"refs/pr/{number}"


def create(
    repository: Repository,
    title: str,
    description: str,
    author: Person,
    when: datetime,
    *,
    base: str = MAIN,
    head: str | None = None,
    draft: bool = False,
) -> Record:
    """Open a discussion, or a pull request with its reference, in one step.

    Args:
        repository: Where.
        title: Its title.
        description: Its first comment; may be empty.
        author: Who opens it.
        when: Its date.
        base: The branch that a pull request is for.
        head: The commit of a pull request; None for a discussion.
        draft: Whether the pull request starts as a draft.
    """
    with repository.writing():
        number = max(numbers(repository), default=0) + 1
        record: Record = {
            "num": number,
            "title": _title(title),
            "status": "draft" if draft else "open",
            "author": author.name,
            "createdAt": iso(when),
            "isPullRequest": head is not None,
            "base": base if head is not None else None,
            "mergeCommitId": None,
            "events": [_comment_event(description, author, when)] if description else [],
        }
        refs: dict[str, str | None] = {}
        if head is not None:
            refs[pull_request_reference(number)] = head
            if head != repository.reference(base):
                record["events"].append(_commit_event(repository, head, author, when))
        repository.transact(refs, {_file(record): record})
    return record


def _title(title: object) -> str:
    if not isinstance(title, str) or not 1 <= len(title.strip()) <= 500:
        raise bad_request("A discussion needs a title of at most 500 characters")
    return title.strip()


def add_commit(repository: Repository, reference: str, oid: str, author: Person, when: datetime) -> None:
    """Move a branch, or a pull request with its record, to a new commit. Inside ``writing``.

    Raises:
        HubError: 400 for a pull request that is merged or closed.
    """
    match = re.fullmatch(r"refs/pr/([0-9]+)", reference)
    if not match:
        repository.transact({reference: oid})
        return
    record = load(repository, int(match[1]))
    if record["status"] not in OPEN:
        raise bad_request(f"Pull request {record['num']} is {record['status']}")
    record["events"].append(_commit_event(repository, oid, author, when))
    repository.transact({reference: oid}, {_file(record): record})


def add_comment(repository: Repository, number: int, text: object, author: Person, when: datetime) -> Record:
    """Add a comment and return its event."""
    if not isinstance(text, str) or not text.strip() or len(text) > 65536:
        raise bad_request("A comment has between 1 and 65536 characters")
    with repository.writing():
        record = load(repository, number)
        event = _comment_event(text, author, when)
        record["events"].append(event)
        repository.transact({}, {_file(record): record})
    return event


def edit_comment(
    repository: Repository, number: int, identity: str, text: object, author: Person, when: datetime
) -> Record:
    """Change the text of a comment and return its event; what it said before stays in its history.

    Raises:
        HubError: 403 for another author than the comment's, 404 if there is no such comment.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > 65536:
        raise bad_request("A comment has between 1 and 65536 characters")
    with repository.writing():
        record = load(repository, number)
        event = _comment(record, identity)
        if event["author"]["name"] != author.name:
            raise HubError(403, f"The comment is by {event['author']['name']}, who alone may edit it")
        data = event["data"]
        data["history"] = [*data.get("history", []), data["latest"]]
        data |= {"edited": True, "latest": {"raw": text, "updatedAt": iso(when)}, "numEdits": len(data["history"])}
        repository.transact({}, {_file(record): record})
    return event


def hide_comment(repository: Repository, number: int, identity: str, author: Person) -> Record:
    """Take a comment out of sight for good, its history with it, and return its event.

    Raises:
        HubError: 404 if there is no such comment.
    """
    with repository.writing():
        record = load(repository, number)
        event = _comment(record, identity)
        latest = {"raw": "This comment has been hidden", "updatedAt": event["data"]["latest"]["updatedAt"]}
        event["data"] |= {"hidden": True, "hiddenBy": author.name, "latest": latest, "history": []}
        repository.transact({}, {_file(record): record})
    return event


def _comment(record: Record, identity: str) -> Record:
    for event in record["events"]:
        if event["type"] == "comment" and event["id"] == identity and not event["data"]["hidden"]:
            found: Record = event
            return found
    raise HubError(404, f"Discussion {record['num']} has no comment {identity}")


def set_title(repository: Repository, number: int, title: object, author: Person, when: datetime) -> Record:
    """Change the title and return the event."""
    with repository.writing():
        record = load(repository, number)
        event = _event("title-change", author, when, {"from": record["title"], "to": _title(title)})
        record["title"] = event["data"]["to"]
        record["events"].append(event)
        repository.transact({}, {_file(record): record})
    return event


def set_status(
    repository: Repository, number: int, status: object, author: Person, when: datetime, comment: object = None
) -> Record:
    """Open or close and return the event; a comment is added before it.

    Raises:
        HubError: 400 if the pull request is merged, or the status is neither ``open`` nor ``closed``.
    """
    if status not in ("open", "closed"):
        raise bad_request(f"A discussion is opened or closed, not {status!r}")
    with repository.writing():
        record = load(repository, number)
        if record["status"] == "merged":
            raise bad_request(f"Pull request {number} is merged")
        if isinstance(comment, str) and comment.strip():
            record["events"].append(_comment_event(comment, author, when))
        event = _event("status-change", author, when, {"status": status})
        record["status"] = status
        record["events"].append(event)
        repository.transact({}, {_file(record): record})
    return event


# ------------------------------------------------------------------------------------------------------ merging


def conflicts(repository: Repository, record: Record) -> list[str]:
    """Return the paths on which an open pull request and its base contradict each other."""
    if record["status"] not in OPEN:
        return []
    merged = _merged_index(repository, record)
    if merged is None or merged.conflicts is None:
        return []
    return sorted({side.path for conflict in merged.conflicts for side in conflict if side is not None})


def _merged_index(repository: Repository, record: Record) -> Any:
    """Return the index of base and pull request merged, or None if they have no history in common."""
    base, head = _ends(repository, record)
    ancestor = repository.merge_base(base, head)
    if ancestor is None:
        return None
    trees = [repository.commit(sha).tree for sha in (ancestor, base, head)]
    return repository.git.merge_trees(*trees)


def _ends(repository: Repository, record: Record) -> tuple[str, str]:
    base = repository.reference(record["base"])
    head = repository.reference(pull_request_reference(record["num"]))
    if base is None or head is None:
        raise HubError(409, f"The branch of pull request {record['num']} is gone")
    return base, head


def new_commits(repository: Repository, record: Record) -> list[Commit]:
    """Return the commits that a pull request adds to its base, newest first."""
    base, head = _ends(repository, record)
    walker = repository.git.walk(head)
    walker.hide(base)
    return list(walker)


def merge(repository: Repository, number: int, author: Person, when: datetime, comment: object = None) -> str:
    """Merge a pull request as one commit on its base, as the Hub does, and return that commit.

    Raises:
        HubError: 400 unless it is an open pull request, 409 on conflicts.
    """
    with repository.writing():
        record = load(repository, number)
        if not record["isPullRequest"] or record["status"] != "open":
            what = f"a pull request that is {record['status']}" if record["isPullRequest"] else "a discussion"
            raise bad_request(f"Discussion {number} is {what} and cannot be merged")
        contradictions = conflicts(repository, record)
        merged = _merged_index(repository, record)
        if contradictions or merged is None:
            raise HubError(409, f"The pull request has conflicts: {', '.join(contradictions) or 'no common history'}")
        tree = str(merged.write_tree(repository.git))
        base, head = _ends(repository, record)
        message = _merge_message(repository, record, author)
        oid = repository.write_commit(tree, [base], message, author, when)
        if isinstance(comment, str) and comment.strip():
            record["events"].append(_comment_event(comment, author, when))
        record.update(status="merged", mergeCommitId=oid, mergedBase=base, mergedHead=head)
        record["events"].append(_event("status-change", author, when, {"status": "merged"}))
        repository.transact({record["base"]: oid}, {_file(record): record})
    return oid


def _merge_message(repository: Repository, record: Record, author: Person) -> str:
    """Title and number, then a line per commit with its id, then those who wrote them."""
    commits = list(reversed(new_commits(repository, record)))
    lines = [f"- {commit.message.partition(chr(10))[0]} ({commit.id})" for commit in commits]
    others = dict.fromkeys(f"{c.author.name} <{c.author.email}>" for c in commits if c.author.name != author.name)
    paragraphs = [f"{record['title']} (#{record['num']})", "\n".join(lines)]
    paragraphs.append("\n".join(f"Co-authored-by: {other}" for other in others))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


# ------------------------------------------------------------------------------------------------------ differences


def compared_commits(repository: Repository, record: Record) -> tuple[str, str]:
    """Return the two commits between which a pull request makes its difference."""
    if record["status"] == "merged":
        base, head = record["mergedBase"], record["mergedHead"]
    else:
        base, head = _ends(repository, record)
    return repository.merge_base(base, head) or base, head


def patch(repository: Repository, old: str, new: str, limit: int = 1_000_000) -> str:
    """Return the difference between two commits as a unified diff, cut off after ``limit`` characters."""
    difference = repository.git.diff(repository.commit(old).tree, repository.commit(new).tree)
    text: str = difference.patch or ""
    return text if len(text) <= limit else text[:limit] + "\n[cut off]\n"
