"""What a recipe's author reviewed of the licences upstream, and how what is there now compares with it.

It lies in the recipe's folder as licenses/reviewed.json, is written by `bot licenses NAME --accept` and is meant to be
committed, and read, with the recipe. Where there is none, only what the recipe itself says counts as reviewed: the
licence id that it names, and the texts that lie in its licenses folder.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from bot.canonical import digest, write_atomically
from bot.errors import RecipeError
from bot.records import Record, Terms


class Reviewed(Record):
    """What was reviewed.

    Attributes:
        schema_version: Of this file.
        upstream: The terms of the upstream repository, with the commit at which they were read.
        base_models: The terms of those that its card names as its base models.
    """

    schema_version: Literal[1] = 1
    upstream: Terms
    base_models: tuple[Terms, ...] = ()

    def write(self, path: Path) -> None:
        """Writes the file as people read it in a diff: a line per value, always in the same order."""
        text = json.dumps(self.to_plain(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode(), mode=0o644)


def read_reviewed(path: Path | None) -> Reviewed | None:
    """Reads a recipe's review; None if it has none.

    Raises:
        RecipeError: The file is not one.
    """
    if path is None:
        return None
    try:
        return Reviewed.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}.", where=str(path)) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise RecipeError(
            f"is not a review of licences: at {place}: {first['msg']}.",
            where=str(path),
            remedy="It is written by bot licenses NAME --accept; take it back out of the repository's history.",
        ) from None


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was reviewed.

    Attributes:
        repo: Whose terms.
        what: `license`, `license_name`, `license_link`, `front matter`, `base model`, `upstream`, or a text's path.
        old: As reviewed; empty for what was not there. A text by its sha256.
        new: As it is; empty for what is gone.
    """

    repo: str
    what: str
    old: str
    new: str

    def sentence(self) -> str:
        """The change in words."""
        place = f"{self.repo}: {self.what}"
        if not self.old:
            return f"{place} is new: {self.new}"
        if not self.new:
            return f"{place} is gone; it was {self.old}"
        return f"{place} was {self.old}, and is {self.new}"


@dataclass(frozen=True)
class Standing:
    """How the terms of one repository stand to what was reviewed of them.

    Attributes:
        terms: As they are.
        status: `reviewed`; `changed` since; `not reviewed` by anybody; `not checked` because they cannot be read.
        changes: What is not as it was reviewed.
    """

    terms: Terms
    status: Literal["reviewed", "changed", "not reviewed", "not checked"]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What stands upstream beside what was reviewed.

    Attributes:
        reviewed: What was reviewed; None if there is no such file.
        standings: The upstream repository's first, then those of its base models.
        gone: Base models that were reviewed and are none any more.
    """

    reviewed: Reviewed | None
    standings: tuple[Standing, ...]
    gone: tuple[Change, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything that differs, or that nobody reviewed."""
        return (*(change for standing in self.standings for change in standing.changes), *self.gone)

    @property
    def has_changed(self) -> bool:
        """Whether something is otherwise than somebody reviewed it."""
        return bool(self.gone) or any(standing.status == "changed" for standing in self.standings)

    @property
    def identity(self) -> str:
        """Digest of what differs: the same differences are the same news."""
        return digest({"licenses": [[change.repo, change.what, change.old, change.new] for change in self.changes]})


def compare(
    upstream: Terms, bases: Sequence[Terms], reviewed: Reviewed | None, own_id: str, own_texts: Collection[str]
) -> Comparison:
    """Compares terms with what was reviewed.

    Args:
        upstream: The terms of the upstream repository.
        bases: Those of its base models.
        reviewed: What was reviewed; None if there is no such file.
        own_id: The licence id that the recipe expects upstream. What upstream declares has to be that in any case.
        own_texts: sha256 of the texts in the recipe's licenses folder, which count as reviewed where there is no file.
    """
    if reviewed is None:
        changes = (*_unexpected_id(upstream, own_id), *_unreviewed(upstream, own_texts))
        status: Literal["reviewed", "changed", "not reviewed"] = "reviewed"
        if changes:
            status = "changed" if changes[0].old else "not reviewed"
        return Comparison(None, (Standing(upstream, status, changes), *map(_unknown_base, bases)))
    known = {terms.repo: terms for terms in reviewed.base_models}
    first = list(differences(reviewed.upstream, upstream))
    if not any(change.what == "license" for change in first):
        first += _unexpected_id(upstream, own_id)
    standings = [Standing(upstream, "changed" if first else "reviewed", tuple(first))]
    standings += [_base(terms, known.get(terms.repo)) for terms in bases]
    now = {terms.repo for terms in bases}
    gone = () if upstream.problem else tuple(_gone(upstream, known[repo]) for repo in known if repo not in now)
    return Comparison(reviewed, tuple(standings), gone)


def _unexpected_id(upstream: Terms, own_id: str) -> tuple[Change, ...]:
    if upstream.license is None or upstream.license == own_id:
        return ()
    return (Change(upstream.repo, "license", own_id, upstream.license),)


def _unreviewed(upstream: Terms, own_texts: Collection[str]) -> tuple[Change, ...]:
    """What of the terms the recipe itself says nothing about."""
    found = [Change(upstream.repo, "front matter", "", _readable(upstream))] if upstream.problem else []
    if upstream.license == "other":
        declared = {"license_name": upstream.license_name, "license_link": upstream.license_link}
        found += [Change(upstream.repo, what, "", value) for what, value in declared.items() if value]
    found += [
        Change(upstream.repo, text.path, "", text.sha256) for text in upstream.texts if text.sha256 not in own_texts
    ]
    return tuple(found)


def _unknown_base(terms: Terms) -> Standing:
    if terms.unchecked:
        return Standing(terms, "not checked")
    return Standing(terms, "not reviewed", (Change(terms.repo, "base model", "", in_words(terms)),))


def _base(terms: Terms, reviewed: Terms | None) -> Standing:
    if reviewed is None:
        return Standing(terms, "changed", (Change(terms.repo, "base model", "", in_words(terms)),))
    if terms.unchecked:
        return Standing(terms, "not checked")
    if reviewed.unchecked:
        return Standing(terms, "changed", (Change(terms.repo, "base model", "not checked", in_words(terms)),))
    changes = tuple(differences(reviewed, terms))
    return Standing(terms, "changed" if changes else "reviewed", changes)


def _gone(upstream: Terms, reviewed: Terms) -> Change:
    return Change(upstream.repo, f"base model {reviewed.repo}", in_words(reviewed), "")


def differences(old: Terms, new: Terms) -> Iterator[Change]:
    """What differs between two states of a repository's terms; its commits may."""
    if old.repo != new.repo:
        yield Change(new.repo, "upstream", old.repo, new.repo)
    for what in ("license", "license_name", "license_link"):
        before, after = getattr(old, what) or "", getattr(new, what) or ""
        if before != after and not new.problem:
            yield Change(new.repo, what, before, after)
    if old.problem != new.problem:
        yield Change(new.repo, "front matter", _readable(old), _readable(new))
    yield from _text_changes(new.repo, _texts(old), _texts(new))


def _readable(terms: Terms) -> str:
    return f"unreadable: {terms.problem}" if terms.problem else "readable"


def _texts(terms: Terms) -> dict[str, str]:
    return {text.path: text.sha256 for text in terms.texts}


def _text_changes(repo: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield Change(repo, path, old.get(path, ""), new.get(path, ""))


def in_words(terms: Terms) -> str:
    """What a repository declares, in a few words."""
    if terms.unchecked:
        return f"not checked: {terms.unchecked}"
    if terms.problem:
        return f"what cannot be read ({terms.problem})"
    name = f" ({terms.license_name})" if terms.license_name else ""
    texts = f", {', '.join(text.path for text in terms.texts)}" if terms.texts else ""
    return f"{terms.license or 'no licence'}{name}{texts}"
