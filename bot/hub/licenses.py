"""Finds a repository's card and licence texts, by what they are called. What stands in them is not read here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bot.errors import UpstreamError
from bot.hub.client import Hub, NotFound, Progress, Refused, RepoType, TreeFile
from bot.hub.fetch import fetch_listed, upstream_errors
from bot.records import FileRecord

CARD = "README.md"

LARGEST_CARD = 16 * 1024 * 1024
"""Bytes. A card that is larger stops the run: nobody can tell what it declares."""

LARGEST_TEXT = 4 * 1024 * 1024
"""Bytes. A file of a licence's name that is larger is no text that somebody could review."""

MOST_TEXTS = 100

_NAMES = """
license licence licenses licences unlicense copying copyright copyrights notice notices eula terms
"""
_WORDS = frozenset(_NAMES.split())
_PHRASES = ("use_policy", "use-policy", "acceptable_use", "acceptable-use")
_TEXT_ENDINGS = frozenset(["", "md", "txt", "rst", "html", "htm", "pdf", "rtf", "markdown", "text"])
_OF_NO_TEXT = """
py ipynb js ts json jsonl yaml yml toml cfg ini sh bat onnx safetensors bin pt pth ckpt h5 gguf npz npy pkl msgpack
tflite data zip gz tar xz zst parquet csv tsv png jpg jpeg gif svg webp mp4 wav
"""
_OTHER_ENDINGS = frozenset(_OF_NO_TEXT.split())


@dataclass(frozen=True)
class Papers:
    """What lies in a repository about its licence, at one commit.

    Attributes:
        repo: `owner/name`.
        commit: The full commit sha.
        tree: Every file of the commit.
        card: Its card's record; None if it has none.
    """

    repo: str
    commit: str
    tree: dict[str, TreeFile]
    card: FileRecord | None


class OutOfReach(UpstreamError):
    """A repository is not there, or not given to this account."""


def find_papers(hub: Hub, repo: str, revision: str, *, repo_type: RepoType = "model", into: Path) -> Papers:
    """Lists a repository at one commit and fetches its card.

    Args:
        hub: Where it is.
        repo: `owner/name`, or the bare name of an old repository.
        revision: Branch, tag or commit.
        repo_type: `model` or `dataset`.
        into: The card goes to `into/OWNER/NAME/COMMIT/README.md`.

    Raises:
        OutOfReach: There is no such repository, or it is private or gated.
        UpstreamError: The Hub did not answer as it should.
    """
    with upstream_errors():
        try:
            commit = hub.head(repo, revision, repo_type=repo_type).sha
            if not re.fullmatch("[0-9a-f]{40,64}", commit):
                raise OutOfReach("has no commit yet.", where=f"{repo}@{revision}")
            tree = hub.tree(repo, commit, repo_type=repo_type)
        except (NotFound, Refused) as error:
            raise OutOfReach(error.what, where=error.where, remedy=error.remedy) from error
    return Papers(repo, commit, tree, fetch_card(hub, repo, commit, repo_type=repo_type, into=into, tree=tree))


def fetch_card(
    hub: Hub,
    repo: str,
    commit: str,
    *,
    repo_type: RepoType = "model",
    into: Path,
    tree: Mapping[str, TreeFile] | None = None,
) -> FileRecord | None:
    """Fetches the card of a repository at a commit; None if it has none.

    Args:
        hub: Where the repository is.
        repo: `owner/name`.
        commit: The full commit sha.
        repo_type: `model` or `dataset`.
        into: It goes to `into/OWNER/NAME/COMMIT/README.md`.
        tree: The files of the commit, if they are known.

    Raises:
        OutOfReach: The repository is not there, or not given to this account.
        UpstreamError: The Hub did not answer as it should, or the card is too large to be one.
    """
    with _reach():
        if tree is None:
            with upstream_errors():
                tree = hub.files_at(repo, commit, [CARD], repo_type=repo_type)
        if CARD not in tree:
            return None
        if tree[CARD].bytes > LARGEST_CARD:
            raise UpstreamError(
                f"has {tree[CARD].bytes} bytes, and a card has at most {LARGEST_CARD}.",
                where=f"{repo}@{commit[:12]}: {CARD}",
            )
        return fetch_listed(hub, repo, commit, [tree[CARD]], repo_type=repo_type, into=into)[0]


def fetch_texts(
    hub: Hub, papers: Papers, link: str, *, into: Path, progress: Progress | None = None
) -> tuple[FileRecord, ...]:
    """Fetches the licence texts of a repository: what is called like one, and what its card links to.

    Args:
        hub: Where the repository is.
        papers: What lies in it.
        link: The card's `license_link`.
        into: They go to `into/OWNER/NAME/COMMIT/PATH`.
        progress: Called while bytes move.

    Returns:
        Their records, by path.

    Raises:
        OutOfReach: The repository is gated: its files are not given to this account.
        UpstreamError: There are too many, or one is too large to be such a text.
    """
    linked = linked_path(link, papers.repo)
    items = [item for path, item in sorted(papers.tree.items()) if is_license_text(path) or path == linked]
    where = f"{papers.repo}@{papers.commit[:12]}"
    if len(items) > MOST_TEXTS:
        raise UpstreamError(f"has {len(items)} files that are called like licence texts.", where=where)
    for item in items:
        if item.bytes > LARGEST_TEXT:
            raise UpstreamError(
                f"is called like a licence text and has {item.bytes} bytes.", where=f"{where}: {item.path}"
            )
    with _reach():
        return fetch_listed(hub, papers.repo, papers.commit, items, into=into, progress=progress)


@contextmanager
def _reach() -> Iterator[None]:
    """Tells files that are not given to this account from a Hub that does not answer."""
    try:
        yield
    except UpstreamError as error:
        if isinstance(error.__cause__, NotFound | Refused):
            raise OutOfReach(error.what, where=error.where, remedy=error.remedy) from error
        raise


def is_license_text(path: str) -> bool:
    """Whether a file is called like a licence text: LICENSE, COPYING.LESSER, NOTICE.txt, DINOv3_LICENSE.md, …

    Every file in a folder LICENSES counts (as the REUSE specification has it), and a policy of acceptable use.
    """
    folders, _, name = path.lower().rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not dot or not stem:
        stem, ending = name, ""
    if ending in _OTHER_ENDINGS:
        return False
    parts = [part for part in re.split(r"[-_. ]+", stem) if part]
    named = bool(_WORDS & set(parts)) or any(phrase in stem for phrase in _PHRASES)
    if folders.rpartition("/")[2] in ("licenses", "licences"):
        return True
    return named and (ending in _TEXT_ENDINGS or parts[0] in _WORDS)


def linked_path(link: str, repo: str) -> str:
    """The path in a repository that its card's `license_link` means; empty if it leads elsewhere."""
    parts = urlsplit(link.strip())
    if not parts.scheme and not parts.netloc:
        return unquote(parts.path).removeprefix("./").lstrip("/")
    match = re.fullmatch(rf"/{re.escape(repo)}/(?:blob|resolve|raw)/[^/]+/(.+)", unquote(parts.path))
    return match[1] if match else ""
