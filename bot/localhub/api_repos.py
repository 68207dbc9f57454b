"""The Hub's API about repositories as wholes: identity, creation, information, listings, references, settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pygit2
from starlette.responses import Response

from bot.localhub import cards
from bot.localhub.clock import iso
from bot.localhub.errors import HubError, bad_request, revision_not_found
from bot.localhub.listing import Listed
from bot.localhub.names import check_reference_name, kind_of
from bot.localhub.repository import MAIN, Entry, Repository
from bot.localhub.store import User
from bot.localhub.web import Call, json_answer, next_link
from bot.localhub.webhooks import content_event, event

_LIST_FIELDS = (
    "author",
    "sha",
    "lastModified",
    "createdAt",
    "private",
    "gated",
    "disabled",
    "likes",
    "library_name",
    "tags",
    "pipeline_tag",
)
_ONE_FIELDS = (*_LIST_FIELDS, "cardData", "config", "siblings", "usedStorage", "model-index")
_SORT_KEYS = {"lastModified": "lastModified", "last_modified": "lastModified", "createdAt": "createdAt"}
_MAXIMUM_PAGE = 1000


# ------------------------------------------------------------------------------------------------------ identity


def whoami(call: Call) -> Response:
    """``GET /api/whoami-v2``."""
    if call.user is None:
        raise HubError(401, "Invalid credentials: no token was sent")
    token = {"displayName": "embedded", "role": call.user.role}
    organisations = [
        {"type": "org", "name": name, "fullname": name, "isEnterprise": False, "roleInOrg": "write"}
        for name in call.store.organisations()
    ]
    return json_answer(
        {
            "type": "user",
            "name": call.user.name,
            "fullname": call.user.name,
            "isPro": False,
            "orgs": organisations,
            "auth": {"type": "access_token", "accessToken": token},
        }
    )


def auth_check(call: Call) -> Response:
    """``GET .../auth-check`` and ``.../auth-check/write``."""
    call.readable()
    if call.parameters.get("what"):
        call.writable()
    return json_answer({})


# ------------------------------------------------------------------------------------------------------ creation


def _named(call: Call, user: User) -> tuple[str, str, dict[str, Any]]:
    """Return kind, repository id and body of a request that names its repository in the body."""
    body = call.json_object()
    name, namespace = body.get("name"), body.get("organization") or user.name
    if not isinstance(name, str) or not isinstance(namespace, str):
        raise bad_request("A repository needs a name")
    repo_id = name if "/" in name else f"{namespace}/{name}"
    return kind_of(body.get("type")), repo_id, body


def _check_namespace(call: Call, user: User, repo_id: str) -> None:
    namespace = repo_id.partition("/")[0]
    if not call.store.is_member(user, namespace):
        raise HubError(403, f"{user.name} may not write to the namespace {namespace}")


def create_repo(call: Call) -> Response:
    """``POST /api/repos/create``."""
    user = call.writer()
    kind, repo_id, body = _named(call, user)
    call.store.path(kind, repo_id)
    _check_namespace(call, user, repo_id)
    private = body.get("visibility", "private" if body.get("private") else "public") == "private"
    try:
        repository = call.store.create(kind, repo_id, user.person, call.when(), private)
    except HubError as error:
        if error.status == 409:
            repository = call.store.repository(kind, repo_id)
            error.extra |= {"url": f"{call.base}/{repository.web_path}", "name": repository.repo_id}
        raise
    identity = repository.settings["id"]
    call.events.append(event(call.base, repository, "create", "repo"))
    return json_answer({"url": f"{call.base}/{repository.web_path}", "name": repository.repo_id, "id": identity})


def delete_repo(call: Call) -> Response:
    """``DELETE /api/repos/delete``."""
    user = call.writer()
    kind, repo_id, _ = _named(call, user)
    repository = call.store.repository(kind, repo_id)
    _check_namespace(call, user, repo_id)
    deleted = event(call.base, repository, "delete", "repo")
    call.store.delete(kind, repo_id)
    call.events.append(deleted)
    return json_answer({})


def move_repo(call: Call) -> Response:
    """``POST /api/repos/move``."""
    user = call.writer()
    body = call.json_object()
    source, target = body.get("fromRepo"), body.get("toRepo")
    if not isinstance(source, str) or not isinstance(target, str):
        raise bad_request("A move needs fromRepo and toRepo")
    kind = kind_of(body.get("type"))
    repository = call.store.repository(kind, source)
    for repo_id in (source, target):
        _check_namespace(call, user, repo_id)
    owner = {"id": target.partition("/")[0]}
    moved = event(call.base, repository, "move", "repo", movedTo={"name": target, "owner": owner})
    call.store.move(kind, source, target)
    call.events.append(moved)
    return json_answer({})


def settings(call: Call) -> Response:
    """``PUT .../settings``: ``gated`` and ``visibility``."""
    repository = call.owned()
    body = call.json_object()
    changes: dict[str, Any] = {}
    if "gated" in body:
        if body["gated"] not in ("auto", "manual", False):
            raise bad_request('gated is "auto", "manual" or false')
        changes["gated"] = body["gated"]
    visibility = body.get("visibility", {True: "private", False: "public"}.get(body.get("private", "")))
    if visibility is not None:
        if visibility not in ("public", "private"):
            raise bad_request('visibility is "public" or "private"')
        changes["private"] = visibility == "private"
    repository.change_settings(changes)
    call.events.append(event(call.base, repository, "update", "repo.config", updatedConfig=changes))
    return json_answer({"private": repository.settings["private"], "gated": repository.settings["gated"]})


def validate_yaml(call: Call) -> Response:
    """``POST /api/validate-yaml``; needs no token."""
    body = call.json_object()
    content = body.get("content")
    if not isinstance(content, str):
        raise bad_request("There is no content to validate")
    errors, warnings = cards.validate(content, str(body.get("repoType", "model")))
    answer = {
        "errors": [{"message": message} for message in errors],
        "warnings": [{"message": message} for message in warnings],
    }
    if errors:
        return json_answer({"error": "; ".join(errors), **answer}, 400)
    return json_answer(answer)


# ------------------------------------------------------------------------------------------------------ information


class Facts:
    """What the API tells about a repository at a commit; each field is worked out only when it is asked for."""

    def __init__(self, repository: Repository, commit: str) -> None:
        self.repository = repository
        self.commit = commit
        self.settings = repository.settings
        self._files: list[Entry] | None = None
        self._card: dict[str, Any] | None = None

    @property
    def files(self) -> list[Entry]:
        """All files."""
        if self._files is None:
            self._files = self.repository.files(self.commit)
        return self._files

    @property
    def card(self) -> dict[str, Any]:
        """The front matter of README.md."""
        if self._card is None:
            self._card = cards.lenient_front_matter(self.repository.text(self.commit, "README.md"))
        return self._card

    def field(self, name: str, blobs: bool = False) -> Any:
        """Return one field of ``model_info``, or None."""
        match name:
            case "author":
                return self.repository.namespace
            case "sha":
                return self.commit
            case "lastModified":
                return iso(self.repository.commit(self.repository.reference(MAIN) or self.commit).commit_time)
            case "createdAt" | "private" | "gated":
                return self.settings.get(name)
            case "disabled":
                return False
            case "likes":
                return 0
            case "library_name":
                return self._library()
            case "pipeline_tag":
                return self.card.get("pipeline_tag")
            case "tags":
                return cards.tags(self.card, [entry.path for entry in self.files], self._library())
            case "cardData":
                return {key: value for key, value in self.card.items() if key != "model-index"}
            case "model-index":
                return self.card.get("model-index")
            case "baseModels":
                return self._base_models()
            case "config":
                return self._config()
            case "evalResults":
                return self._eval_results()
            case "siblings":
                return [_sibling(entry, blobs) for entry in self.files]
            case "usedStorage":
                return sum({entry.etag: entry.size for entry in self.files}.values())
        return None

    def _library(self) -> str | None:
        if self.repository.kind != "models":
            return None
        return cards.library_name(self.card, [entry.path for entry in self.files])

    def _base_models(self) -> dict[str, Any] | None:
        names = cards.as_list(self.card.get("base_model"))
        if not names:
            return None
        return {"relation": self.card.get("base_model_relation"), "models": [{"id": name} for name in names]}

    def _eval_results(self) -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = []
        for entry in self.files:
            if entry.path.startswith(".eval_results/") and entry.path.endswith((".yaml", ".yml")):
                found += cards.eval_results(entry.path, self.repository.text(self.commit, entry.path))
        return found or None

    def _config(self) -> dict[str, Any] | None:
        try:
            config = json.loads(self.repository.text(self.commit, "config.json") or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(config, dict):
            return None
        return {key: config[key] for key in ("architectures", "model_type") if key in config}

    def collect(self, names: Iterable[str], blobs: bool = False) -> dict[str, Any]:
        """Return the named fields that have a value, with the repository's id."""
        found = {"id": self.repository.repo_id, "_id": self.settings.get("id")}
        if self.repository.kind == "models":
            found["modelId"] = self.repository.repo_id
        for name in names:
            value = self.field(name, blobs)
            if value is not None:
                found[name] = value
        return found


def _sibling(entry: Entry, blobs: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"rfilename": entry.path}
    if blobs:
        answer |= {"size": entry.size, "blobId": entry.oid}
        if entry.pointer:
            size = len(entry.pointer.encode())
            answer["lfs"] = {"sha256": entry.pointer.sha256, "size": entry.size, "pointerSize": size}
    return answer


def repo_info(call: Call) -> Response:
    """``GET /api/models/{id}`` and ``.../revision/{rev}``."""
    repository = call.repository()
    facts = Facts(repository, repository.resolve(call.parameters.get("rev", "main")))
    expand = [*call.query.get("expand", []), *call.query.get("expand[]", [])]
    if expand and (call.flag("blobs") or call.flag("securityStatus")):
        raise bad_request("expand excludes blobs and securityStatus")
    answer = facts.collect(expand or _ONE_FIELDS, blobs=call.flag("blobs"))
    if call.flag("securityStatus"):
        # Nothing here scans files, and the answer must not pretend that something did.
        answer["securityRepoStatus"] = {"scansDone": False, "filesWithIssues": []}
    return json_answer(answer)


def list_repos(call: Call) -> Response:
    """``GET /api/models`` and ``/api/datasets``: filters, order (newest first), pages."""
    sort = call.option("sort", "lastModified")
    found = [listed for listed in _visible(call) if _matches(call, listed)]
    if sort in _SORT_KEYS:
        found.sort(key=lambda listed: _sort_key(listed, _SORT_KEYS[sort]), reverse=True)
    start = call.integer("cursor", 0, 0, 10**9)
    limit = call.integer("limit", _MAXIMUM_PAGE, 1, _MAXIMUM_PAGE)
    expand = [*call.query.get("expand", []), *call.query.get("expand[]", [])]
    names = expand or _listed_fields(call)
    page = [facts.collect(names) for listed in found[start : start + limit] if (facts := _facts(call, listed))]
    more = start + limit < len(found)
    return json_answer(page, headers=next_link(call, {"cursor": str(start + limit)}) if more else {})


def _sort_key(listed: Listed, field: str) -> str:
    return iso(listed.modified) if field == "lastModified" else str(listed.settings.get(field))


def _facts(call: Call, listed: Listed) -> Facts | None:
    """The repository itself, opened; None if it was deleted or renamed in the meantime."""
    try:
        return Facts(call.store.repository(call.kind, listed.repo_id), listed.sha)
    except HubError:
        return None


def _listed_fields(call: Call) -> list[str]:
    fields = [name for name in _LIST_FIELDS if call.flag("full") or name not in ("author", "sha", "lastModified")]
    fields += ["siblings"] if call.flag("full") else []
    fields += ["cardData"] if call.flag("cardData") or (call.flag("full") and call.kind == "datasets") else []
    return [*fields, *(["config"] if call.flag("config") else [])]


def _visible(call: Call) -> Iterable[Listed]:
    author = call.option("author")
    if author and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", author):
        return  # No namespace is called like that.
    for listed in call.store.listing.of(call.kind, author):
        if not listed.settings.get("private") or call.is_member(listed):
            yield listed


def _matches(call: Call, listed: Listed) -> bool:
    search = call.option("search").casefold()
    if search and search not in listed.repo_id.casefold():
        return False
    if call.option("gated") and bool(listed.settings.get("gated")) != call.flag("gated"):
        return False
    wanted = [tag for value in call.query.get("filter", []) for tag in value.split(",") if tag]
    if not wanted and not call.option("pipeline_tag"):
        return True
    facts = _facts(call, listed)
    if facts is None:
        return False
    if call.option("pipeline_tag") and facts.field("pipeline_tag") != call.option("pipeline_tag"):
        return False
    return not wanted or set(wanted) <= set(facts.field("tags"))


# ------------------------------------------------------------------------------------------------------ references


def refs(call: Call) -> Response:
    """``GET .../refs``."""
    repository = call.repository()

    def group(prefix: str) -> list[dict[str, str]]:
        found = repository.references(prefix)
        return [{"name": name, "ref": prefix + name, "targetCommit": commit} for name, commit in found.items()]

    answer = {"branches": group("refs/heads/"), "converts": group("refs/convert/"), "tags": group("refs/tags/")}
    if call.flag("include_prs"):
        answer["pullRequests"] = group("refs/pr/")
    return json_answer(answer)


def create_branch(call: Call) -> Response:
    """``POST .../branch/{name}``."""
    repository, _ = call.writable()
    name = f"refs/heads/{check_reference_name(call['branch'])}"
    start = call.json_object().get("startingPoint")
    with repository.writing():
        if repository.reference(name):
            raise HubError(409, f"Reference {name} already exists")
        commit = repository.resolve(str(start) if start else "main")
        _move(repository, {name: commit})
    call.events.append(content_event(call.base, repository, name, None, commit))
    return json_answer({})


def delete_branch(call: Call) -> Response:
    """``DELETE .../branch/{name}``; main stays."""
    repository, _ = call.writable()
    name = f"refs/heads/{call['branch']}"
    with repository.writing():
        old = repository.reference(name)
        if old is None:
            raise revision_not_found(call["branch"])
        if name == MAIN:
            raise HubError(403, f"Cannot delete {name}")
        repository.transact({name: None})
    call.events.append(content_event(call.base, repository, name, old, None))
    return json_answer({})


def create_tag(call: Call) -> Response:
    """``POST .../tag/{rev}``."""
    repository, user = call.writable()
    body = call.json_object()
    name, message = body.get("tag"), body.get("message")
    when = call.when()
    with repository.writing():
        target = repository.resolve(call["rev"])
        full = f"refs/tags/{check_reference_name(str(name))}"
        if repository.reference(full):
            raise HubError(409, f"Reference {full} already exists")
        if message:
            person = user.person
            tagger = pygit2.Signature(person.name, person.email, int(when.timestamp()), 0, "utf-8")
            target = str(repository.store_tag(str(name), target, tagger, str(message)))
        _move(repository, {full: target})
    call.events.append(content_event(call.base, repository, full, None, repository.reference(full)))
    return json_answer({})


def delete_tag(call: Call) -> Response:
    """``DELETE .../tag/{name}``."""
    repository, _ = call.writable()
    name = f"refs/tags/{call['tag']}"
    with repository.writing():
        old = repository.reference(name)
        if old is None:
            raise revision_not_found(call["tag"])
        repository.transact({name: None})
    call.events.append(content_event(call.base, repository, name, old, None))
    return json_answer({})


def _move(repository: Repository, references: dict[str, str | None]) -> None:
    try:
        repository.transact(references)
    except (pygit2.GitError, ValueError) as error:
        raise bad_request(f"git refuses this reference: {error}") from error


def commits(call: Call) -> Response:
    """``GET .../commits/{rev}``."""
    repository = call.repository()
    start = repository.resolve(call["rev"])
    skip = call.integer("p", 0, 0, 10**7)
    limit = call.integer("limit", 50, 1, 1000)
    formatted = "formatted" in [*call.query.get("expand[]", []), *call.query.get("expand", [])]
    page: list[dict[str, Any]] = []
    more = False
    for index, commit in enumerate(repository.history(start)):
        if index >= (skip + 1) * limit:
            more = True
            break
        if index >= skip * limit:
            page.append(_commit_item(commit, formatted))
    return json_answer(page, headers=next_link(call, {"p": str(skip + 1)}) if more else {})


def _commit_item(commit: pygit2.Commit, formatted: bool) -> dict[str, Any]:
    title, _, message = commit.message.partition("\n")
    names = [commit.author.name, *re.findall(r"^Co-authored-by: ([^<\n]+?) *<", message, re.MULTILINE)]
    item: dict[str, Any] = {
        "id": str(commit.id),
        "title": title,
        "message": message.strip("\n"),
        "date": iso(commit.commit_time),
        "authors": [{"user": name} for name in dict.fromkeys(names)],
    }
    if formatted:
        item["formatted"] = {"title": _escaped(title), "message": _escaped(item["message"])}
    return item


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
