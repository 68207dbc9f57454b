"""The pages for people: repositories, files, history, pull requests. No scripts, and no requests to other hosts.

The pages act as the local user. A form is taken only with the token that the page put into it, together with the cookie
that the browser got with the page; other sites can neither read the one nor make the browser send the other.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from bot.localhub import api_discussions, cards, differences, discussions, markdown
from bot.localhub.clock import iso
from bot.localhub.errors import HubError, bad_request, entry_not_found
from bot.localhub.names import KINDS
from bot.localhub.repository import MAIN, Entry, Repository
from bot.localhub.web import Call

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_TEXT_LIMIT = 500_000
_HISTORY_PAGE = 50
_WAITING_SHOWN = 5
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b-\u001f\u007f]")


# ------------------------------------------------------------------------------------------------------ filters


def bytes_text(size: int) -> str:
    """Return a number of bytes for people, with the exact number if it is rounded."""
    if size < 1000:
        return f"{size} B"
    value, units = size / 1000, ["kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def visible(text: object) -> str:
    """Return text in which characters that reorder or hide what follows are spelled out."""
    return _BIDI.sub(lambda match: f"[U+{ord(match[0]):04X}]", str(text))


def encoded(path: str) -> str:
    """Return a path or revision for use in an address; slashes stay."""
    return quote(path, safe="/")


def segment(text: str) -> str:
    """Return a revision as one segment of an address."""
    return quote(text, safe="")


def day(date: str) -> str:
    """Return date and time, to the minute, of a date as the API writes it."""
    return date[:16].replace("T", " ") + " UTC"


@functools.lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": bytes_text,
        "visible": visible,
        "encoded": encoded,
        "segment": segment,
        "day": day,
        "short": lambda sha: str(sha)[:10],
    }
    return environment


# ------------------------------------------------------------------------------------------------------ sessions


def form_token(session: str) -> str:
    """Return the token that a form must carry in this browser session."""
    return hmac.new(session.encode(), b"form", hashlib.sha256).hexdigest()


def check_form(call: Call) -> dict[str, str]:
    """Return the fields of a form that came from one of this Hub's own pages.

    Raises:
        HubError: 403 for any other.
    """
    origin, site = call.header("Origin"), call.header("Sec-Fetch-Site")
    if origin not in ("", call.base) or site not in ("", "same-origin", "none"):
        raise HubError(403, "Forms are taken from this Hub's own pages only")
    fields = {name: values[-1] for name, values in call.form().items()}
    if not call.has_page_session() or not hmac.compare_digest(
        fields.get("token", "").encode(), form_token(call.session).encode()
    ):
        raise HubError(403, "The form is out of date; load the page again")
    call.user = call.store.local_user
    return fields


def page(call: Call, template: str, **values: Any) -> Response:
    """Render a page."""
    html = (
        _environment()
        .get_template(template)
        .render(
            {
                "token": form_token(call.session),
                "user": call.store.local_user.name,
                "base": call.base,
                **values,
            }
        )
    )
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
    response = Response(html, headers=headers, media_type="text/html")
    response.set_cookie(call.session_cookie, call.session, httponly=True, samesite="strict")
    return response


def error_page(error: HubError) -> Response:
    """Return a refusal as a page."""
    html = _environment().get_template("error.html").render(error=error)
    headers = {"Content-Security-Policy": POLICY, **error.headers}
    return Response(html, error.status, headers, media_type="text/html")


def style(call: Call) -> Response:
    """``GET /-/style.css``."""
    text = (Path(__file__).parent / "html" / "style.css").read_bytes()
    return Response(text, media_type="text/css", headers={"Cache-Control": "max-age=60"})


# ------------------------------------------------------------------------------------------------------ repositories


@dataclass(frozen=True)
class Summary:
    """A repository in a list."""

    repository: Repository
    updated: str
    open_pull_requests: int
    data: dict[str, Any]

    @property
    def private(self) -> bool:
        """Whether only members see it."""
        return bool(self.repository.settings.get("private"))


def _summaries(call: Call, namespace: str | None = None) -> list[Summary]:
    found = []
    for repository in call.store.repositories():
        head = repository.reference(MAIN)
        if head is None or not _may_see(call, repository) or namespace not in (None, repository.namespace):
            continue
        updated = iso(repository.commit(head).commit_time)
        data = cards.lenient_front_matter(repository.text(head, "README.md"))
        waiting = len(discussions.listing(repository, "pull_request", "open"))
        found.append(Summary(repository, updated, waiting, data))
    return sorted(found, key=lambda summary: summary.updated, reverse=True)


def _may_see(call: Call, repository: Repository) -> bool:
    private = repository.settings.get("private") or repository.settings.get("gated")
    return not private or call.store.is_member(call.store.local_user, repository.namespace)


def index(call: Call) -> Response:
    """``GET /``, ``/models`` and ``/datasets``: all repositories, or those of a kind, the newest first."""
    found = _summaries(call)
    kinds = [call["kind"]] if "kind" in call.parameters else list(KINDS)
    groups = [(kind, [each for each in found if each.repository.kind == kind]) for kind in kinds]
    return page(call, "index.html", groups=groups, owner="")


def owner(call: Call) -> Response:
    """``GET /{ns}``: the repositories of a user or an organisation."""
    found = _summaries(call, call["ns"])
    if not found and call["ns"] not in call.store.user_names:
        raise HubError(404, f"There is no user or organisation {call['ns']}")
    groups = [(kind, [each for each in found if each.repository.kind == kind]) for kind in KINDS]
    return page(call, "index.html", groups=groups, owner=call["ns"])


def _open(call: Call) -> tuple[Repository, dict[str, Any]]:
    """Return the repository of the path and what the head of each of its pages shows."""
    call.user = call.store.local_user
    repository = call.readable()
    waiting = discussions.listing(repository, "all", "open")
    head = {
        "repository": repository,
        "root": f"/{repository.web_path}",
        "waiting": len(waiting),
        "settings": repository.settings,
    }
    return repository, head


def _addresses(repository: Repository, revision: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    root = f"/{repository.web_path}"
    return (
        lambda path: f"{root}/blob/{segment(revision)}/{encoded(path)}",
        lambda path: f"{root}/resolve/{segment(revision)}/{encoded(path)}",
    )


@dataclass(frozen=True)
class Card:
    """A card, ready for display: its front matter as pairs, what is wrong with it, and its body as safe HTML."""

    badges: list[tuple[str, str]]
    problems: list[str]
    html: Markup


def _card(repository: Repository, commit: str, revision: str) -> Card | None:
    text = repository.text(commit, "README.md")
    if text is None:
        return None
    errors, warnings = cards.validate(text, KINDS[repository.kind])
    link, image = _addresses(repository, revision)
    html = markdown.render(cards.split(text)[1], link, image)
    return Card(list(markdown.badges(cards.lenient_front_matter(text))), [*errors, *warnings], html)


def repo_page(call: Call) -> Response:
    """``GET /{id}``: the card, and the files beside it."""
    repository, head = _open(call)
    commit = repository.resolve("main")
    files = repository.files(commit)
    return page(
        call,
        "repo.html",
        **head,
        tab="card",
        card=_card(repository, commit, "main"),
        commit=repository.commit(commit),
        updated=iso(repository.commit(commit).commit_time),
        files=files,
        total=sum(entry.size for entry in files),
        open_pull_requests=discussions.listing(repository, "pull_request", "open")[:_WAITING_SHOWN],
        refs=_refs(repository),
    )


def _refs(repository: Repository) -> dict[str, list[str]]:
    return {
        "Branches": list(repository.references("refs/heads/")),
        "Tags": list(repository.references("refs/tags/")),
        "Pull requests": [f"refs/pr/{number}" for number in repository.references("refs/pr/")],
    }


# ------------------------------------------------------------------------------------------------------ files


def _crumbs(path: str) -> list[tuple[str, str]]:
    parts = path.split("/") if path else []
    return [(part, "/".join(parts[: n + 1])) for n, part in enumerate(parts)]


def tree(call: Call) -> Response:
    """``GET /{id}/tree/{rev}/{path}``: a folder."""
    repository, head = _open(call)
    commit = repository.resolve(call["rev"])
    path = call.parameters.get("path", "").strip("/")
    entries = list(repository.walk(commit, path, recursive=False))
    return page(
        call,
        "tree.html",
        **head,
        tab="files",
        revision=call["rev"],
        commit=repository.commit(commit),
        path=path,
        crumbs=_crumbs(path),
        entries=entries,
        last=repository.last_commits(commit, [entry.path for entry in entries]),
        refs=_refs(repository),
    )


def blob(call: Call) -> Response:
    """``GET /{id}/blob/{rev}/{path}``: a file with its size and hashes, and its text if it is one."""
    repository, head = _open(call)
    commit = repository.resolve(call["rev"])
    entry = repository.file(commit, call["path"])
    return page(
        call,
        "blob.html",
        **head,
        tab="files",
        revision=call["rev"],
        entry=entry,
        crumbs=_crumbs(entry.path),
        content=differences.content(repository, entry),
        text=_text(repository, entry),
        is_image=differences.FileChange(entry.path, "", "", None, None).is_image,
    )


def _text(repository: Repository, entry: Entry) -> list[str] | None:
    if entry.pointer or entry.size > _TEXT_LIMIT:
        return None
    try:
        text = repository.read(entry).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.split("\n")


def history(call: Call) -> Response:
    """``GET /{id}/commits/{rev}``."""
    repository, head = _open(call)
    start = repository.resolve(call["rev"])
    skip = call.integer("p", 0, 0, 10**6) * _HISTORY_PAGE
    found = []
    for number, commit in enumerate(repository.history(start)):
        if number > skip + _HISTORY_PAGE:
            break
        if number >= skip:
            found.append(commit)
    more = len(found) > _HISTORY_PAGE
    return page(
        call,
        "history.html",
        **head,
        tab="history",
        revision=call["rev"],
        commits=[(commit, iso(commit.commit_time)) for commit in found[:_HISTORY_PAGE]],
        newer=skip // _HISTORY_PAGE - 1,
        older=skip // _HISTORY_PAGE + 1 if more else -1,
        refs=_refs(repository),
    )


def commit_page(call: Call) -> Response:
    """``GET /{id}/commit/{rev}``: one commit and what it changed."""
    repository, head = _open(call)
    commit = repository.commit(repository.resolve(call["rev"]))
    parent = str(commit.parents[0].id) if commit.parents else None
    changes, more = differences.between(repository, parent, str(commit.id))
    return page(
        call,
        "commit.html",
        **head,
        tab="history",
        commit=commit,
        date=iso(commit.commit_time),
        changes=changes,
        more=more,
        old=parent,
        new=str(commit.id),
    )


# ------------------------------------------------------------------------------------------------------ discussions


def discussion_list(call: Call) -> Response:
    """``GET /{id}/discussions``."""
    repository, head = _open(call)
    status = call.option("status", "open")
    if status not in ("open", "closed", "all"):
        raise bad_request("status is open, closed or all")
    found = discussions.listing(repository, "all", status)
    return page(call, "discussions.html", **head, tab="discussions", status=status, found=found)


def discussion(call: Call) -> Response:
    """``GET /{id}/discussions/{n}``: its comments, and for a pull request all that it changes."""
    repository, head = _open(call)
    if not call["num"].isdigit() or len(call["num"]) > 9:
        raise entry_not_found(call["num"])
    with repository.writing():
        record = discussions.load(repository, int(call["num"]))
        values = _pull_request(repository, record) if record["isPullRequest"] else {}
    link, image = _addresses(repository, "main")
    events = [_shown(event, link, image) for event in record["events"]]
    return page(call, "discussion.html", **head, tab="discussions", record=record, events=events, **values)


def _pull_request(repository: Repository, record: dict[str, Any]) -> dict[str, Any]:
    old, new = discussions.compared_commits(repository, record)
    changes, more = differences.between(repository, old, new)
    changed = {path for change in changes for path in (change.path, change.old_path)}
    return {
        "old": old,
        "new": new,
        "changes": changes,
        "more": more,
        "conflicts": discussions.conflicts(repository, record),
        "card": _card(repository, new, new),
        "old_card": _card(repository, old, old) if changed & {"README.md"} else None,
        "card_changes": bool(changed & {"README.md"}),
        "summary": {
            "files": len(changes) + more,
            "added": sum(change.added for change in changes),
            "removed": sum(change.removed for change in changes),
            "bytes": sum(change.after.size for change in changes if change.after),
        },
    }


def _shown(event: dict[str, Any], link: Callable[[str], str], image: Callable[[str], str]) -> dict[str, Any]:
    if event["type"] != "comment":
        return event
    html = markdown.render(event["data"]["latest"]["raw"], link, image)
    return {**event, "html": html}


def act(call: Call) -> Response:
    """``POST /{id}/discussions/{n}/{action}`` from a page's form: merge, close, reopen, publish or comment."""
    fields = check_form(call)
    repository, user = call.writable()
    if not call["num"].isdigit() or len(call["num"]) > 9:
        raise entry_not_found(call["num"])
    number, text = int(call["num"]), fields.get("comment", "")
    match call["action"]:
        case "merge":
            api_discussions.merge_pull_request(call, repository, user, number, text)
        case "close":
            api_discussions.set_status(call, repository, user, number, "closed", text)
        case "reopen" | "publish":
            api_discussions.set_status(call, repository, user, number, "open", text)
        case "comment":
            api_discussions.add_comment(call, repository, user, number, text)
        case _:
            raise bad_request("A discussion is merged, closed, reopened or commented")
    return RedirectResponse(f"/{repository.web_path}/discussions/{number}", 303)
