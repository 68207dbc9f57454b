"""How a stage tells what it is doing, without knowing whether a person or a log file listens."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Listens to the stages."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage begins: `fetch`, `build`, `measure`, …"""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def warn(self, text: str) -> None:
        """Something that a reviewer should know."""

    def update(self, done: int, total: int, what: str) -> None:
        """Work advances.

        Args:
            done: Units done: bytes, samples, nodes.
            total: Units in all; 0 if that is not known.
            what: Names the work; a new name is a new bar.
        """


class Silent:
    """Listens and says nothing."""

    def stage(self, name: str, detail: str = "") -> None:
        """See `Reporter`."""

    def note(self, text: str) -> None:
        """See `Reporter`."""

    def warn(self, text: str) -> None:
        """See `Reporter`."""

    def update(self, done: int, total: int, what: str) -> None:
        """See `Reporter`."""
