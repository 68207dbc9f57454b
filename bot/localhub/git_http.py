"""``git clone`` and ``git fetch`` over plain files: git's dumb HTTP protocol. Pushes are refused.

No program is started: a repository's references, loose objects and packs are handed out as they are, as
https://git-scm.com/docs/http-protocol describes. Large files come through the LFS batch API beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

from starlette.responses import Response

from bot.localhub.errors import HubError
from bot.localhub.repository import Repository
from bot.localhub.web import Call, content_answer

_OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}|pack/pack-[0-9a-f]{40}\.(?:pack|idx)")
_EXPOSED = ("refs/heads/", "refs/tags/", "refs/pr/")


def _repository(call: Call) -> Repository:
    """Return the repository; git asks its user for a token only after a 401."""
    try:
        return call.readable()
    except HubError as error:
        if call.user is not None:
            raise
        challenge = {"WWW-Authenticate": 'Basic realm="embedded Hub: user name and token"'}
        raise HubError(401, error.message, code=error.code, headers=challenge) from None


def info_refs(call: Call) -> Response:
    """``GET /{id}/info/refs``."""
    repository = _repository(call)
    if call.option("service") == "git-receive-pack":
        raise HubError(403, "The embedded Hub takes commits through its API, not pushes")
    lines = []
    for name in sorted(repository.git.references):
        if name.startswith(_EXPOSED):
            reference = repository.git.references[name]
            lines.append(f"{reference.target}\t{name}")
            peeled = repository.reference(name)
            if peeled and peeled != str(reference.target):
                lines.append(f"{peeled}\t{name}^{{}}")
    text = "".join(f"{line}\n" for line in lines)
    return Response(text, media_type="text/plain", headers={"Cache-Control": "no-cache"})


def head(call: Call) -> Response:
    """``GET /{id}/HEAD``."""
    _repository(call)
    return Response("ref: refs/heads/main\n", media_type="text/plain")


def packs(call: Call) -> Response:
    """``GET /{id}/objects/info/packs``."""
    repository = _repository(call)
    names = sorted(path.name for path in (repository.folder / "objects" / "pack").glob("pack-*.pack"))
    return Response("".join(f"P {name}\n" for name in names) + "\n", media_type="text/plain")


def git_object(call: Call) -> Response:
    """``GET /{id}/objects/...``: a loose object, or a pack or its index, as the file that it is."""
    repository = _repository(call)
    if not _OBJECT.fullmatch(call["object"]):
        raise HubError(404, "Not a git object")
    path: Path = repository.folder / "objects" / call["object"]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise HubError(404, "No such git object") from None
    headers = {"ETag": f'"{path.name}"', "Content-Type": "application/octet-stream"}
    return content_answer(call, path, size, headers)
