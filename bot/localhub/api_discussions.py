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
    latest = event["data"]["latest"]
    shown = {**latest, "html": f"<p>{html.escape(latest['raw'])}</p>", "author": event["author"]}
    return {**event, "data": {**event["data"], "latest": shown, "history": [shown]}}


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
    with repository.lock:
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
    with repository.lock:
        head = repository.reference(MAIN) if pull_request else None
        record = discussions.create(
            repository, title, description, user.person, call.when(), head=head, draft=pull_request
        )
    url = f"{call.base}/{repository.web_path}/discussions/{record['num']}"
    return json_answer({"num": record["num"], "url": url, "pullRequest": pull_request})


def _moderated(call: Call) -> tuple[Repository, User, int]:
    """Return repository, user and number if the user may change the discussion: a member, or who opened it."""
    user = call.writer()
    repository = call.repository()
    number = _number(call)
    record = discussions.load(repository, number)
    if not call.store.is_member(user, repository.namespace) and record["author"] != user.name:
        raise HubError(403, f"{user.name} may not change discussion {number} of {repository.web_path}")
    return repository, user, number


def comment(call: Call) -> Response:
    """``POST .../discussions/{n}/comment``."""
    user = call.writer()
    repository = call.repository()
    text = call.json_object().get("comment")
    event = discussions.add_comment(repository, _number(call), text, user.person, call.when())
    return json_answer({"newMessage": _event(event)})


def status(call: Call) -> Response:
    """``POST .../discussions/{n}/status``."""
    repository, user, number = _moderated(call)
    body = call.json_object()
    event = discussions.set_status(
        repository, number, body.get("status"), user.person, call.when(), body.get("comment")
    )
    return json_answer({"newStatus": event})


def title(call: Call) -> Response:
    """``POST .../discussions/{n}/title``."""
    repository, user, number = _moderated(call)
    event = discussions.set_title(repository, number, call.json_object().get("title"), user.person, call.when())
    return json_answer({"newTitle": event})


def merge(call: Call) -> Response:
    """``POST .../discussions/{n}/merge``; members only."""
    repository, user = call.writable()
    text = call.json_object().get("comment")
    oid = discussions.merge(repository, _number(call), user.person, call.when(), text)
    return json_answer({"mergeCommitId": oid})
