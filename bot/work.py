"""The work folder: content-addressed, so that nothing finished is ever done twice and a killed run goes on.

An entry is a folder named after the digest of all that decides its content. It is made under a temporary name and
renamed when it is whole: an entry that is there is complete.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bot.canonical import canonical_json, digest, file_sha256
from bot.errors import StepError

RESULT = "result.json"


class WorkFolder:
    """Finished pieces of work, found by what went into them.

    Args:
        root: The folder; made when it is first written to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def open(self) -> None:
        """Makes sure that the folder can be written to, before anything long begins.

        Raises:
            StepError: It cannot.
        """
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self.temporary(self.root).rmdir()

    @property
    def upstream(self) -> Path:
        """Where files from upstream lie."""
        return self.root / "upstream"

    @property
    def runtimes(self) -> Path:
        """Where other versions of the runtime lie."""
        return self.root / "runtimes"

    def entry(self, kind: str, key: Any, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        """A finished piece of work; done now if it was not done before.

        Args:
            kind: `steps`, `samples`, `runs`, …: one folder each.
            key: Plain data: all that decides the content.
            make: Fills the folder that it is given, and returns plain data to keep with it.

        Returns:
            The folder and the data.

        Raises:
            StepError: The disk is full or cannot be written to.
        """
        final = self.root / kind / digest(key)
        if not (final / RESULT).is_file():
            with disk_errors(final.parent):
                self._make(final, make)
        return final, json.loads((final / RESULT).read_bytes())

    def _make(self, final: Path, make: Callable[[Path], Any]) -> None:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.temporary(final.parent)
        try:
            result = make(temporary)
            (temporary / RESULT).write_bytes(canonical_json(result))
            _sync(temporary)
            try:
                temporary.rename(final)
            except OSError as error:
                # Somebody else finished the same work first: theirs is as good as ours.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def temporary(self, parent: Path) -> Path:
        """A new folder for work in progress; `clean` removes it if this process dies before it does."""
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=parent, prefix=f".{os.getpid()}."))

    def clean(self) -> None:
        """Removes what killed runs left half done; what a living process is working on stays."""
        for leftover in self.root.glob("*/.*.*"):
            owner = leftover.name.split(".")[1]
            if leftover.is_dir() and owner.isdigit() and not _is_alive(int(owner)):
                shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())


class disk_errors:
    """Turns a full disk or a folder without permission into a `StepError` that names the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translates the two errors that a person can do something about."""
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Free some space, or name another folder with --work."
            raise StepError("no space left on the device", where=str(self.folder), remedy=remedy) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            remedy = "Make it writable, or name another folder with --work."
            raise StepError(f"cannot be written to: {error.strerror}", where=str(self.folder), remedy=remedy) from None


@cache
def code_digest(*packages: str) -> str:
    """The digest of the source text of some of the bot's own modules or packages, such as `bot.graph`."""
    root = Path(__file__).parent
    files: list[Path] = []
    for package in packages:
        path = root.joinpath(*package.split(".")[1:])
        files += path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return digest({str(path.relative_to(root)): file_sha256(path) for path in sorted(files)})


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The installed versions of these distributions; those that are not installed are left out."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
