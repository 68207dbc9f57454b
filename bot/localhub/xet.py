"""The least that a Xet storage server has to do, so that the stock client moves files without any setting.

A client cuts files into chunks, packs chunks into xorbs, and describes files by the chunks that make them in a shard.
Here xorbs are kept as they come; each file that a shard describes is put together at once, checked against its sha256,
and kept as a large file like any other. Its description is kept too: it tells a client that downloads through Xet from
which parts of which xorbs to put the file together. What came through Git LFS has none, and is downloaded by plain
HTTP. The formats are those of https://huggingface.co/docs/xet (xorb, shard, api).

hf_xet remembers for each storage address what it has sent there. The address therefore carries this Hub's own name,
lest a new Hub at an old address be told to use what it never got.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import secrets
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from starlette.responses import Response

from bot.localhub import durable, lfs
from bot.localhub.errors import HubError, bad_request
from bot.localhub.repository import Repository
from bot.localhub.web import Call, json_answer

XORB_LIMIT = 96 * 1024 * 1024
SHARD_LIMIT = 256 * 1024 * 1024
TOKEN_LIFE = 3600
CHUNK_HEAD = 8
_MAXIMUM_CHUNK = 16 * 1024 * 1024
_HEADER = struct.Struct("<32sQQ")
_FILE = struct.Struct("<32sII8x")
_TERM = struct.Struct("<32sIIII")
_SHA = struct.Struct("<32s16x")
_BOOKEND = b"\xff" * 32
_WITH_VERIFICATION, _WITH_METADATA = 1 << 31, 1 << 30
_HEADER_VERSION = 2
_FIXED_MODE, _FREE_MODE = 0o444, 0o644
_xorb_lock = threading.Lock()


def hash_text(raw: bytes) -> str:
    """Return a Xet hash as text: each 8-byte word is stored in little-endian order."""
    return "".join(raw[start : start + 8][::-1].hex() for start in range(0, 32, 8))


# ------------------------------------------------------------------------------------------------------ xorbs


@dataclass(frozen=True)
class Chunk:
    """Where a chunk lies in a xorb: offset and length in bytes of its packed data, its packing, its plain length."""

    offset: int
    packed: int
    scheme: int
    length: int


def read_chunks(file: IO[bytes]) -> list[Chunk]:
    """Return the chunks of a xorb.

    Raises:
        HubError: 400 if the xorb is malformed.
    """
    size = file.seek(0, os.SEEK_END)
    chunks: list[Chunk] = []
    position = 0
    while position + CHUNK_HEAD <= size:
        file.seek(position)
        head = file.read(CHUNK_HEAD)
        if chunks and head.startswith(b"XETBLOB"):
            break
        packed, length = int.from_bytes(head[1:4], "little"), int.from_bytes(head[5:8], "little")
        if head[0] != 0 or head[4] > 2 or not 0 < length <= _MAXIMUM_CHUNK or position + CHUNK_HEAD + packed > size:
            raise bad_request("The xorb is malformed")
        chunks.append(Chunk(position + CHUNK_HEAD, packed, head[4], length))
        position += CHUNK_HEAD + packed
    if not chunks:
        raise bad_request("The xorb is empty")
    return chunks


@functools.lru_cache(maxsize=256)
def _known_chunks(path: str, modified: int) -> tuple[Chunk, ...]:
    with Path(path).open("rb") as file:
        return tuple(read_chunks(file))


def unpack(data: bytes, scheme: int, length: int) -> bytes:
    """Return a chunk's plain bytes.

    Args:
        data: The packed bytes.
        scheme: 0 as it is, 1 LZ4 frame, 2 bytes grouped by their place in four-byte words, then LZ4 frame.
        length: The plain length in bytes.

    Raises:
        HubError: 400 if the data does not give that many bytes.
    """
    if scheme == 0:
        plain = data
    else:
        import lz4.frame  # type: ignore[import-untyped]

        decompressor = lz4.frame.LZ4FrameDecompressor()
        try:
            plain = decompressor.decompress(data, max_length=length + 1)
        except RuntimeError as error:
            raise bad_request("A chunk is not LZ4") from error
        if scheme == 2:
            plain = ungroup(plain)
    if len(plain) != length:
        raise bad_request("A chunk has another length than its head says")
    return plain


def ungroup(grouped: bytes) -> bytes:
    """Undo the grouping of bytes by their place in four-byte words; the first groups hold what is over."""
    plain = bytearray(len(grouped))
    start = 0
    for place in range(4):
        count = (len(grouped) - place + 3) // 4
        plain[place::4] = grouped[start : start + count]
        start += count
    return bytes(plain)


# ------------------------------------------------------------------------------------------------------ shards


@dataclass(frozen=True)
class Term:
    """A run of chunks of one xorb: its name, first chunk, chunk after the last, and plain bytes."""

    xorb: str
    first: int
    end: int
    length: int


@dataclass(frozen=True)
class FileInfo:
    """A file of a shard: its Xet hash, its sha256, and the terms that make it."""

    name: str
    sha256: str
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return sum(term.length for term in self.terms)


def read_shard(content: bytes) -> list[FileInfo]:
    """Return the files that a shard describes.

    Raises:
        HubError: 400 if it is malformed, or a file carries no sha256.
    """
    try:
        return list(_read_files(content))
    except struct.error as error:
        raise bad_request("The shard ends too early") from error


def _read_files(content: bytes) -> Iterator[FileInfo]:
    _, version, _ = _HEADER.unpack_from(content, 0)
    if version != _HEADER_VERSION:
        raise bad_request(f"Shards of version {version} are unknown here")
    position = _HEADER.size
    while True:
        name, flags, count = _FILE.unpack_from(content, position)
        position += _FILE.size
        if name == _BOOKEND:
            return
        terms = []
        for _ in range(count):
            xorb, _, length, first, end = _TERM.unpack_from(content, position)
            terms.append(Term(hash_text(xorb), first, end, length))
            position += _TERM.size
        if flags & _WITH_VERIFICATION:
            position += _TERM.size * count
        if not flags & _WITH_METADATA:
            raise bad_request("A file of the shard has no sha256")
        (sha,) = _SHA.unpack_from(content, position)
        position += _SHA.size
        yield FileInfo(hash_text(name), hash_text(sha), tuple(terms))


def _is_fixed(path: Path) -> bool:
    return not path.stat().st_mode & 0o200


class Xorbs:
    """The xorbs that a Hub keeps.

    Args:
        folder: Where.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        """Return where a xorb is, or would be."""
        if not re.fullmatch(r"[0-9a-f]{64}", name):
            raise bad_request("Not the hash of a xorb")
        return self._folder / name[:2] / name

    def put(self, name: str, content: IO[bytes]) -> bool:
        """Keep a xorb, and return whether it was new.

        Its name, a BLAKE3 hash, is not checked. What was there under it is replaced, unless a file whose sha256 is
        right was put together from it: downloads rely on that one, whoever sends another.

        Raises:
            HubError: 400 if it is malformed.
        """
        read_chunks(content)
        path = self.path(name)
        with _xorb_lock:
            new = not path.exists()
            if new or not _is_fixed(path):
                content.seek(0)
                durable.write_stream(path, content)
        return new

    def fix(self, names: Iterable[str]) -> list[Path]:
        """Let these xorbs be replaced no more, and return those of which that is new."""
        with _xorb_lock:
            found = [path for path in map(self.path, names) if path.exists() and not _is_fixed(path)]
            for path in found:
                path.chmod(_FIXED_MODE)
        return found

    def chunks(self, term: Term) -> tuple[Chunk, ...]:
        """Return the chunks of a term.

        Raises:
            HubError: 400 if the xorb is unknown or shorter.
        """
        path = self.path(term.xorb)
        try:
            chunks = _known_chunks(str(path), path.stat().st_mtime_ns)
        except FileNotFoundError:
            raise bad_request(f"The xorb {term.xorb} was never sent") from None
        if not term.first <= term.end <= len(chunks):
            raise bad_request(f"The xorb {term.xorb} has {len(chunks)} chunks")
        return chunks[term.first : term.end]

    def pieces(self, term: Term) -> Iterator[bytes]:
        """Yield the plain chunks of a term.

        Raises:
            HubError: 400 if the xorb is unknown or shorter.
        """
        chunks = self.chunks(term)
        with self.path(term.xorb).open("rb") as file:
            for chunk in chunks:
                file.seek(chunk.offset)
                yield unpack(file.read(chunk.packed), chunk.scheme, chunk.length)

    def rebuild(self, repository: Repository, info: FileInfo) -> None:
        """Put a file together and give it to a repository as a large file.

        Raises:
            HubError: 400 if chunks are missing, or the sha256 is another.
        """
        if lfs.stored_size(repository, info.sha256) is not None:
            return
        receiver = lfs.Receiver(repository, info.sha256, info.size)
        fixed = self.fix({term.xorb for term in info.terms})
        try:
            for term in info.terms:
                for piece in self.pieces(term):
                    receiver.write(piece)
            receiver.finish()
        except BaseException:
            for path in fixed:
                path.chmod(_FREE_MODE)
            raise
        finally:
            receiver.discard()
        remember(repository, info)


# ------------------------------------------------------------------------------------------------------ descriptions
#
# Descriptions are written without waiting for the disk: one that a power cut took only means a plain download.


def _by_sha256(repository: Repository, sha256: str) -> Path:
    return repository.folder / "lfs" / "xet" / "sha256" / sha256[:2] / sha256


def _by_name(repository: Repository, name: str) -> Path:
    return repository.folder / "lfs" / "xet" / "files" / name[:2] / name


def remember(repository: Repository, info: FileInfo) -> None:
    """Keep the description of a file whose content was checked."""
    description = {"sha256": info.sha256, "terms": [dataclasses.astuple(term) for term in info.terms]}
    for path, text in (
        (_by_name(repository, info.name), json.dumps(description)),
        (_by_sha256(repository, info.sha256), info.name),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = repository.folder / "lfs" / "incoming" / secrets.token_hex(8)
        temporary.write_text(text)
        temporary.replace(path)


def described(repository: Repository, name: str) -> FileInfo | None:
    """Return the file of a repository that has this Xet hash, or None."""
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        return None
    try:
        value = json.loads(_by_name(repository, name).read_text())
        return FileInfo(name, str(value["sha256"]), tuple(Term(*term) for term in value["terms"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def xet_hash(repository: Repository, sha256: str) -> str | None:
    """Return the Xet hash of a large file if it can be downloaded through Xet."""
    try:
        name = _by_sha256(repository, sha256).read_text()
    except OSError:
        return None
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None


def share(source: Repository, target: Repository, sha256: str) -> None:
    """Give another repository the description of a file, if there is one."""
    info = described(source, xet_hash(source, sha256) or "")
    if info is not None:
        remember(target, info)


# ------------------------------------------------------------------------------------------------------ the API


def write_token(call: Call) -> Response:
    """``GET .../xet-write-token/{rev}``: where to send chunks, and the token that is good there for an hour."""
    call.writer()
    return give_token(call, call.repository(), "write")


def give_token(call: Call, repository: Repository, scope: str) -> Response:
    """Return a storage token for a repository, good to ``read`` or to ``write`` for an hour, and where to use it."""
    expiry = int(time.time()) + TOKEN_LIFE
    where = f"{scope}:{repository.kind}/{repository.repo_id}"
    token = f"{where}:{call.signer.sign('xet', where, life=TOKEN_LIFE)}"
    url = f"{call.base}/cas/{call.store.instance}"
    headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(expiry)}
    return json_answer({"casUrl": url, "accessToken": token, "exp": expiry}, headers=headers)


def bearer_repository(call: Call, *scopes: str) -> Repository:
    """Return the repository for which the request's storage token was given out.

    Raises:
        HubError: 401 for a token that is not valid, 403 for one that is not for this.
    """
    where, _, signature = call.header("Authorization").removeprefix("Bearer ").rpartition(":")
    try:
        call.signer.check(signature, "xet", where)
    except HubError:
        raise HubError(401, "The storage token is not valid, or not any more") from None
    scope, _, repository = where.partition(":")
    if scope not in (scopes or ("write",)):
        raise HubError(403, f"A storage token to {scope} is not one for this")
    kind, _, repo_id = repository.partition("/")
    return call.store.repository(kind, repo_id)


def kept_xorbs(call: Call) -> Xorbs:
    """Return the xorbs of this Hub.

    Raises:
        HubError: 404 if the address is another Hub's.
    """
    if call["instance"] != call.store.instance:
        raise HubError(404, "This is another Hub")
    return Xorbs(call.store.folder / "xorbs")


def no_chunk(call: Call) -> Response:
    """``GET /v1/chunks/...``: no chunk is known to be here already."""
    bearer_repository(call)
    raise HubError(404, "The chunk is not tracked")


def no_grant(call: Call) -> Response:
    """``POST /v1/xorb-grants/...``: xorbs are posted here, nowhere else."""
    bearer_repository(call)
    raise HubError(404, "There are no grants here")


def put_xorb(call: Call) -> Response:
    """``POST /v1/xorbs/default/{hash}``."""
    bearer_repository(call)
    return json_answer({"was_inserted": kept_xorbs(call).put(call["hash"], call.body)})


def _register(call: Call) -> None:
    repository = bearer_repository(call)
    xorbs = kept_xorbs(call)
    for info in read_shard(call.body.read()):
        xorbs.rebuild(repository, info)


def put_shard(call: Call) -> Response:
    """``POST /v1/shards``."""
    _register(call)
    return json_answer({"result": 1})


def put_shard_streaming(call: Call) -> Response:
    """``POST /v2/shards``: as version 1, answered as one line of newline-delimited JSON."""
    _register(call)
    line: dict[str, Any] = {"type": "result", "result": 1}
    return Response(json.dumps(line) + "\n", media_type="application/x-ndjson")


def telemetry(call: Call) -> Response:
    """``POST /v1/telemetry``: taken and forgotten."""
    return Response(status_code=204)
