"""Where the cases happen: an embedded Hub, a fresh repository for each, and one run of the bot."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SCALE = 0.002
"""Every wait is this many times as long as it would be."""

PATIENCE = 90
"""Seconds after which a run counts as hung."""

# The upload library in Rust has waits of its own, which it reads from the environment when it is first used.
ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_VERBOSITY": "error",
    "HF_XET_TELEMETRY_ENABLED": "0",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "6ms",
    "HF_XET_CLIENT_READ_TIMEOUT": "1s",
    "HF_XET_CLIENT_CONNECT_TIMEOUT": "5s",
}
FOREIGN = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "BOT_HUB_TOKEN", "BOT_HUB_ENDPOINT")


def prepare_environment(home: Path) -> None:
    """Has to come before the client library is imported, which reads these at import."""
    os.environ.update(ENVIRONMENT)
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update({"HOME": str(home), "HF_HOME": str(home / "hf"), "HF_XET_CACHE": str(home / "xet")})


@dataclass
class Waits:
    """The waits that the bot and the library asked for, in seconds as they would really be."""

    of_policy: list[float] = field(default_factory=list)
    of_library: list[float] = field(default_factory=list)


WAITS = Waits()


def hurry_library() -> None:
    """Shortens the waits of the client library's own retries as well."""
    from huggingface_hub.utils import _http

    def sleep(seconds: float) -> None:
        WAITS.of_library.append(seconds)
        time.sleep(seconds * SCALE)

    if not isinstance(_http.time, SimpleNamespace):
        _http.time = SimpleNamespace(**{**vars(time), "sleep": sleep})


def policy(**more: Any) -> Any:
    """The bot's policy with its back-off clock scaled."""
    from bot.hub.retry import Policy

    def sleep(seconds: float) -> None:
        WAITS.of_policy.append(seconds / SCALE)
        time.sleep(seconds)

    limits = {"connect": 5.0, "answer": 20.0, "commit_answer": 20.0, "whole_answer": 20.0, "stall": 20.0}
    return Policy(sleep=sleep, **{**limits, **more}).hurried(SCALE)


class Hung(BaseException):
    """A run did not end."""


@contextmanager
def alarm(seconds: int = PATIENCE) -> Iterator[None]:
    """Ends what hangs."""

    def ring(*_: object) -> None:
        raise Hung(f"did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Ran:
    """How one run of the bot ended: with a publication, or with an error."""

    done: Any = None
    error: BaseException | None = None


@dataclass
class Place:
    """A running Hub and a folder.

    Attributes:
        server: The Hub.
        folder: For everything else.
        seed: Of everything that is drawn.
    """

    server: Any
    folder: Path
    seed: int

    def __post_init__(self) -> None:
        from tests.chaos.oracle import Oracle

        self.oracle = Oracle(self.server.endpoint, self.server.token)
        self._count = 0

    def chance(self, name: str) -> random.Random:
        """The dice of one case: the same for the same seed and name."""
        return random.Random(hashlib.sha256(f"{self.seed} {name}".encode()).digest())

    def fresh(self) -> str:
        """The name of a repository that does not exist."""
        self._count += 1
        return f"chaos-{os.getpid()}/case-{self._count}"

    def scratch(self) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def case(self, repo: str, seed: str, **more: Any) -> Any:
        """A release for a repository, laid out in a folder; its model is not like any other's."""
        from tests.hub.hub_cases import make_case

        models = {"model.onnx": random.Random(f"{repo} {seed}").randbytes(3000)}
        return make_case(self.scratch(), repo, seed=seed, **{"models": models, **more})

    def hub(self, endpoint: str = "", user: str = "local-user", **limits: Any) -> Any:
        """The bot's view of the Hub."""
        from bot.hub.client import Hub

        return Hub(endpoint or self.server.endpoint, self.server.tokens[user], policy=policy(**limits))

    def run(self, case: Any, mode: str, *, endpoint: str = "", **limits: Any) -> Ran:
        """What `bot publish` does to a target, once: look, publish, download and check, say the review."""
        from bot.hub.publish import find, publish
        from bot.hub.verify import confirm
        from bot.hub.withheld import close_notices, close_outdated

        release = case.release
        try:
            with alarm():
                hub = self.hub(endpoint, **limits)
                there = find(hub, release.target, release.identity, mode=mode)
                if there is not None:
                    self._say_review(hub, there, release.target, only_if_missing=True)
                    close_outdated(hub, release.target, release.recipe, release.identity, there.url, lambda _: None)
                    return Ran(there)
                done = publish(hub, **case.arguments(mode))
                if done.kind != "nothing":
                    confirm(hub, release, done, self.scratch())
                self._say_review(hub, done, release.target)
                close_notices(hub, release, done.url, lambda _: None)
                return Ran(done)
        except (Exception, Hung) as error:
            return Ran(error=error)

    def _say_review(self, hub: Any, publication: Any, repo: str, *, only_if_missing: bool = False) -> None:
        """As the pipeline does it: a review that could not be said fails nothing, and the next run says it."""
        from bot.errors import BotError
        from bot.hub.comments import keep_comment, own_comments

        if publication.kind != "pull-request":
            return
        with suppress(BotError):
            if not only_if_missing or not own_comments(hub, repo, publication.number):
                keep_comment(hub, repo, publication.number, "What changed: everything.")

    def wanted(self, case: Any, mode: str) -> Any:
        """The end state of publishing a release."""
        from tests.chaos.oracle import Wanted

        return Wanted(case.release.target, mode, case.release.identity, case.folder)

    def hand_made(self, repo: str, files: dict[str, bytes], user: str = "local-user", **more: Any) -> Any:
        """A commit that is not the bot's."""
        from huggingface_hub import CommitOperationAdd

        api = self.server.api(user)
        api.create_repo(repo, exist_ok=True)
        operations = [CommitOperationAdd(path, data) for path, data in files.items()]
        return api.create_commit(repo, operations, **{"commit_message": "By hand", **more})


def use_xet(on: bool) -> None:
    """Whether large files are sent through Xet; the library asks at every upload."""
    import huggingface_hub.constants as constants

    constants.HF_HUB_DISABLE_XET = not on


def unclear(error: BaseException | None) -> str:
    """Why an error would not help a person; empty if it would."""
    from bot.errors import BotError

    if error is None:
        return ""
    text = str(error)
    if not isinstance(error, BotError):
        return f"ended in {type(error).__module__}.{type(error).__name__}: {text[:300]}"
    if not error.what.strip() or not error.where or "Traceback" in text or "object at 0x" in text:
        return f"ended in an error that does not say what and where: {text[:300]!r}"
    if error.exit_code < 3:
        return f"ended with the exit code {error.exit_code}, which blames the recipe or the bot"
    return ""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the seconds that it took."""
    begin = time.monotonic()
    return work(), time.monotonic() - begin
