"""A release as it lies somewhere: on a Hub, or laid out in a folder."""

from __future__ import annotations

from dataclasses import dataclass

from bot.errors import VerificationError
from bot.records import FileRecord, Release


@dataclass(frozen=True)
class Published:
    """What a repository, or a folder that is laid out like one, holds.

    Attributes:
        release: The record; None if it holds none that can be read.
        where: The folder, or repository and commit.
        card: README.md as it is there; empty if there is none.
        rendered: The card as it was rendered for that release, the base of later merges; empty if it is not there.
        files: Every file of the release, as its list of files names them.
    """

    release: Release | None
    where: str = ""
    card: str = ""
    rendered: str = ""
    files: tuple[FileRecord, ...] = ()

    def require_release(self) -> Release:
        """The record.

        Raises:
            VerificationError: There is none.
        """
        if self.release is None:
            raise VerificationError(f"holds no {Release.PATH} that can be read", where=self.where)
        return self.release
