"""Downloads through Xet: which parts of which xorbs make a file, and the xorbs themselves.

Formats: https://huggingface.co/docs/xet/api and https://huggingface.co/docs/xet/download-protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from bot.localhub.errors import HubError
from bot.localhub.repository import Repository
from bot.localhub.web import Call, content_answer, json_answer, range_of
from bot.localhub.xet import (
    CHUNK_HEAD,
    TOKEN_LIFE,
    Chunk,
    FileInfo,
    Xorbs,
    bearer_repository,
    described,
    give_token,
    kept_xorbs,
    xet_hash,
)

# ------------------------------------------------------------------------------------------------------ what to fetch


@dataclass(frozen=True)
class Run:
    """A run of chunks of one xorb.

    Attributes:
        first: Its first chunk.
        end: The chunk after its last.
        start: Offset in bytes of its packed data in the xorb.
        size: Bytes of its packed data, heads of chunks included.
    """

    first: int
    end: int
    start: int
    size: int

    @property
    def chunks(self) -> dict[str, int]:
        """Its chunks as the API writes them, the end left out."""
        return {"start": self.first, "end": self.end}

    @property
    def bytes(self) -> dict[str, int]:
        """Its packed bytes as the API writes them, the last included."""
        return {"start": self.start, "end": self.start + self.size - 1}


@dataclass(frozen=True)
class Part:
    """What one run of a xorb gives to a file: the xorb's name, the run, and the plain bytes."""

    xorb: str
    run: Run
    length: int


def parts(xorbs: Xorbs, info: FileInfo, first: int, last: int) -> tuple[int, list[Part]]:
    """Return what the bytes of a file from ``first`` to ``last`` are put together from.

    Returns:
        How many bytes at the beginning of the first part come before ``first``, and the parts in order.
    """
    found: list[Part] = []
    skipped = position = 0
    for term in info.terms:
        inside: list[tuple[int, Chunk]] = []
        for number, chunk in enumerate(xorbs.chunks(term), term.first):
            if position <= last and position + chunk.length > first:
                if not found and not inside:
                    skipped = first - position
                inside.append((number, chunk))
            position += chunk.length
        if inside:
            (low, head), (high, tail) = inside[0], inside[-1]
            start = head.offset - CHUNK_HEAD
            run = Run(low, high + 1, start, tail.offset + tail.packed - start)
            found.append(Part(term.xorb, run, sum(chunk.length for _, chunk in inside)))
    return skipped, found


def runs(needed: list[Part]) -> dict[str, list[Run]]:
    """Return for each xorb the runs to fetch; those that overlap are joined: clients look for one that holds a term."""
    found: dict[str, list[Run]] = {}
    for part in sorted(needed, key=lambda part: (part.xorb, part.run.first, part.run.end)):
        run, known = part.run, found.setdefault(part.xorb, [])
        if known and run.first < known[-1].end:
            last = known.pop()
            end, stop = max(last.end, run.end), max(last.start + last.size, run.start + run.size)
            run = Run(last.first, end, last.start, stop - last.start)
        known.append(run)
    return found


# ------------------------------------------------------------------------------------------------------ the API


def read_token(call: Call) -> Response:
    """``GET .../xet-read-token/{rev}``: where to get chunks from, and the token that is good there for an hour."""
    repository = call.readable()
    repository.resolve(call["rev"])
    return give_token(call, repository, "read")


def offered_hash(call: Call, repository: Repository, sha256: str) -> str | None:
    """Return the Xet hash of a large file if this Hub offers it for download through Xet."""
    return xet_hash(repository, sha256) if call.store.xet_downloads else None


def download_headers(call: Call, repository: Repository, commit: str, sha256: str) -> dict[str, str]:
    """Return the headers that tell a client that it may download a large file through Xet; none if it may not."""
    name = offered_hash(call, repository, sha256)
    if name is None:
        return {}
    link = f"{call.base}/api/{repository.kind}/{repository.repo_id}/xet-read-token/{commit}"
    return {"X-Xet-Hash": name, "Link": f'<{link}>; rel="xet-auth"'}


def reconstruction(call: Call) -> Response:
    """``GET /v1/reconstructions/{hash}``: from which chunks a file, or a range of it, is put together."""
    return _answer(call, "fetch_info", lambda url, run: {"range": run.chunks, "url": url, "url_range": run.bytes})


def reconstruction_by_link(call: Call) -> Response:
    """``GET /v2/reconstructions/{hash}``: as version 1, in another form."""
    return _answer(call, "xorbs", lambda url, run: {"url": url, "ranges": [{"chunks": run.chunks, "bytes": run.bytes}]})


def _answer(call: Call, key: str, source: Callable[[str, Run], dict[str, Any]]) -> Response:
    repository = bearer_repository(call, "read", "write")
    info = described(repository, call["hash"])
    if info is None:
        raise HubError(404, "The file is not here")
    first, length = range_of(call.header("Range"), info.size) or (0, info.size)
    skipped, needed = parts(kept_xorbs(call), info, first, first + length - 1)
    terms = [{"hash": part.xorb, "unpacked_length": part.length, "range": part.run.chunks} for part in needed]
    found = {
        xorb: [source(_xorb_link(call, xorb), run) for run in xorb_runs] for xorb, xorb_runs in runs(needed).items()
    }
    return json_answer({"offset_into_first_range": skipped, "terms": terms, key: found})


def _xorb_link(call: Call, xorb: str) -> str:
    signature = call.signer.sign("xorb", xorb, life=TOKEN_LIFE)
    return f"{call.base}/cas/{call['instance']}/xorbs/{xorb}?signature={signature}"


def get_xorb(call: Call) -> Response:
    """``GET /xorbs/{hash}`` by a signed link: packed chunks, of which a client asks for a range."""
    call.signer.check(call.option("signature"), "xorb", call["hash"])
    path = kept_xorbs(call).path(call["hash"])
    headers = {"ETag": f'"{call["hash"]}"', "Content-Type": "application/octet-stream"}
    return content_answer(call, path, path.stat().st_size, headers)
