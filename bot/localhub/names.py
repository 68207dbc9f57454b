"""Which names the embedded Hub accepts for repositories, references and paths: the Hub's own rules."""

from __future__ import annotations

import re

from bot.localhub.errors import HubError, bad_request

KINDS = {"models": "model", "datasets": "dataset"}
"""Plural, as it stands in URLs and on the disk, to singular, as it stands in JSON."""

RESERVED = ("api", "cas", "datasets", "models", "spaces", "v1")
"""Words that cannot be namespaces, since addresses begin with them."""

_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")


def check_repo_id(repo_id: str) -> str:
    """Return ``namespace/name`` if both parts are names that the Hub would take.

    Raises:
        HubError: 400 otherwise.
    """
    parts = repo_id.split("/")
    for part in parts:
        if not _PART.fullmatch(part) or "--" in part or ".." in part or part.endswith(".git"):
            raise bad_request(f"Invalid repository name: {repo_id!r}")
    if len(parts) != 2:
        raise bad_request(f"A repository is named namespace/name, not {repo_id!r}")
    if parts[0] in RESERVED:
        raise bad_request(f"{parts[0]!r} cannot be a namespace")
    return repo_id


def check_reference_name(name: str) -> str:
    """Return the short name of a branch or tag if git and the Hub would take it.

    Raises:
        HubError: 400 otherwise.
    """
    bad = (
        not _BRANCH.fullmatch(name)
        or ".." in name
        or "//" in name
        or name.endswith(("/", ".", ".lock"))
        or any(part.startswith(".") or part.endswith(".lock") for part in name.split("/"))
        or name == "HEAD"
        or name.startswith("refs/")
        or re.fullmatch(r"[0-9a-f]{40}", name)
    )
    if bad:
        raise bad_request(f"Invalid reference name: {name!r}")
    return name


def check_path(path: str) -> str:
    """Return a path inside a repository if it can be stored in a git tree.

    Raises:
        HubError: 400 otherwise.
    """
    if {".", ".."} & set(re.split(r"[/\\]", path)):
        # A backslash is an ordinary character to git, and separates folders on some of the clients.
        raise HubError(422, f"Invalid path in repository, it must not be relative: {path!r}")
    segments = path.split("/")
    for segment in segments:
        if segment == "" or segment.lower() == ".git" or len(segment.encode()) > 255:
            raise bad_request(f"Invalid path in repository: {path!r}")
        if any(ord(character) < 32 or ord(character) == 127 for character in segment):
            raise bad_request(f"Invalid path in repository: {path!r}")
    return path


def repo_type(kind: str) -> str:
    """Return the singular of a kind: ``models`` to ``model``."""
    return KINDS[kind]


def kind_of(type_name: object) -> str:
    """Return the plural for the ``type`` of a JSON body; a missing type is a model.

    Raises:
        HubError: 400 for a type that the embedded Hub does not keep.
    """
    for kind, singular in KINDS.items():
        if type_name == singular:
            return kind
    if type_name is None:
        return "models"
    raise HubError(400, f"This embedded Hub keeps models and datasets, no {type_name!r}")


def web_path(kind: str, repo_id: str) -> str:
    """Return the path of a repository's page, without a leading slash."""
    return repo_id if kind == "models" else f"{kind}/{repo_id}"
