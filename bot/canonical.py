"""RFC 8785 canonical JSON, and the digests that are taken over it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def canonical_json(value: Any) -> bytes:
    """Serialises plain data (dict, list, str, int, float, bool, None) as RFC 8785 canonical JSON, UTF-8.

    Raises:
        ValueError: A number is NaN, infinite, or an integer that a double cannot hold.
    """
    import rfc8785

    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"not representable as canonical JSON: {error}") from error


def digest(value: Any) -> str:
    """The sha256, in hex, of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def chunks(path: Path, size: int = CHUNK) -> Iterator[bytes]:
    """The bytes of a file, a piece at a time, so that a large file is never whole in memory."""
    with path.open("rb") as stream:
        while piece := stream.read(size):
            yield piece


def file_sha256(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The sha256 of a file, in hex, read as a stream.

    Args:
        path: The file.
        on_bytes: Called with the number of bytes of each piece that was read, for a progress bar.
    """
    state = hashlib.sha256()
    for piece in chunks(path):
        state.update(piece)
        if on_bytes:
            on_bytes(len(piece))
    return state.hexdigest()


def text_sha256(text: str) -> str:
    """The sha256 of a text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Writes a file so that a reader, or a run after a crash, sees the old bytes or the new, and nothing between.

    Args:
        path: The file.
        data: Its new content.
        mode: Its permissions; None for those of a temporary file, which only its owner reads.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
