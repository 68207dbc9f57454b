"""Whether a consumer's pins still hold, whether something newer is there, and moving them to it.

All is asked as a consumer asks: without a token.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bot.errors import RecipeError, VerificationError
from bot.hub.client import Hub, NotFound, Progress, Refused
from bot.hub.download import Expected, Mismatch
from bot.hub.pin_history import Held, Releases, held_at
from bot.hub.pin_manifest import PinManifest, PlacedPin, Text
from bot.hub.pin_signatures import signature_changes, why_too_new
from bot.hub.pins import Pin, is_commit, pinned_paths
from bot.records import Artifact

Status = Literal["ok", "unresolved", "different"]
Outcome = Literal["bumped", "current", "kept"]


@dataclass(frozen=True)
class PinCheck:
    """What was found of one pin.

    Attributes:
        placed: The pin, and where it stands.
        status: `ok`; `unresolved` if the Hub does not give the file to everyone; `different` if it has another hash.
        reason: Why it is not ok.
        found: The sha256 that was found.
        method: `hub` if the Hub said so, `download` if the content was hashed here.
        newest: Whether the newest release offers the same bytes; None if that cannot be known.
        newest_pin: The file's pin in the newest release, if it is another.
        changes: What changed in the signature between the two.
        notes: What else a person should know.
    """

    placed: PlacedPin
    status: Status
    reason: str = ""
    found: str = ""
    method: Literal["", "hub", "download"] = ""
    newest: bool | None = None
    newest_pin: Pin | None = None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bump:
    """What became of one pin, or of a graph and the files with its weights.

    Attributes:
        group: The pins as they were, the graph first.
        outcome: `bumped`; `current` if there is nothing newer; `kept` if there is, and it may not be taken.
        pins: The pins as they are now.
        reason: Why.
        notes: What changed without breaking anything, and which newer releases were passed over.
    """

    group: tuple[PlacedPin, ...]
    outcome: Outcome
    pins: tuple[Pin, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Consumer:
    """Looks at a Hub as somebody without a token.

    Args:
        hub: A Hub that was given no token.
        download: Download every file and hash it here, whatever the Hub says of it.
        runtime: The consumer's ONNX Runtime, major and minor; None if it was not named.
        progress: Called while bytes move.

    Raises:
        RecipeError: The Hub has a token.
    """

    hub: Hub
    download: bool = False
    runtime: tuple[int, int] | None = None
    progress: Progress | None = None
    _releases: dict[str, Releases] = field(default_factory=dict)
    _pinned_at: dict[tuple[str, str], Held | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.hub.has_token:
            raise RecipeError("pins are checked as nobody in particular, and a token was given.", where="pins")

    # -- check ---------------------------------------------------------------------------------------------------------

    def check(self, manifest: PinManifest) -> list[PinCheck]:
        """Checks every pin of a manifest.

        Raises:
            HubError: The Hub gave no answer; that is not taken for a pin that does not resolve.
        """
        return [self._check(placed) for placed in manifest.pins]

    def _check(self, placed: PlacedPin) -> PinCheck:
        content = self._content(placed, placed.pin)
        notes = []
        if not is_commit(placed.pin.revision):
            notes.append(f"the revision {placed.pin.revision} is no commit: what it stands for may change")
        return self._against_newest(content, notes)

    def _content(self, placed: PlacedPin, pin: Pin) -> PinCheck:
        """Whether the Hub gives the file to everyone, and with which content."""
        method: Literal["hub", "download"] = "hub"
        try:
            there = self.hub.resolve(pin.repo, pin.revision, pin.file)
            found = there.sha256
            if self.download or not found:
                found, method = self._hash(pin, there.bytes), "download"
        except (NotFound, Refused) as error:
            return PinCheck(placed, "unresolved", error.what)
        except Mismatch as error:
            return PinCheck(placed, "different", error.what, error.found, "download")
        if found != pin.sha256:
            reason = f"has the sha256 {found} where {pin.sha256} is pinned."
            return PinCheck(placed, "different", reason, found, method)
        return PinCheck(placed, "ok", "", found, method)

    def _hash(self, pin: Pin, size: int | None) -> str:
        progress = self.progress
        on_bytes = (lambda done: progress(done, size or 0, pin.file)) if progress else None
        with tempfile.TemporaryDirectory(prefix="bot-pins-") as folder:
            target = Path(folder) / "content"
            return self.hub.download(pin.repo, pin.revision, pin.file, target, Expected(bytes=size), on_bytes=on_bytes)

    def _against_newest(self, check: PinCheck, notes: list[str]) -> PinCheck:
        pin = check.placed.pin
        try:
            newest = self._of(pin.repo).newest()
        except (NotFound, Refused):
            return replace(check, notes=tuple(notes))
        if newest is None:
            notes.append(f"the main branch of {pin.repo} holds no release whose record can be read")
            return replace(check, notes=tuple(notes))
        pinned = self._pinned(pin)
        match = _match(pin, pinned, newest)
        if match is None:
            notes.append("the newest release does not offer this file any more")
            return replace(check, newest=False, notes=tuple(notes))
        artifact, index = match
        there = newest.pins(artifact.name, pin.repo)[index]
        missing = sorted(set(there.not_on) - set(pin.not_on))
        if missing:
            notes.append(f"the newest release says that it must not be used on {', '.join(missing)}")
        if there.sha256 == pin.sha256:
            return replace(check, newest=True, notes=tuple(notes))
        changes = _changes(pin, pinned, artifact, there)
        return replace(check, newest=False, newest_pin=there, changes=changes, notes=tuple(notes))

    def _of(self, repo: str) -> Releases:
        if repo not in self._releases:
            self._releases[repo] = Releases(self.hub, repo)
        return self._releases[repo]

    def _pinned(self, pin: Pin) -> Held | None:
        """The release at the pinned revision; None if there is none that can be read."""
        place = (pin.repo, pin.revision)
        if place not in self._pinned_at:
            try:
                commit = pin.revision if is_commit(pin.revision) else self.hub.head(pin.repo, pin.revision).sha
                self._pinned_at[place] = held_at(self.hub, pin.repo, commit)
            except (NotFound, Refused):
                self._pinned_at[place] = None
        return self._pinned_at[place]

    # -- bump ----------------------------------------------------------------------------------------------------------

    def bump(self, manifest: PinManifest) -> tuple[list[Bump], dict[Text, str]]:
        """Finds the newest release that each pin may move to.

        Returns:
            What becomes of each pin, and the strings that change in the file. Nothing is written.

        Raises:
            HubError: The Hub gave no answer.
        """
        bumps = [self._bump(tuple(group)) for group in manifest.groups()]
        changes: dict[Text, str] = {}
        for bump in bumps:
            for placed, pin in zip(bump.group, bump.pins, strict=False):
                for name, place in placed.fields.items():
                    value = str(getattr(pin, name))
                    if value != getattr(placed.pin, name):
                        changes[place] = value
        return bumps, changes

    def _bump(self, group: tuple[PlacedPin, ...]) -> Bump:
        graph = group[0].pin
        try:
            newest = self._of(graph.repo).newest()
        except (NotFound, Refused) as error:
            return Bump(group, "kept", reason=f"the repository cannot be read without a token: {error.what}")
        if newest is None:
            return Bump(group, "kept", reason="the main branch holds no release whose record can be read")
        pinned = self._pinned(graph)
        match = _match(graph, pinned, newest)
        if match and _same_bytes(group, newest.pins(match[0].name, graph.repo)):
            missing = sorted({*newest.pins(match[0].name, graph.repo)[0].not_on} - {*graph.not_on})
            notes = (f"it must not be used on {', '.join(missing)}, says the newest release",) if missing else ()
            return Bump(group, "current", reason="the newest release has the same bytes", notes=notes)
        old = pinned.find(graph.file) if pinned else None
        if pinned is None or old is None or old[1] != 0:
            reason = "the pinned revision holds no record of this file, so it is not known what its signature is"
            return Bump(group, "kept", reason=reason)
        if not _same_bytes(group, pinned.pins(old[0].name, graph.repo)):
            return Bump(group, "kept", reason="it is not pinned with the sha256 of the pinned release: check it first")
        newer = self._of(graph.repo).newer_than(pinned.commit, pinned.release.identity)
        if newer is None:
            reason = "the pinned release was not found on the main branch, so nobody knows what is newer"
            return Bump(group, "kept", reason=reason)
        return self._newest_of(group, old[0], newer)

    def _newest_of(self, group: tuple[PlacedPin, ...], old: Artifact, newer: Sequence[Held]) -> Bump:
        """Moves to the newest of these releases that may be taken."""
        passed: list[str] = []
        for held in newer:
            pins = held.pins(old.name, group[0].pin.repo)
            new = held.published(old.name)
            if new is not None and _same_bytes(group, pins):
                break
            why = self._why_not(group, old, new, pins)
            if not why:
                assert new is not None  # noqa: S101 -- an artifact that is gone is a reason
                notes = [change.text for change in signature_changes(old.signature, new.signature)]
                notes += [f"{old.file} is now {new.file}"] if old.file != new.file else []
                return Bump(group, "bumped", pins, f"release {held.release.short_identity}", (*notes, *passed))
            passed.append(f"release {held.release.short_identity} was passed over: {why}")
        if not passed:
            return Bump(group, "current", reason="it is the newest release")
        return Bump(group, "kept", reason=passed[0], notes=tuple(passed[1:]))

    def _why_not(self, group: tuple[PlacedPin, ...], old: Artifact, new: Artifact | None, pins: tuple[Pin, ...]) -> str:
        """Why a release may not be taken; empty if it may."""
        if new is None:
            return f"it does not publish {old.name}"
        breaking = [change.text for change in signature_changes(old.signature, new.signature) if change.breaks]
        if breaking:
            return "; ".join(breaking)
        if len(pins) != len(group):
            return f"it consists of {len(pins)} files, and {len(group)} are pinned together"
        if why := why_too_new(new.signature, self.runtime):
            return why
        if missing := sorted(set(pins[0].not_on) - set(group[0].pin.not_on)):
            return f"it must not be used on {', '.join(missing)}, which the pin's not_on does not name"
        for placed, pin in zip(group, pins, strict=True):
            content = self._content(placed, pin)
            if content.status != "ok":
                return f"{pin.file} at {pin.revision[:12]} {content.reason}"
        return ""


def require(path: Path, checks: Sequence[PinCheck]) -> None:
    """Stops unless every pin resolves and has its hash.

    Raises:
        VerificationError: One does not; the message names file, line and key of each.
    """
    wrong = [check for check in checks if check.status != "ok"]
    if not wrong:
        return
    first, *others = [
        (check.placed.where(path, "sha256" if check.status == "different" else "revision"), _sentence(check))
        for check in wrong
    ]
    text = first[1] + "".join(f"\n{where}: {sentence}" for where, sentence in others)
    raise VerificationError(
        text,
        where=first[0],
        remedy="Do not use such a file. `bot pins show OWNER/NAME` prints the pins of the newest release.",
    )


def _sentence(check: PinCheck) -> str:
    pin = check.placed.pin
    name = f"{pin.repo}@{pin.revision[:12]}/{pin.file}"
    return f"{name} {check.reason}" if check.status == "different" else f"{name} does not resolve: {check.reason}"


def _match(pin: Pin, pinned: Held | None, newest: Held) -> tuple[Artifact, int] | None:
    """The artifact of the newest release that a pin is about: by the artifact's key, so that names may change."""
    old = pinned.find(pin.file) if pinned else None
    if old is None:
        return newest.find(pin.file, pin.sha256)
    artifact = newest.published(old[0].name)
    if artifact is None or old[1] >= len(pinned_paths(artifact)):
        return None
    return artifact, old[1]


def _changes(pin: Pin, pinned: Held | None, new: Artifact, there: Pin) -> tuple[str, ...]:
    renamed = (f"{pin.file} is now {there.file}",) if pin.file != there.file else ()
    old = pinned.find(pin.file) if pinned else None
    if old is None:
        return (*renamed, "the pinned revision holds no record of this file, so its signature is not known")
    return (*renamed, *(change.text for change in signature_changes(old[0].signature, new.signature)))


def _same_bytes(group: Sequence[PlacedPin], pins: Sequence[Pin]) -> bool:
    return [placed.pin.sha256 for placed in group] == [pin.sha256 for pin in pins]
