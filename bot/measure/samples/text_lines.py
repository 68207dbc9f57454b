"""A file of texts, `texts.txt`: UTF-8, one a line. Empty lines do not count, and equal lines count once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.errors import UpstreamError
from bot.measure.loaders import SamplePlan
from bot.measure.samples.candidate import Candidate

MAX_LINE = 1 << 20
MAX_LINES = 10_000_000


class TextLines:
    """The data set, opened.

    Args:
        files: `texts`: path of the file.
        plan: Not needed: texts have no boxes.
    """

    def __init__(self, files: dict[str, Path], plan: SamplePlan) -> None:
        self.plan = plan
        self._path = files["texts"]
        self._places: dict[str, tuple[int, int]] = {}

    def candidates(self, skipped: Counter[str]) -> Iterator[Candidate]:
        """Every text, by the digest of its bytes. Lines that are too long are counted in `skipped`.

        Raises:
            UpstreamError: The file cannot be read.
        """
        try:
            with self._path.open("rb") as stream:
                place = 0
                for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
                    text = line.strip()
                    if number > MAX_LINES:
                        raise UpstreamError(f"has more than {MAX_LINES} lines", where=str(self._path))
                    if len(line) > MAX_LINE:
                        skipped["too long"] += 1
                    elif text:
                        name = hashlib.sha256(text).hexdigest()
                        if name not in self._places:
                            self._places[name] = (place, len(line))
                            yield Candidate(name)
                    place += len(line)
        except OSError as error:
            raise UpstreamError(f"cannot be read: {error.strerror}", where=str(self._path)) from error

    def read(self, path: str) -> bytes:
        """The bytes of one text."""
        place, length = self._places[path]
        with self._path.open("rb") as stream:
            stream.seek(place)
            return stream.read(length).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
