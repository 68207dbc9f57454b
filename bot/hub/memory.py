"""What a watcher remembers between polls. It is a cache: without it a poll costs more calls and finds the same.

Most of it are facts that cannot change: which digests the files of a commit have, which release a pull request carries.
The rest are the listings that were read last. It lies in one file with its own sha256 in the first line: one that was
cut off or damaged counts as deleted, since nothing may be decided from a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from bot.canonical import write_atomically

_SCHEMA = 1


class Memory:
    """Facts by kind and key, as plain JSON data.

    Args:
        path: The file; None to remember for the life of this object only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._facts: dict[str, dict[str, Any]] = _read(path) if path is not None else {}
        self._used: set[tuple[str, str]] = set()

    def get(self, kind: str, key: str) -> Any:
        """A fact; None if it is not known."""
        self._used.add((kind, key))
        return self._facts.get(kind, {}).get(key)

    def put(self, kind: str, key: str, fact: Any) -> None:
        """Remembers a fact."""
        self._used.add((kind, key))
        self._facts.setdefault(kind, {})[key] = fact

    def forget(self, kind: str, key: str) -> None:
        """Forgets a fact."""
        self._facts.get(kind, {}).pop(key, None)

    def sweep(self, *, keep: str = "") -> None:
        """Forgets all that nobody asked for since the last sweep: commits that are not the newest any more, say.

        Args:
            keep: A kind of fact of which nothing is forgotten.
        """
        self._facts = {
            kind: {key: fact for key, fact in facts.items() if kind == keep or (kind, key) in self._used}
            for kind, facts in self._facts.items()
        }
        self._used.clear()

    def save(self) -> None:
        """Writes the file. That it cannot be written is no failure: the next poll costs more."""
        if self.path is None:
            return
        body = json.dumps({"schema": _SCHEMA, "facts": self._facts}, separators=(",", ":"), sort_keys=True).encode()
        with suppress(OSError):
            write_atomically(self.path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    with suppress(OSError, ValueError):
        sha256, _, body = path.read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() == sha256:
            plain = json.loads(body)
            if plain.get("schema") == _SCHEMA:
                return {str(kind): dict(facts) for kind, facts in plain["facts"].items()}
    return {}
