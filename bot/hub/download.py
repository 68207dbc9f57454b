"""Files over HTTP: streamed, resumed, checked, and in place only when they are whole.

The client library checks nothing but the length of what it downloads, and resumes nothing across processes; the bot
publishes figures about these bytes, so it does both.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.canonical import CHUNK, chunks
from bot.errors import HubError, UpstreamError
from bot.hub.library import disk_full, library
from bot.hub.retry import Policy

OnBytes = Callable[[int], None]


@dataclass(frozen=True)
class Expected:
    """What is known of a file before it is there. Empty strings and None stand for what is not known.

    Attributes:
        bytes: Its size.
        sha256: Of its content.
        blob: sha1 of its content as a git blob.
        largest: Give up beyond this many bytes.
    """

    bytes: int | None = None
    sha256: str = ""
    blob: str = ""
    largest: int | None = None


class Mismatch(HubError):
    """The bytes that came are not the bytes that were promised.

    Attributes:
        found: sha256 of what came.
        found_bytes: Its size.
    """

    found: str = ""
    found_bytes: int = 0


def git_blob_sha1(path: Path) -> str:
    """The id that git gives to a file's content."""
    state = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    for piece in chunks(path):
        state.update(piece)
    return state.hexdigest()


def read_url(url: str, headers: Mapping[str, str], largest: int) -> bytes:
    """The bytes at an address, whole in memory.

    Raises:
        HubError: They are more than `largest`.
    """
    import httpx2

    last: Exception | None = None
    for _ in range(3):
        taken = bytearray()
        try:
            with _Opened(url, headers) as response:
                for piece in response.iter_raw():
                    taken += piece
                    if len(taken) > largest:
                        raise HubError(f"is larger than the {largest} bytes that such a file may have.", where=url)
            return bytes(taken)
        except httpx2.TransportError as error:
            last = error
    raise HubError(f"the answer broke off: {last}", where=url)


def download(
    url: str,
    headers: Mapping[str, str],
    target: Path,
    expected: Expected,
    policy: Policy,
    on_bytes: OnBytes | None = None,
    *,
    follow: bool = True,
) -> str:
    """Brings a file to `target`, which exists only once it is whole and as expected.

    What came before a break stays beside it as `.NAME.part`, and the next attempt, in this process or a later one,
    asks only for the rest.

    Args:
        url: Where it is.
        headers: Of the request.
        target: Where it goes.
        expected: What it must be.
        policy: Retries and time-outs.
        on_bytes: Called with the number of bytes that are there, now and then.
        follow: Follow redirects.

    Returns:
        The sha256 of the content.

    Raises:
        Mismatch: It is not what was expected, twice.
        HubError: It could not be had.
        StepError: The disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    what = _Wanted(url, headers, expected, on_bytes, follow)
    part = target.with_name(f".{target.name}.part")
    try:
        _fill(what, part, policy)
        digest = _checked(part, expected)
        if isinstance(digest, Mismatch):
            # Perhaps the beginning was from another attempt, or a byte fell over on the way: once more, from the start.
            part.unlink()
            _fill(what, part, policy)
            digest = _checked(part, expected)
        if isinstance(digest, Mismatch):
            part.unlink()
            digest.where = str(url)
            raise digest
        part.replace(target)
        return digest
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full(target.parent) from error
        raise


@dataclass(frozen=True)
class _Wanted:
    """One download: the arguments of `download` that belong together."""

    url: str
    headers: Mapping[str, str]
    expected: Expected
    on_bytes: OnBytes | None
    follow: bool


def _fill(what: _Wanted, part: Path, policy: Policy) -> None:
    """Appends to the partial file until it is complete. An attempt that moved forward does not count as a failure."""
    import httpx2

    failures = 0
    while True:
        before = _size(part)
        if what.expected.bytes is not None and before == what.expected.bytes:
            part.touch()  # an empty file is complete before it begins
            return
        try:
            _append(what, part, before)
            return
        except httpx2.TransportError as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= policy.attempts:
                raise HubError(
                    f"the download broke off {failures} times at the same place: {error}",
                    where=what.url,
                    remedy="Run the same command again: what came so far is kept.",
                ) from error
            policy.pause(policy.wait_after(failures), f"{what.url}: the download broke off")


def _append(what: _Wanted, part: Path, begin: int) -> None:
    size = what.expected.bytes
    if size is not None and begin > size:
        part.unlink()
        begin = 0
    asked = dict(what.headers) | ({"Range": f"bytes={begin}-"} if begin else {})
    with _Opened(what.url, asked, allow=(416,), follow=what.follow) as response:
        resumed = response.status_code == 206 and _starts_at(response.headers.get("content-range", "")) == begin
        if response.status_code in (206, 416) and not resumed:
            part.unlink(missing_ok=True)
            raise _broken("the server resumed at the wrong place")
        with part.open("ab" if resumed else "wb") as stream:
            _copy(response, stream, begin if resumed else 0, what.expected, what.on_bytes)
            stream.flush()
            os.fsync(stream.fileno())
    if size is not None and part.stat().st_size < size:
        raise _broken("the file ended too early")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _copy(response: Any, stream: Any, done: int, expected: Expected, on_bytes: OnBytes | None) -> None:
    limit = expected.bytes if expected.bytes is not None else expected.largest
    for piece in response.iter_raw(CHUNK):
        done += len(piece)
        if limit is not None and done > limit:
            raise HubError(f"sends more than the {limit} bytes that the file has.", where=str(response.url))
        stream.write(piece)
        if on_bytes:
            on_bytes(done)


def _checked(part: Path, expected: Expected) -> str | Mismatch:
    """The sha256 of a complete file, or in what it differs from what was expected."""
    state, size = hashlib.sha256(), part.stat().st_size
    blob = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    for piece in chunks(part):
        state.update(piece)
        if expected.blob:
            blob.update(piece)
    digest, problem = state.hexdigest(), ""
    if expected.bytes is not None and size != expected.bytes:
        problem = f"has {size} bytes where {expected.bytes} were promised."
    elif expected.sha256 and digest != expected.sha256:
        problem = f"has the sha256 {digest} where {expected.sha256} was promised."
    elif expected.blob and blob.hexdigest() != expected.blob:
        problem = f"has the git id {blob.hexdigest()} where {expected.blob} was promised."
    if not problem:
        return digest
    mismatch = Mismatch(problem)
    mismatch.found, mismatch.found_bytes = digest, size
    return mismatch


class _Opened:
    """An answer whose body is read piece by piece, through the library's session; errors are the library's own."""

    def __init__(
        self, url: str, headers: Mapping[str, str], allow: tuple[int, ...] = (), *, follow: bool = True
    ) -> None:
        self._url, self._headers, self._allow, self._follow = url, headers, allow, follow

    def __enter__(self) -> Any:
        from bot.hub.session import AGENT

        utils = library().utils
        # Compressed on the way, the length and the place to resume at would mean nothing.
        headers = {"user-agent": AGENT, **self._headers, "Accept-Encoding": "identity"}
        self._context = utils.get_session().stream("GET", self._url, headers=headers, follow_redirects=self._follow)
        response = self._context.__enter__()
        try:
            if response.status_code not in self._allow:
                if response.status_code >= 400:
                    response.read()
                utils.hf_raise_for_status(response)
                if response.status_code >= 300:
                    raise HubError(f"answers with HTTP {response.status_code} in place of the file.", where=self._url)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise UpstreamError("is sent compressed although it was asked for as it is.", where=self._url)
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise
        return response

    def __exit__(self, *details: Any) -> Any:
        return self._context.__exit__(*details)


def _starts_at(content_range: str) -> int:
    """The first byte that a `Content-Range` header names; -1 if it names none."""
    head = content_range.removeprefix("bytes").strip().partition("-")[0]
    return int(head) if head.isascii() and head.isdigit() else -1


def _broken(why: str) -> Exception:
    import httpx2

    return httpx2.RemoteProtocolError(why)
