"""The HTTP client that the Hub's library is made to use: no call without a time-out, no token to a stranger.

The library shares one client in a process. This one adds four things to it, in the one place that every call passes
through: time-outs where the library sets none; retries by our own policy, of the calls that may be repeated; a limit to
the size and the duration of an answer; and a guard that lets a token go to the origin that it was given for and to no
other, whatever a redirect or a link in an answer says.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2

from bot.errors import HubError
from bot.hub.retry import TRANSIENT, HubUnavailable, Policy
from bot.hub.tokens import normal_endpoint

AGENT = "hub-publishing-bot"
"""Stands in the user agent of every request that the bot makes."""

LARGEST_ANSWER = 256 * 1024 * 1024
"""Bytes. No answer of the API comes near it; downloads are not answers in this sense."""

_REPEATABLE_POSTS = re.compile(r"/(paths-info|preupload)/[^/]+$|/api/validate-yaml$|/info/lfs/objects/batch$")
_SLOW = re.compile(r"/commit/[^/]+$")
_BUSY = "another conflicting operation is in progress"

_lock = threading.Lock()
_tokens: dict[str, set[str]] = {}
_policies: dict[str, Policy] = {}
_observers: dict[str, Observer] = {}


class Observer(Protocol):
    """Sees every request to one Hub, those behind a redirect and every repetition included."""

    def before(self, request: httpx2.Request) -> None:
        """A request is about to be sent; it goes out when this returns."""

    def after(self, response: httpx2.Response) -> None:
        """The head of an answer has come."""


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, in the spelling in which they are compared."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return f"{parts.scheme}://{host}:{port}"


def admit(endpoint: str, token: str | None, policy: Policy) -> None:
    """Makes a Hub known to this process: its token may go to its origin from now on, and its policy holds for it."""
    origin = origin_of(normal_endpoint(endpoint))
    with _lock:
        _policies[origin] = policy
        if token:
            _tokens.setdefault(origin, set()).add(token)


def observe(endpoint: str, observer: Observer | None) -> None:
    """Lets somebody see every request to a Hub from now on; None ends it."""
    origin = origin_of(normal_endpoint(endpoint))
    with _lock:
        if observer is None:
            _observers.pop(origin, None)
        else:
            _observers[origin] = observer


def _tell_before(request: httpx2.Request) -> None:
    if (observer := _observers.get(origin_of(str(request.url)))) is not None:
        observer.before(request)


def _tell_after(response: httpx2.Response) -> None:
    if (observer := _observers.get(origin_of(str(response.request.url)))) is not None:
        observer.after(response)


def is_ours(request: httpx2.Request) -> bool:
    """Whether a request is the bot's. Something else in the same process may use the library for its own ends."""
    return AGENT in request.headers.get("user-agent", "")


def guard(request: httpx2.Request) -> None:
    """Stops a request that would carry a token to an origin that the token was not given for.

    That holds for every token that the bot was given, whoever sends it, and for every token that the bot would send.

    Raises:
        HubError: It would. The token itself is not part of the message.
    """
    header = request.headers.get("authorization")
    if header is None:
        return
    origin = origin_of(str(request.url))
    kind, _, token = header.partition(" ")
    if kind == "Bearer" and token in _tokens.get(origin, ()):
        return
    if is_ours(request) or any(token in tokens for tokens in _tokens.values()):
        raise HubError(
            "a request was about to carry a token to an address that the token was not given for; it was not sent.",
            where=origin,
            remedy="A Hub answered with a redirect or a link to that address. Check the endpoint that you gave.",
        )


def refuse_redirected_write(response: httpx2.Response) -> None:
    """Stops a write that an answer sends on to another origin: what was to be published would go to a stranger.

    Raises:
        HubError: It does.
    """
    request = response.request
    if request.method in ("GET", "HEAD") or not response.has_redirect_location:
        return
    here, there = request.url, request.url.join(response.headers["location"])
    if origin_of(str(here)) != origin_of(str(there)):
        raise HubError(
            f"sends a write on to {origin_of(str(there))}; it was not followed.",
            where=origin_of(str(here)),
            remedy="Check the endpoint that you gave.",
        )


class Client(httpx2.Client):
    """See the module's description."""

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Sends a request, again and again if it may be repeated and fails for a passing reason.

        Raises:
            HubUnavailable: A repeatable request failed to the end.
            httpx2.TransportError: A request that may not be repeated got no answer.
        """
        policy = _policies.get(origin_of(str(request.url)), _DEFAULT)
        _fill_timeouts(request, policy)
        attempt = 1
        while True:
            failure: str
            status, headers = None, {}
            try:
                response = self._once(request, policy, stream=stream, **options)
            except httpx2.TransportError as error:
                if not _repeatable(request) or isinstance(error, httpx2.UnsupportedProtocol):
                    raise
                failure = _describe(error)
            else:
                status, headers = response.status_code, dict(response.headers)
                if not _retried(request, response):
                    _refuse_long_wait(request, response, policy)
                    return response
                failure = f"HTTP {status}"
                response.close()
            wait = policy.wait_after(attempt, status, headers)
            if attempt >= policy.attempts or wait > policy.longest_asked:
                raise _unavailable(request, failure, attempt, wait, policy)
            policy.pause(wait, f"{origin_of(str(request.url))}: {failure}")
            attempt += 1

    def _once(self, request: httpx2.Request, policy: Policy, *, stream: bool, **options: Any) -> httpx2.Response:
        response = super().send(request, stream=True, **options)
        if stream:
            response.stream = _Bounded(response.stream, policy, largest=None)
            return response
        response.stream = _Bounded(response.stream, policy, largest=LARGEST_ANSWER)
        try:
            response.read()
        except BaseException:
            response.close()
            raise
        return response


class _Bounded(httpx2.SyncByteStream):
    """The body of an answer, read under a limit of time (and of size, unless it is a download)."""

    def __init__(self, inner: Any, policy: Policy, *, largest: int | None) -> None:
        self._inner, self._policy, self._largest = inner, policy, largest

    def __iter__(self) -> Iterator[bytes]:
        clock, policy = self._policy.clock, self._policy
        begin, mark, moved, total = clock(), clock(), 0, 0
        for piece in self._inner:
            total, moved, now = total + len(piece), moved + len(piece), clock()
            if self._largest is not None:
                if total > self._largest:
                    raise HubError(f"an answer is larger than {self._largest} bytes.")
                if now - begin > policy.whole_answer:
                    raise httpx2.ReadTimeout(f"the answer was not complete after {policy.whole_answer:.0f} s")
            elif moved >= policy.stall_bytes:
                mark, moved = now, 0
            elif now - mark > policy.stall:
                raise httpx2.ReadTimeout(f"fewer than {policy.stall_bytes} bytes came in {policy.stall:.0f} s")
            yield piece

    def close(self) -> None:
        self._inner.close()


_DEFAULT = Policy()


def _fill_timeouts(request: httpx2.Request, policy: Policy) -> None:
    """Replaces the absent time-outs of a request; those that the library did set stay."""
    answer = policy.commit_answer if _SLOW.search(request.url.path) else policy.answer
    wanted = {"connect": policy.connect, "read": answer, "write": answer, "pool": answer}
    given = request.extensions.get("timeout") or {}
    merged = {name: given.get(name) if given.get(name) is not None else value for name, value in wanted.items()}
    request.extensions = {**request.extensions, "timeout": merged}


def _repeatable(request: httpx2.Request) -> bool:
    """Whether sending a request twice does no more than sending it once, and its body can be sent again."""
    if not is_ours(request):
        return False
    if request.method in ("GET", "HEAD"):
        return True
    return (
        request.method == "POST"
        and isinstance(request.stream, httpx2.ByteStream)
        and bool(_REPEATABLE_POSTS.search(request.url.path))
    )


def _retried(request: httpx2.Request, response: httpx2.Response) -> bool:
    if response.status_code in TRANSIENT:
        return _repeatable(request)
    # The library repeats this one itself, at once and for ever. The Hub says that it did nothing, so it is safe.
    return (
        response.status_code == 409
        and is_ours(request)
        and request.url.path.endswith("/api/repos/create")
        and response.is_closed
        and _BUSY in response.text
    )


def _refuse_long_wait(request: httpx2.Request, response: httpx2.Response, policy: Policy) -> None:
    """Stops the library from waiting, in retries of its own (of uploads), as long as an answer asks it to.

    Raises:
        HubUnavailable: The answer asks for a wait that is longer than the policy allows.
    """
    known = is_ours(request) or origin_of(str(request.url)) in _policies
    if response.status_code not in TRANSIENT or not known:
        return
    wait = policy.asked_wait(response.status_code, response.headers)
    if wait is not None and wait > policy.longest_asked:
        response.close()
        raise _unavailable(request, f"HTTP {response.status_code}", 1, wait, policy)


def _describe(error: httpx2.TransportError) -> str:
    text = str(error).strip() or type(error).__name__
    return f"no answer ({text})"


def _unavailable(request: httpx2.Request, failure: str, attempt: int, wait: float, policy: Policy) -> HubUnavailable:
    tried = "once" if attempt == 1 else f"{attempt} times"
    asked = f"; it asks to wait {wait:.0f} s" if wait > policy.longest_asked else ""
    return HubUnavailable(
        f"{request.method} failed: {failure}, tried {tried}{asked}.",
        where=str(request.url.copy_with(query=None)),
        remedy="Check the network and the address of the Hub, and run the same command again: nothing is done twice.",
    )


def new_client() -> Client:
    """The client, for the library's `set_client_factory`."""
    from huggingface_hub.utils._http import hf_request_event_hook

    direct = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
    return Client(
        event_hooks={
            "request": [hf_request_event_hook, guard, _tell_before],
            "response": [_tell_after, refuse_redirected_write],
        },
        follow_redirects=True,
        timeout=httpx2.Timeout(None),
        mounts=direct,
    )
