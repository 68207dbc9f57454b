"""Large files: the Git LFS batch API, uploads in one or several parts, and their storage.

An upload arrives under ``lfs/incoming``, is hashed as it arrives, and gets its place under its sha256 in one rename.
The links of a batch answer carry no token, as on the Hub; each is signed for one repository, one object and one day.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bot.localhub import durable
from bot.localhub.errors import HubError
from bot.localhub.repository import Repository

SINGLE_PART_LIMIT = 64 * 1024 * 1024
PART_SIZE = 16 * 1024 * 1024
_LIFE = 24 * 3600


def stored_size(repository: Repository, oid: str) -> int | None:
    """Return the size in bytes of a large file that a repository holds, or None."""
    try:
        return repository.large_file(oid).stat().st_size
    except FileNotFoundError:
        return None


class Receiver:
    """Takes one large file, piece by piece.

    Args:
        repository: Where it will be kept.
        oid: The sha256 that it must have.
        size: The size in bytes that it must have.
    """

    def __init__(self, repository: Repository, oid: str, size: int) -> None:
        self._target = repository.large_file(oid)
        self._oid, self._size = oid, size
        folder = repository.folder / "lfs" / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        self._temporary = folder / secrets.token_hex(8)
        self._file: IO[bytes] = self._temporary.open("wb")
        self._hash = hashlib.sha256()
        self._received = 0

    def write(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            HubError: 400 if there is more than was announced.
        """
        self._received += len(piece)
        if self._received > self._size:
            raise HubError(400, f"More than the announced {self._size} bytes")
        self._hash.update(piece)
        self._file.write(piece)

    def finish(self) -> None:
        """Give the file its place.

        Raises:
            HubError: 400 if size or sha256 are not those announced.
        """
        if self._received != self._size or self._hash.hexdigest() != self._oid:
            self.discard()
            raise HubError(400, f"The content has sha256 {self._hash.hexdigest()} and {self._received} bytes")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._temporary.rename(self._target)
        durable.sync_folder(self._target.parent)

    def discard(self) -> None:
        """Forget what came; harmless after the end."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def share(source: Repository, target: Repository, oid: str) -> bool:
    """Give a repository a large file that another holds, without a second copy; False if the source lacks it."""
    origin, place = source.large_file(oid), target.large_file(oid)
    if not origin.exists():
        return False
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{secrets.token_hex(8)}.tmp")
        os.link(origin, temporary)
        temporary.rename(place)
        durable.sync_folder(place.parent)
    return True


# ------------------------------------------------------------------------------------------------------ signed links


class Signer:
    """Signs links that are good without a token.

    Args:
        key: A secret that lives as long as the process.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, *parts: object, life: int = _LIFE) -> str:
        """Return expiry and signature for these parts of a link, good for ``life`` seconds."""
        expiry = int(time.time()) + life
        return f"{expiry}-{self._digest(expiry, parts)}"

    def check(self, signature: str, *parts: object) -> None:
        """Check a signature.

        Raises:
            HubError: 403 if it is wrong or out of date.
        """
        expiry, _, digest = signature.partition("-")
        good = expiry.isascii() and expiry.isdigit() and hmac.compare_digest(digest, self._digest(int(expiry), parts))
        if not good or int(expiry) < time.time():
            raise HubError(403, "This upload link is not valid, or not any more")

    def _digest(self, expiry: int, parts: tuple[object, ...]) -> str:
        text = "\n".join(str(part) for part in (expiry, *parts))
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


# ------------------------------------------------------------------------------------------------------ batch


def batch(repository: Repository, body: Any, base: str, signer: Signer) -> dict[str, Any]:
    """Answer a batch request.

    Args:
        repository: Where the objects are or will be.
        body: ``operation``, ``transfers``, ``objects`` with ``oid`` and ``size`` in bytes.
        base: Scheme and host for links.
        signer: Signs the links.

    Raises:
        HubError: 422 for a malformed request.
    """
    objects = body.get("objects") if isinstance(body, dict) else None
    operation = body.get("operation") if isinstance(body, dict) else None
    if not isinstance(objects, list) or operation not in ("upload", "download") or len(objects) > 1000:
        raise HubError(422, "A batch has an operation and up to 1000 objects")
    transfers = body.get("transfers") or ["basic"]
    multipart = operation == "upload" and "multipart" in transfers
    answers = [_answer(repository, item, operation, multipart, base, signer) for item in objects]
    used = "multipart" if any("header" in (a.get("actions") or {}).get("upload", {}) for a in answers) else "basic"
    return {"transfer": used, "objects": answers, "hash_algo": "sha256"}


def _answer(
    repository: Repository, item: Any, operation: str, multipart: bool, base: str, signer: Signer
) -> dict[str, Any]:
    oid = item.get("oid") if isinstance(item, dict) else None
    size = item.get("size") if isinstance(item, dict) else None
    if not isinstance(oid, str) or not re.fullmatch(r"[0-9a-f]{64}", oid) or not isinstance(size, int) or size < 0:
        raise HubError(422, "Each object has oid, a sha256, and size")
    answer: dict[str, Any] = {"oid": oid, "size": size}
    have = stored_size(repository, oid)
    link = f"{base}/{repository.web_path}.git/info/lfs/objects"
    who = (repository.kind, repository.repo_id, oid)
    if operation == "download":
        if have is None:
            return {**answer, "error": {"code": 404, "message": "Object does not exist"}}
        href = f"{link}/{oid}?signature={signer.sign('get', *who)}"
        return {**answer, "authenticated": True, "actions": {"download": {"href": href}}}
    if have is not None:
        return answer
    actions: dict[str, Any] = {"verify": {"href": f"{link}/verify"}}
    if multipart and size > SINGLE_PART_LIMIT:
        upload = secrets.token_hex(8)
        count = -(-size // PART_SIZE)
        parts = {
            str(n): f"{link}/{oid}/parts/{upload}/{n}?signature={signer.sign('part', upload, n, *who)}"
            for n in range(1, count + 1)
        }
        href = f"{link}/{oid}/complete/{upload}/{size}?signature={signer.sign('complete', upload, size, *who)}"
        actions["upload"] = {"href": href, "header": {"chunk_size": str(PART_SIZE), **parts}}
    else:
        actions["upload"] = {"href": f"{link}/{oid}/content/{size}?signature={signer.sign('put', size, *who)}"}
    return {**answer, "authenticated": True, "actions": actions}


# ------------------------------------------------------------------------------------------------------ several parts


def part_path(repository: Repository, upload: str, number: int) -> Path:
    """Return where a part of an upload waits for the others."""
    if not re.fullmatch(r"[0-9a-f]{16}", upload):
        raise HubError(404, "No such upload")
    return repository.folder / "lfs" / "parts" / upload / str(number)


class Part:
    """Takes one part of an upload.

    Args:
        path: Where it waits for the others.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._file: IO[bytes] = self._temporary.open("wb")
        self._hash = hashlib.md5(usedforsecurity=False)
        self._received = 0

    def write(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            HubError: 400 if the part is larger than a part may be.
        """
        self._received += len(piece)
        if self._received > PART_SIZE:
            raise HubError(400, f"A part has at most {PART_SIZE} bytes")
        self._hash.update(piece)
        self._file.write(piece)

    def finish(self) -> str:
        """Keep the part and return its md5, hexadecimal."""
        self._file.close()
        self._temporary.replace(self._path)
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Forget what came; harmless after the end."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def complete(repository: Repository, oid: str, upload: str, size: int, parts: Any) -> None:
    """Join the parts of an upload.

    Args:
        repository: Where it goes.
        oid: The sha256 that the whole must have.
        upload: The upload's name.
        size: Bytes of the whole.
        parts: List of ``partNumber`` and ``etag``, the md5 of the part.

    Raises:
        HubError: 400 if parts are missing or wrong.
    """
    count = -(-size // PART_SIZE)
    numbers = [item.get("partNumber") for item in parts] if isinstance(parts, list) else []
    if sorted(numbers) != list(range(1, count + 1)):
        raise HubError(400, f"This upload has the parts 1 to {count}")
    folder = part_path(repository, upload, 1).parent
    receiver = Receiver(repository, oid, size)
    try:
        for item in sorted(parts, key=lambda item: item["partNumber"]):
            for piece in _read_part(folder / str(item["partNumber"]), item.get("etag")):
                receiver.write(piece)
        receiver.finish()
    except BaseException:
        receiver.discard()
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _read_part(path: Path, etag: Any) -> Iterator[bytes]:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
                yield piece
    except FileNotFoundError:
        raise HubError(400, f"Part {path.name} was never sent") from None
    if str(etag).strip('"') != digest.hexdigest():
        raise HubError(400, f"Part {path.name} is not the one of that etag")
