"""Paths inside repositories: which are safe to put on a disk, and which a pattern means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

_RESERVED = re.compile(r"^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)
_WILD = re.compile(r"[*?\[]")
_LONGEST_PART = 240


def why_unsafe(path: str) -> str:
    """Why a path from a repository must not become a path on a disk; empty if it may.

    Refused are absolute paths, `.` and `..`, empty parts, backslashes, control characters, names that git or Windows
    keeps for itself, and parts that no file system takes.
    """
    if not path or path.startswith("/"):
        return "it is empty or absolute"
    if "\\" in path or not path.isprintable():
        return "it holds a backslash or a control character"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return "it holds an empty part, `.` or `..`"
        if part.lower() in (".git", ".cache") or _RESERVED.match(part) or ":" in part:
            return f"`{part}` is a reserved name"
        if len(part.encode("utf-8", "surrogatepass")) > _LONGEST_PART:
            return f"`{part[:40]}…` is too long"
    return ""


def is_pattern(path: str) -> bool:
    """Whether a path of a recipe stands for several files."""
    return bool(_WILD.search(path))


def fixed_folder(pattern: str) -> str:
    """The folder that all matches of a pattern lie in: `a/b` for `a/b/*.txt`; empty for the root."""
    parts = pattern.split("/")
    first_wild = next(index for index, part in enumerate(parts) if is_pattern(part))
    return "/".join(parts[:first_wild])


def goes_deep(pattern: str) -> bool:
    """Whether matches may lie below the pattern's fixed folder, and not only in it."""
    folder = fixed_folder(pattern)
    rest = pattern[len(folder) + 1 :] if folder else pattern
    return "/" in rest or "**" in rest


def matches(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern: `*` and `?` stay within a part, `**` crosses them, `[…]` is a set."""
    return bool(_compiled(pattern).match(path))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    out, rest = [], pattern
    while rest:
        if rest.startswith("**/"):
            out.append("(?:.*/)?")
            rest = rest[3:]
        elif rest.startswith("**"):
            out.append(".*")
            rest = rest[2:]
        elif rest[0] == "*":
            out.append("[^/]*")
            rest = rest[1:]
        elif rest[0] == "?":
            out.append("[^/]")
            rest = rest[1:]
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            out.append(_set(rest[1:end]))
            rest = rest[end + 1 :]
        else:
            out.append(re.escape(rest[0]))
            rest = rest[1:]
    return re.compile("".join(out) + r"\Z", re.DOTALL)


def _set(inner: str) -> str:
    """A set of characters as a regular expression; one that makes no sense, such as `[b-a]`, fits nothing."""
    negated = inner[0] == "!"
    body = "".join(char if char == "-" else re.escape(char) for char in inner[negated:])
    text = f"(?!/)[{'^' if negated else ''}{body}]"
    try:
        re.compile(text)
    except re.error:
        return "(?!)"
    return text


def near(wanted: str, there: Iterable[str], count: int = 5) -> list[str]:
    """The names that someone who wrote `wanted` may have meant, the likeliest first."""
    names = list(there)
    base = wanted.rsplit("/", 1)[-1].lower()
    same_base = [name for name in names if name.rsplit("/", 1)[-1].lower() == base]
    close = difflib.get_close_matches(wanted, names[:5000], n=count, cutoff=0.5)
    return list(dict.fromkeys([*same_base, *close]))[:count]
