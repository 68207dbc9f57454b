"""Writes that are there whole after a crash, or not at all."""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import IO, Any


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file in one step; see ``write_stream``."""
    write_stream(path, io.BytesIO(content), mode)


def write_stream(path: Path, content: IO[bytes], mode: int = 0o644) -> None:
    """Replace a file in one step: temporary name in the same folder, sync, rename, sync of the folder.

    Args:
        path: The file; its folder is made if need be.
        content: Its new content, which is read to the end piece by piece.
        mode: Its permissions, which hold from the first byte on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 18)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Replace a JSON file in one step."""
    write_bytes(path, json.dumps(value, ensure_ascii=False, indent=1).encode(), mode)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def remove(path: Path) -> None:
    """Remove a file, if it is there, durably."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
