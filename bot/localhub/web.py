"""The HTTP side that all of the embedded Hub shares: calls, answers, routes, bodies and their limits.

A handler is a plain function from a ``Call`` to a starlette response; it runs in a thread. Handlers that take large
bodies as they arrive are coroutines.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from bot.localhub import access, clock
from bot.localhub.errors import HubError, bad_request, repo_not_found
from bot.localhub.faults import Faults
from bot.localhub.lfs import Signer
from bot.localhub.listing import Listed
from bot.localhub.repository import Repository
from bot.localhub.store import Store, User

if TYPE_CHECKING:
    from bot.localhub.jobs import Jobs
    from bot.localhub.oidc import Exchange
    from bot.localhub.webhooks import Event, Webhooks

Handler = Callable[["Call"], "Response | Awaitable[Response]"]
SMALL_BODY = 8 * 1024 * 1024
LARGE_BODY = 1536 * 1024 * 1024
_IN_MEMORY = 8 * 1024 * 1024
_PIECE = 1 << 18
_REVISION = r"refs/(?:heads|tags|pr|convert)/[^/]+|[^/]+"


@dataclass
class Call:
    """One request, with its body read (unless the route streams) and its bearer known.

    Attributes:
        store: What the Hub keeps.
        signer: Signs upload links.
        request: The starlette request.
        user: Whose token came with it, or None.
        parameters: The variable parts of the path, decoded.
        query: The query, each key with all its values.
        base: Scheme and host as the client named them.
        body: The request's body, at its beginning.
        webhooks: Who is told of what.
        jobs: The commands that the Hub runs for its users.
        session: The secret of the browser's session with the pages for people, sent or to be sent as a cookie.
        events: What the handler did that webhooks are told of once the answer stands.
        faults: The failures that this Hub is asked to have.
        exchange: Gives tokens to trusted publishers.
    """

    store: Store
    signer: Signer
    faults: Faults
    request: Request
    user: User | None
    parameters: dict[str, str]
    query: dict[str, list[str]]
    base: str
    body: IO[bytes]
    session: str
    webhooks: Webhooks
    jobs: Jobs
    exchange: Exchange
    events: list[Event] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        """Return a variable part of the path, decoded."""
        return self.parameters[name]

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.request.method

    def header(self, name: str) -> str:
        """Return a request header, or the empty string."""
        return str(self.request.headers.get(name, ""))

    def option(self, name: str, default: str = "") -> str:
        """Return the last value of a query key."""
        values = self.query.get(name)
        return values[-1] if values else default

    def flag(self, name: str) -> bool:
        """Return whether a query key is set to a true value."""
        return self.option(name).lower() in ("1", "true")

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number of the query, brought between two limits.

        Raises:
            HubError: 400 if it is no number.
        """
        text = self.option(name, str(default))
        if not re.fullmatch(r"-?[0-9]{1,12}", text):
            raise bad_request(f"{name} is a whole number, not {text!r}")
        return min(max(int(text), low), high)

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            HubError: 400 if it is none.
        """
        self.body.seek(0)
        try:
            return json.loads(self.body.read() or b"null")
        except (ValueError, RecursionError) as error:
            raise bad_request("The body is not JSON") from error

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty body is an empty object."""
        value = self.json()
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise bad_request("The body is no JSON object")
        return value

    def lines(self, limit: int) -> Iterator[bytes]:
        """Yield the lines of the body.

        Raises:
            HubError: 413 for a line of more than ``limit`` bytes.
        """
        self.body.seek(0)
        while line := self.body.readline(limit + 1):
            if len(line) > limit:
                raise HubError(413, f"A line of the body may have {limit} bytes")
            yield line

    def form(self) -> dict[str, list[str]]:
        """Return the body as a form, each key with all its values."""
        self.body.seek(0)
        try:
            return parse_qs(self.body.read().decode(), keep_blank_values=True, max_num_fields=10_000)
        except ValueError as error:
            raise bad_request("The body is not a form") from error

    # ---------------------------------------------------------------------------------------------- who and what

    @property
    def session_cookie(self) -> str:
        """Name of the pages' cookie; cookies know no ports, so that the port is part of it."""
        return session_cookie(self.base)

    def has_page_session(self) -> bool:
        """Tell whether the browser sent the session's cookie, rather than being about to get one."""
        return self.request.cookies.get(self.session_cookie) == self.session

    @property
    def repo_id(self) -> str:
        """``namespace/name`` of the path."""
        return f"{self['ns']}/{self['name']}"

    @property
    def kind(self) -> str:
        """``models`` or ``datasets``; pages of models carry no kind in their path."""
        return self.parameters.get("kind", "models")

    def writer(self) -> User:
        """Return the bearer of a write token.

        Raises:
            HubError: 401 without a token, 403 with one that only reads.
        """
        if self.user is None:
            raise HubError(401, "A write to the embedded Hub needs a token; its token file names one")
        if self.user.role != "write":
            raise HubError(403, "This token may only read")
        if self.user.only and not self._is_only(self.user.only):
            raise HubError(403, f"This token is good for one repository only, which is {self.user.only}")
        return self.user

    def _is_only(self, only: str) -> bool:
        """Tell whether the path is about the one repository that a token is good for."""
        return {"ns", "name"} <= self.parameters.keys() and f"{self.kind}/{self.repo_id}".casefold() == only.casefold()

    def is_member(self, repository: Repository | Listed) -> bool:
        """Tell whether the caller may see and change a repository as its owner may, settings apart."""
        if self.user is not None and self.user.only:
            return self.user.only == f"{repository.kind}/{repository.repo_id}"
        return self.store.is_member(self.user, repository.namespace)

    def when(self) -> datetime:
        """Return the date of this write: now, or what the extension header ``X-Commit-Date`` says."""
        text = self.header("X-Commit-Date")
        return clock.parse(text).replace(microsecond=0) if text else self.store.clock.now()

    def repository(self) -> Repository:
        """Return the repository of the path if the caller may see it.

        Raises:
            HubError: 404 RepoNotFound otherwise.
        """
        repository = self.store.repository(self.kind, self.repo_id)
        if repository.settings.get("private") and not self.is_member(repository):
            raise repo_not_found(repository.web_path)
        return repository

    def readable(self) -> Repository:
        """Return the repository of the path if the caller may download its files.

        Raises:
            HubError: 404 RepoNotFound, or 401 or 403 GatedRepo.
        """
        repository = self.repository()
        member = self.is_member(repository)
        if repository.settings.get("gated") and not member and not access.is_granted(repository, self.user):
            status = 401 if self.user is None else 403
            raise HubError(status, f"Access to {repository.web_path} is restricted", code="GatedRepo")
        return repository

    def writable(self) -> tuple[Repository, User]:
        """Return the repository of the path and the user if he may change it.

        Raises:
            HubError: 401, 403 or 404.
        """
        user = self.writer()
        repository = self.repository()
        if not self.is_member(repository):
            raise HubError(403, f"{user.name} has no write access to {repository.web_path}")
        return repository, user

    def owned(self) -> Repository:
        """Return the repository of the path if the caller may change its settings.

        Raises:
            HubError: 401, 403 or 404.
        """
        repository, user = self.writable()
        if user.only:
            raise HubError(403, "A token that is good for one repository changes no settings")
        return repository


def session_cookie(base: str) -> str:
    """Return the name of the pages' cookie for an address of this Hub."""
    return f"embedded_hub_{base.rpartition(':')[2]}"


# ------------------------------------------------------------------------------------------------------ routes


@dataclass(frozen=True)
class Route:
    """What answers one method of one kind of path.

    Attributes:
        method: HTTP method; GET stands for HEAD too.
        pattern: The path, with ``{name}`` for one segment, ``{rev}`` for a revision, ``{path*}`` for the rest.
        handler: What answers.
        limit: Largest body in bytes; None leaves the body to the handler, which is then a coroutine.
        own_token: The handler reads the Authorization header itself; it holds no user's token.
    """

    method: str
    pattern: str
    handler: Handler
    limit: int | None = SMALL_BODY
    own_token: bool = False

    def compiled(self) -> re.Pattern[str]:
        """Return the regular expression for the undecoded path."""
        parts = []
        for literal, name in re.findall(r"([^{]*)(?:\{([a-z*]+)\})?", self.pattern):
            parts.append(re.escape(literal))
            if name == "rev":
                parts.append(f"(?P<rev>{_REVISION})")
            elif name == "kind":
                parts.append("(?P<kind>models|datasets)")
            elif name.endswith("*"):
                parts.append(f"(?P<{name[:-1]}>.*)")
            elif name:
                parts.append(f"(?P<{name}>[^/]+)")
        return re.compile("".join(parts))


class Router:
    """Finds the route of a request by its undecoded path, so that ``refs%2Fpr%2F1`` stays one segment."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = [(route, route.compiled()) for route in routes]

    def find(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """Return the route and the decoded variable parts.

        Raises:
            HubError: 404 if no path fits, 405 if the method does not.
        """
        wanted = "GET" if method == "HEAD" else method
        allowed = []
        for route, pattern in self._routes:
            match = pattern.fullmatch(raw_path)
            if match and route.method == wanted:
                return route, {name: unquote(value, errors="strict") for name, value in match.groupdict().items()}
            if match:
                allowed.append(route.method)
        if allowed:
            raise HubError(405, "Method not allowed", headers={"Allow": ", ".join(sorted(set(allowed)))})
        raise HubError(404, "The embedded Hub has nothing at this address")


async def read_body(request: Request, limit: int) -> IO[bytes]:
    """Return the body of a request in memory, or in a temporary file if it is large.

    Raises:
        HubError: 413 if it is larger than ``limit`` bytes.
    """
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > limit:
        raise HubError(413, f"The body may have {limit} bytes")
    body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  (closed by the caller)
    received = 0
    async for piece in request.stream():
        received += len(piece)
        if received > limit:
            body.close()
            raise HubError(413, f"The body may have {limit} bytes")
        body.write(piece)
    body.seek(0)
    return body


async def stream_body(call: Call) -> AsyncIterator[bytes]:
    """Yield the body of a streaming route as it arrives.

    Raises:
        HubError: 400 if the client goes away in the middle.
    """
    try:
        async for piece in call.request.stream():
            yield piece
    except ClientDisconnect as error:
        raise bad_request("The client went away") from error


async def answer(route: Route, call: Call) -> Response:
    """Run the handler of a route, in a thread unless it is a coroutine."""
    if inspect.iscoroutinefunction(route.handler):
        return await route.handler(call)  # type: ignore[no-any-return]
    return await run_in_threadpool(route.handler, call)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ answers


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON."""
    return JSONResponse(value, status, headers)


def error_answer(error: HubError) -> Response:
    """Return a refusal in the form that the client reads: headers and JSON body."""
    message = " ".join(error.message.split())
    headers = {"X-Error-Message": quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~"), **error.headers}
    if error.code:
        headers["X-Error-Code"] = error.code
    return JSONResponse({"error": message, **error.extra}, error.status, headers)


def next_link(call: Call, changes: dict[str, str]) -> dict[str, str]:
    """Return the Link header for the next page: this request with some keys of its query changed."""
    pairs = [(key, value) for key, values in call.query.items() if key not in changes for value in values]
    path = call.request.scope["raw_path"].decode("ascii")
    return {"Link": f'<{call.base}{path}?{urlencode([*pairs, *changes.items()])}>; rel="next"'}


def range_of(header: str, size: int) -> tuple[int, int] | None:
    """Return first byte and length that a Range header asks for, or None for the whole.

    Only single ranges are understood; others are answered with the whole, as RFC 9110 allows.

    Raises:
        HubError: 416 if the range lies outside.
    """
    match = re.fullmatch(r"bytes=([0-9]*)-([0-9]*)", header.replace(" ", ""))
    if not match or match[1] == match[2] == "":
        return None
    if match[1] == "":
        length = min(int(match[2]), size)
        first, last = size - length, size - 1
    else:
        first = int(match[1])
        last = min(int(match[2]), size - 1) if match[2] else size - 1
        if match[2] and int(match[2]) < first:
            return None
    if first >= size or last < first:
        raise HubError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return first, last - first + 1


def content_answer(call: Call, content: bytes | Path, size: int, headers: dict[str, str]) -> Response:
    """Return a file or a part of it.

    Args:
        call: The request; its Range and If-None-Match are honoured.
        content: The bytes, or a file that holds them.
        size: Their number.
        headers: Must hold ETag.
    """
    headers = {**headers, "Accept-Ranges": "bytes"}
    if call.header("If-None-Match") and headers["ETag"] in call.header("If-None-Match"):
        return Response(status_code=304, headers=headers)
    wanted = range_of(call.header("Range"), size)
    if call.header("If-Range") not in ("", headers["ETag"]):
        wanted = None
    first, length = wanted or (0, size)
    headers["Content-Length"] = str(length)
    if wanted:
        headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{size}"
    status = 206 if wanted else 200
    if call.method == "HEAD":
        return Response(status_code=status, headers=headers)
    if isinstance(content, bytes):
        return Response(content[first : first + length], status, headers)
    return StreamingResponse(_pieces(content, first, length), status, headers)


def _pieces(path: Path, first: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(first)
        while length > 0:
            piece = file.read(min(_PIECE, length))
            if not piece:
                raise OSError(f"{path} became shorter while it was sent")
            length -= len(piece)
            yield piece
