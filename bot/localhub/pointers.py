"""Git LFS pointer files: the small text blob that stands in a git tree for a large file kept elsewhere.

The format is that of https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n")
MAXIMUM_POINTER_BYTES = 200


@dataclass(frozen=True)
class Pointer:
    """What a pointer file says: the sha256 and the size in bytes of the content that it stands for."""

    sha256: str
    size: int

    def encode(self) -> bytes:
        """Return the content of the pointer file."""
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()


def parse(content: bytes) -> Pointer | None:
    """Return what a blob says if it is a pointer file, else None."""
    if len(content) > MAXIMUM_POINTER_BYTES:
        return None
    match = _POINTER.fullmatch(content)
    return Pointer(match[1].decode(), int(match[2])) if match else None
