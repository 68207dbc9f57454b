"""The Hub's API about files: trees, uploads, commits and downloads."""

from __future__ import annotations

import mimetypes
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from bot.localhub import discussions, lfs, xet, xet_downloads
from bot.localhub.clock import iso
from bot.localhub.commits import LINE_LIMIT, apply_plan, preupload, read_plan
from bot.localhub.errors import HubError, bad_request, entry_not_found, revision_not_found
from bot.localhub.repository import Entry, Repository
from bot.localhub.web import Call, content_answer, json_answer, next_link, stream_body
from bot.localhub.webhooks import content_event, discussion_event

_TREE_PAGE, _EXPANDED_PAGE = 1000, 50
_PREUPLOAD_MAXIMUM = 1000


# ------------------------------------------------------------------------------------------------------ trees


def tree(call: Call) -> Response:
    """``GET .../tree/{rev}/{path}``; the next page is asked for at the same commit."""
    repository = call.repository()
    commit = repository.resolve(call.option("commit") or call["rev"])
    expand = call.flag("expand")
    start = call.integer("cursor", 0, 0, 10**9)
    folder = call.parameters.get("path", "").strip("/")
    default = _EXPANDED_PAGE if expand else _TREE_PAGE
    limit = call.integer("limit", default, 1, default)
    entries = list(repository.walk(commit, folder, call.flag("recursive")))
    page = entries[start : start + limit]
    more = start + limit < len(entries)
    headers = next_link(call, {"cursor": str(start + limit), "commit": commit}) if more else {}
    return json_answer(_described(call, repository, commit, page, expand), headers=headers)


def paths_info(call: Call) -> Response:
    """``POST .../paths-info/{rev}``, form-encoded or JSON; unknown paths are left out."""
    repository = call.repository()
    commit = repository.resolve(call["rev"])
    if call.header("Content-Type").startswith("application/json"):
        body = call.json_object()
        paths, expand = body.get("paths"), bool(body.get("expand"))
    else:
        form = call.form()
        paths, expand = form.get("paths", []), form.get("expand", ["false"])[-1].lower() == "true"
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise bad_request("paths is a list of strings")
    found = [repository.entry(commit, path.strip("/")) for path in paths]
    return json_answer(_described(call, repository, commit, [entry for entry in found if entry], expand))


def _described(
    call: Call, repository: Repository, commit: str, entries: list[Entry], expand: bool
) -> list[dict[str, Any]]:
    last = repository.last_commits(commit, [entry.path for entry in entries]) if expand else {}
    answers = []
    for entry in entries:
        answer: dict[str, Any] = {
            "type": "directory" if entry.is_folder else "file",
            "oid": entry.oid,
            "size": entry.size,
            "path": entry.path,
        }
        if entry.pointer:
            size = len(entry.pointer.encode())
            answer["lfs"] = {"oid": entry.pointer.sha256, "size": entry.size, "pointerSize": size}
            if name := xet_downloads.offered_hash(call, repository, entry.pointer.sha256):
                answer["xetHash"] = name
        if expand:
            newest = last[entry.path]
            title = newest.message.partition("\n")[0]
            answer["lastCommit"] = {"id": str(newest.id), "title": title, "date": iso(newest.commit_time)}
            if not entry.is_folder:
                answer["securityFileStatus"] = {"status": "unscanned", "avScan": None, "pickleImportScan": None}
        answers.append(answer)
    return answers


# ------------------------------------------------------------------------------------------------------ commits


def preupload_files(call: Call) -> Response:
    """``POST .../preupload/{rev}``: how each file of a coming commit is to be sent."""
    call.writer()
    repository = call.repository()
    if not call.flag("create_pr"):
        _check_may_commit(call, repository)
    body = call.json_object()
    files, git_ignore = body.get("files"), body.get("gitIgnore")
    if not isinstance(files, list) or len(files) > _PREUPLOAD_MAXIMUM:
        raise bad_request(f"files is a list of at most {_PREUPLOAD_MAXIMUM}")
    commit = repository.resolve(call["rev"])
    answers = preupload(repository, commit, files, git_ignore if isinstance(git_ignore, str) else None)
    return json_answer({"files": answers, "commitOid": commit})


def commit(call: Call) -> Response:
    """``POST .../commit/{rev}``: one commit, or one pull request with one commit."""
    if call.flag("create_pr"):
        return _commit_as_pull_request(call)
    user = call.writer()
    repository = call.repository()
    _check_may_commit(call, repository)
    plan = read_plan(repository, call.lines(LINE_LIMIT))
    with repository.writing():
        reference = repository.reference_name(call["rev"])
        if plan.parent:
            repository.require_head(reference, plan.parent)
        head = repository.reference(reference)
        if head is None:
            raise revision_not_found(call["rev"])
        when = call.when()
        oid = apply_plan(repository, plan, head, user.person, when)
        discussions.add_commit(repository, reference, oid, user.person, when)
    call.events.append(content_event(call.base, repository, reference, head, oid))
    return json_answer(_committed(call, repository, oid))


def _check_may_commit(call: Call, repository: Repository) -> None:
    """Let members commit anywhere, and whoever opened a pull request to that.

    Raises:
        HubError: 403 otherwise.
    """
    user = call.writer()
    if call.is_member(repository):
        return
    number = call["rev"].removeprefix("refs/pr/")
    own = (
        number != call["rev"] and number.isdigit() and discussions.load(repository, int(number))["author"] == user.name
    )
    if not own:
        raise HubError(403, f"{user.name} has no write access to {repository.web_path}")


def _commit_as_pull_request(call: Call) -> Response:
    user = call.writer()
    repository = call.repository()
    plan = read_plan(repository, call.lines(LINE_LIMIT))
    with repository.writing():
        base = repository.reference_name(call["rev"])
        if not base.startswith("refs/heads/"):
            raise bad_request("A pull request is opened against a branch")
        parent = repository.resolve(plan.parent or base)
        when = call.when()
        oid = apply_plan(repository, plan, parent, user.person, when)
        record = discussions.create(repository, plan.summary, plan.description, user.person, when, base=base, head=oid)
    call.events.append(discussion_event(call.base, repository, record, "create", None))
    reference = discussions.pull_request_reference(record["num"])
    call.events.append(content_event(call.base, repository, reference, None, oid))
    url = f"{call.base}/{repository.web_path}/discussions/{record['num']}"
    return json_answer({**_committed(call, repository, oid), "pullRequestUrl": url})


def _committed(call: Call, repository: Repository, oid: str) -> dict[str, Any]:
    url = f"{call.base}/{repository.web_path}/commit/{oid}"
    return {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""}


# ------------------------------------------------------------------------------------------------------ large files


def _uploader(call: Call) -> Repository:
    """Return the repository; anyone with a write token may upload, since a pull request starts with an upload."""
    call.writer()
    return call.repository()


def lfs_batch(call: Call) -> Response:
    """``POST /{id}.git/info/lfs/objects/batch``."""
    body = call.json_object()
    repository = call.readable() if body.get("operation") == "download" else _uploader(call)
    answer = lfs.batch(repository, body, call.base, call.signer)
    return Response(_dumps(answer), media_type="application/vnd.git-lfs+json")


def _dumps(value: Any) -> bytes:
    return bytes(json_answer(value).body)


async def lfs_put(call: Call) -> Response:
    """``PUT`` of a whole large file, by a signed link."""
    repository = await run_in_threadpool(call.store.repository, call.kind, call.repo_id)
    size = call["size"]
    call.signer.check(call.option("signature"), "put", size, repository.kind, repository.repo_id, call["oid"])
    receiver = lfs.Receiver(repository, call["oid"], int(size))
    try:
        async for piece in stream_body(call):
            await run_in_threadpool(receiver.write, piece)
        await run_in_threadpool(receiver.finish)
    finally:
        receiver.discard()
    return Response()


async def lfs_put_part(call: Call) -> Response:
    """``PUT`` of one part of a large file, by a signed link; the answer's ETag is the part's md5."""
    repository = await run_in_threadpool(call.store.repository, call.kind, call.repo_id)
    who = (repository.kind, repository.repo_id, call["oid"])
    call.signer.check(call.option("signature"), "part", call["upload"], call["part"], *who)
    part = lfs.Part(lfs.part_path(repository, call["upload"], int(call["part"])))
    try:
        async for piece in stream_body(call):
            await run_in_threadpool(part.write, piece)
        etag = await run_in_threadpool(part.finish)
    finally:
        part.discard()
    return Response(headers={"ETag": f'"{etag}"'})


def lfs_complete(call: Call) -> Response:
    """``POST`` that ends an upload in parts, by a signed link."""
    repository = call.store.repository(call.kind, call.repo_id)
    who = (repository.kind, repository.repo_id, call["oid"])
    call.signer.check(call.option("signature"), "complete", call["upload"], call["size"], *who)
    parts = call.json_object().get("parts")
    lfs.complete(repository, call["oid"], call["upload"], int(call["size"]), parts)
    return json_answer({})


def lfs_verify(call: Call) -> Response:
    """``POST /{id}.git/info/lfs/objects/verify``."""
    repository = _uploader(call)
    body = call.json_object()
    if lfs.stored_size(repository, str(body.get("oid"))) != body.get("size"):
        raise HubError(404, "The object is not here, or has another size")
    return json_answer({})


def lfs_get(call: Call) -> Response:
    """``GET`` of a large file by a signed link, for git-lfs."""
    repository = call.store.repository(call.kind, call.repo_id)
    call.signer.check(call.option("signature"), "get", repository.kind, repository.repo_id, call["oid"])
    size = lfs.stored_size(repository, call["oid"])
    if size is None:
        raise entry_not_found(call["oid"])
    headers = {"ETag": f'"{call["oid"]}"', "Content-Type": "application/octet-stream"}
    return content_answer(call, repository.large_file(call["oid"]), size, headers)


def lfs_duplicate(call: Call) -> Response:
    """``POST .../lfs-files/duplicate``: give another repository large files of this one."""
    source = call.readable()
    user = call.writer()
    body = call.json_object()
    target_kind = f"{(body.get('target') or {}).get('repoType', 'model')}s"
    target = call.store.repository(target_kind, str((body.get("target") or {}).get("repoId")))
    if not call.is_member(target):
        raise HubError(403, f"{user.name} has no write access to {target.web_path}")
    failed = [item for item in body.get("files", []) if not lfs.share(source, target, str(item.get("sha256")))]
    for item in body.get("files", []):
        xet.share(source, target, str(item.get("sha256")))
    return json_answer({"success": not failed, "failed": failed})


# ------------------------------------------------------------------------------------------------------ downloads


def resolve(call: Call) -> Response:
    """``GET`` and ``HEAD`` of ``/{id}/resolve/{rev}/{path}``: the content, large files included."""
    repository = call.readable()
    commit_id = repository.resolve(call["rev"])
    entry = repository.file(commit_id, call["path"])
    headers = _download_headers(call, entry, commit_id)
    if entry.pointer is None:
        return content_answer(call, repository.read(entry), entry.size, headers)
    path = repository.large_file(entry.pointer.sha256)
    if not path.is_file():
        raise HubError(500, f"The large file {entry.pointer.sha256} is missing from the store")
    headers |= {"X-Linked-Size": str(entry.size), "X-Linked-ETag": f'"{entry.etag}"'}
    headers |= xet_downloads.download_headers(call, repository, commit_id, entry.pointer.sha256)
    return content_answer(call, path, entry.size, headers)


def raw(call: Call) -> Response:
    """``GET /{id}/raw/{rev}/{path}``: what git holds, which for a large file is its pointer."""
    repository = call.readable()
    commit_id = repository.resolve(call["rev"])
    entry = repository.file(commit_id, call["path"])
    content = repository.read(entry)
    headers = _download_headers(call, entry, commit_id) | {"ETag": f'"{entry.oid}"'}
    return content_answer(call, content, len(content), headers)


def _download_headers(call: Call, entry: Entry, commit_id: str) -> dict[str, str]:
    name = entry.path.rpartition("/")[2]
    plain = name.encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_").replace("?", "_")
    disposition = "attachment" if call.flag("download") else "inline"
    return {
        "ETag": f'"{entry.etag}"',
        "X-Repo-Commit": commit_id,
        "Content-Type": _content_type(name),
        "Content-Disposition": f"{disposition}; filename*=UTF-8''{quote(name)}; filename=\"{plain}\"",
        # What people upload is shown, but never as a page of this origin.
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; sandbox",
    }


def _content_type(name: str) -> str:
    guessed, _ = mimetypes.guess_type(name)
    if guessed and guessed.startswith(("image/", "audio/", "video/")):
        return guessed
    textual = name.rpartition(".")[2].lower() in ("md", "txt", "json", "jsonl", "yaml", "yml", "py", "csv", "html")
    return "text/plain; charset=utf-8" if textual or name.startswith(".git") else "application/octet-stream"
