"""The Hub's API about discussions and pull requests."""

from __future__ import annotations

import html
from typing import Any

from starlette.responses import Response

from bot.localhub import discussions
from bot.localhub.discussions import Record
from bot.localhub.errors import HubError, bad_request
from bot.localhub.names import repo_type
from bot.localhub.repository import MAIN, Repository
from bot.localhub.store import User
from bot.localhub.web import Call, json_answer
from bot.localhub.webhooks import content_event, discussion_event


def _summary(repository: Repository, record: Record) -> dict[str, Any]:
    return {
        "num": record["num"],
        "title": record["title"],
        "status": record["status"],
        "author": {"name": record["author"], "type": "user"},
        "createdAt": record["createdAt"],
        "isPullRequest": record["isPullRequest"],
        "pinned": False,
        "numComments": sum(event["type"] == "comment" for event in record["events"]),
        "repo": {"name": repository.repo_id, "type": repo_type(repository.kind)},
    }


def _event(event: Record) -> Record:
    """Return an event as the API shows it: a comment also comes as HTML, which is only escaped text here."""
    if event["type"] != "comment":
        return event
    said = [*event["data"].get("history", []), event["data"]["latest"]]
    shown = [{**one, "html": f"<p>{html.escape(one['raw'])}</p>", "author": event["author"]} for one in said]
    return {**event, "data": {**event["data"], "latest": shown[-1], "history": shown}}


def _details(call: Call, repository: Repository, record: Record) -> dict[str, Any]:
    answer = {**_summary(repository, record), "events": [_event(event) for event in record["events"]]}
    answer["filesWithConflicts"] = discussions.conflicts(repository, record) if record["isPullRequest"] else []
    if record["isPullRequest"]:
        changes: dict[str, Any] = {"base": record["base"]}
        if record["mergeCommitId"]:
            changes["mergeCommitId"] = record["mergeCommitId"]
        answer["changes"] = changes
        if call.flag("diff"):
            answer["diff"] = discussions.patch(repository, *discussions.compared_commits(repository, record))
    return answer


def listing(call: Call) -> Response:
    """``GET .../discussions``."""
    repository = call.repository()
    kind, status = call.option("type", "all"), call.option("status", "all")
    if kind not in ("all", "discussion", "pull_request") or status not in ("all", "open", "closed"):
        raise bad_request("type is discussion, pull_request or all; status is open, closed or all")
    found = discussions.listing(repository, kind, status, call.option("author"))
    start = call.integer("p", 0, 0, 10**6) * discussions.PAGE_SIZE
    page = found[start : start + discussions.PAGE_SIZE]
    return json_answer(
        {"discussions": [_summary(repository, record) for record in page], "count": len(found), "start": start}
    )


def details(call: Call) -> Response:
    """``GET .../discussions/{n}``."""
    repository = call.repository()
    with repository.writing():
        return json_answer(_details(call, repository, discussions.load(repository, _number(call))))


def _number(call: Call) -> int:
    if not call["num"].isdigit() or len(call["num"]) > 9:
        raise HubError(404, f"No discussion {call['num']}")
    return int(call["num"])


def create(call: Call) -> Response:
    """``POST .../discussions``; a pull request opened this way is a draft at the head of main."""
    user = call.writer()
    repository = call.repository()
    body = call.json_object()
    title, description = body.get("title"), body.get("description") or ""
    if not isinstance(title, str) or not isinstance(description, str):
        raise bad_request("A discussion needs a title")
    pull_request = bool(body.get("pullRequest"))
    with repository.writing():
        head = repository.reference(MAIN) if pull_request else None
        record = discussions.create(
            repository, title, description, user.person, call.when(), head=head, draft=pull_request
        )
    call.events.append(discussion_event(call.base, repository, record, "create", None))
    url = f"{call.base}/{repository.web_path}/discussions/{record['num']}"
    return json_answer({"num": record["num"], "url": url, "pullRequest": pull_request})


def _moderated(call: Call) -> tuple[Repository, User, int]:
    """Return repository, user and number if the user may change the discussion: a member, or who opened it."""
    user = call.writer()
    repository = call.repository()
    number = _number(call)
    record = discussions.load(repository, number)
    if not call.is_member(repository) and record["author"] != user.name:
        raise HubError(403, f"{user.name} may not change discussion {number} of {repository.web_path}")
    return repository, user, number


# These four are shared by the API and the pages for people.


def add_comment(call: Call, repository: Repository, user: User, number: int, text: object) -> Record:
    """Add a comment, tell of it, and return its event."""
    added = discussions.add_comment(repository, number, text, user.person, call.when())
    call.events.append(discussion_event(call.base, repository, discussions.load(repository, number), "create", added))
    return added


def set_status(call: Call, repository: Repository, user: User, number: int, status: object, text: object) -> Record:
    """Open or close a discussion, tell of it, and return the event."""
    changed = discussions.set_status(repository, number, status, user.person, call.when(), text)
    call.events.append(discussion_event(call.base, repository, discussions.load(repository, number), "update", None))
    return changed


def set_title(call: Call, repository: Repository, user: User, number: int, title: object) -> Record:
    """Change a title, tell of it, and return the event."""
    changed = discussions.set_title(repository, number, title, user.person, call.when())
    call.events.append(discussion_event(call.base, repository, discussions.load(repository, number), "update", None))
    return changed


def merge_pull_request(call: Call, repository: Repository, user: User, number: int, text: object) -> str:
    """Merge a pull request, tell of it, and return the new commit."""
    oid = discussions.merge(repository, number, user.person, call.when(), text)
    record = discussions.load(repository, number)
    call.events.append(discussion_event(call.base, repository, record, "update", None))
    call.events.append(content_event(call.base, repository, record["base"], record["mergedBase"], oid))
    return oid


def comment(call: Call) -> Response:
    """``POST .../discussions/{n}/comment``."""
    user = call.writer()
    text = call.json_object().get("comment")
    return json_answer({"newMessage": _event(add_comment(call, call.repository(), user, _number(call), text))})


def edit_comment(call: Call) -> Response:
    """``POST .../discussions/{n}/comment/{id}/edit``; its author only."""
    user, repository, number = call.writer(), call.repository(), _number(call)
    text = call.json_object().get("content")
    return _updated(
        call, repository, discussions.edit_comment(repository, number, call["id"], text, user.person, call.when())
    )


def hide_comment(call: Call) -> Response:
    """``POST .../discussions/{n}/comment/{id}/hide``; members, and who opened the discussion."""
    repository, user, number = _moderated(call)
    return _updated(call, repository, discussions.hide_comment(repository, number, call["id"], user.person))


def _updated(call: Call, repository: Repository, comment: Record) -> Response:
    record = discussions.load(repository, _number(call))
    call.events.append(discussion_event(call.base, repository, record, "update", comment))
    return json_answer({"updatedComment": _event(comment)})


def status(call: Call) -> Response:
    """``POST .../discussions/{n}/status``."""
    repository, user, number = _moderated(call)
    body = call.json_object()
    changed = set_status(call, repository, user, number, body.get("status"), body.get("comment"))
    return json_answer({"newStatus": changed})


def title(call: Call) -> Response:
    """``POST .../discussions/{n}/title``."""
    repository, user, number = _moderated(call)
    return json_answer({"newTitle": set_title(call, repository, user, number, call.json_object().get("title"))})


def merge(call: Call) -> Response:
    """``POST .../discussions/{n}/merge``; members only."""
    repository, user = call.writable()
    text = call.json_object().get("comment")
    return json_answer({"mergeCommitId": merge_pull_request(call, repository, user, _number(call), text)})
